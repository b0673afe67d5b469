package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
)

// cpuDuring is the processor time that a process takes while do runs.
func cpuDuring(pid int, do func()) time.Duration {
	before := must(cpuTime(pid))
	do()
	return must(cpuTime(pid)) - before
}

// peakDuring is how far the resident memory of a process rises while do runs, in
// megabytes.
func peakDuring(pid int, do func()) (grown float64) {
	before := must(control.Resident(pid))
	const resetPeak = "5" // proc(5), clear_refs
	check(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(resetPeak), 0))
	do()
	return megabytes(must(control.Memory(pid, "VmHWM")) - before)
}

// diskBytes is the size of the files in a folder and below it.
func diskBytes(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return skipMissing(err)
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return skipMissing(err)
	})
	return size, err
}

// skipMissing returns err, or nil if err says that a file was removed meanwhile.
func skipMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// descriptors is how many files a process has open and how many directories it
// watches with inotify.
func descriptors(pid int) (count int) {
	for _, path := range must(filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))) {
		info, err := os.ReadFile(path)
		check(skipMissing(err))
		count += 1 + bytes.Count(info, []byte("\ninotify wd:"))
	}
	return count
}
