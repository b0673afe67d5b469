package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// alive reports whether a process of the group that pid leads still runs, on Linux
// alone. Those that have ended and that nobody has waited for do not count: in a
// container that can take its time.
func alive(pid int64) bool {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return true
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // state, parent, group
		if len(fields) > 2 && string(fields[2]) == strconv.FormatInt(pid, 10) && fields[0][0] != 'Z' && fields[0][0] != 'X' {
			return true
		}
	}
	return false
}
