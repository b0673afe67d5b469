package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// cpuDuring is the processor time that a process takes while do runs.
func cpuDuring(pid int, do func() error) (time.Duration, error) {
	before, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := cpuTime(pid)
	return after - before, err
}

// peakDuring is how far the resident memory of a process rises while do runs, in
// bytes.
func peakDuring(pid int, do func() error) (grown int64, err error) {
	before, err := resident(pid)
	if err != nil {
		return 0, err
	}
	const resetPeak = "5" // proc(5), clear_refs
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(resetPeak), 0); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, peak, _ := bytes.Cut(status, []byte("VmHWM:"))
	var kilobytes int64
	if _, err := fmt.Sscan(string(peak), &kilobytes); err != nil {
		return 0, fmt.Errorf("process %d: peak of its memory: %w", pid, err)
	}
	return kilobytes<<10 - before, nil
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
func descriptors(pid int) (count int, err error) {
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range open {
		info, err := os.ReadFile(path)
		if skipMissing(err) != nil {
			return 0, err
		}
		count += 1 + bytes.Count(info, []byte("\ninotify wd:"))
	}
	return count, nil
}
