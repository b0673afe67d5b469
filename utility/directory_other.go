//go:build !linux

package utility

import "os"

// directory returns path: on other systems a process's directory can be named
// by its path only.
func directory(_ *os.File, path string) string { return path }
