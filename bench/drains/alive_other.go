//go:build !unix

package main

import "os"

// alive reports whether the process pid is there.
func alive(pid int) bool {
	_, err := os.FindProcess(pid)
	return err == nil
}
