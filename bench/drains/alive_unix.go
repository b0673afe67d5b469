//go:build unix && !linux

package main

import (
	"errors"
	"syscall"
)

// alive reports whether a process of the group that pid leads is there.
func alive(pid int) bool { return !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) }
