//go:build !linux

package utility

// limitMemory does nothing: only Linux bounds a process that has begun.
func limitMemory(int) {}
