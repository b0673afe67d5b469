//go:build !linux

package utility

import "os"

// directory returns the path of an open directory: a process cannot be started in
// one that is named in no other way.
func directory(_ *os.File, path string) string { return path }
