package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time, user and system, that a process has used. It
// adds up its threads' run times from /proc, which are in nanoseconds: the
// process's own figure is in hundredths of a second, too coarse for a burst.
// Threads that have ended are missing from the sum, so it is checked against
// that figure.
func cpuTime(pid int) (time.Duration, error) {
	coarse, err := coarseCPUTime(pid)
	if err != nil {
		return 0, err
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, task := range tasks {
		line, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended since; the check below notices if that matters
		}
		if err != nil {
			return 0, err
		}
		ran, _, _ := bytes.Cut(line, []byte(" "))
		ns, err := strconv.ParseInt(string(ran), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", task, err)
		}
		sum += time.Duration(ns)
	}
	// Both clocks of the process's figure are cut to 10 ms.
	if missing := coarse - sum; missing > 20*time.Millisecond+sum/100 {
		return 0, fmt.Errorf("process %d: %v of processor time belongs to threads that have ended", pid, missing)
	}
	return sum, nil
}

// coarseCPUTime is what the kernel accounts to the whole process, ended threads
// included.
func coarseCPUTime(pid int) (time.Duration, error) {
	const tick = time.Second / 100 // USER_HZ, fixed in the kernel's interface
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses and may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // utime and stime, counted after the name
	if len(fields) <= system {
		return 0, fmt.Errorf("process %d: stat has %d fields", pid, len(fields))
	}
	u, err1 := strconv.ParseInt(string(fields[user]), 10, 64)
	s, err2 := strconv.ParseInt(string(fields[system]), 10, 64)
	return time.Duration(u+s) * tick, errors.Join(err1, err2)
}

// threadTime is the processor time of the calling thread: the viewers' cost.
func threadTime() (time.Duration, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &ru); err != nil {
		return 0, err
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), nil
}
