//go:build !linux

package utility

// limitMemory does nothing: only Linux can bound a running process.
func limitMemory(int) {}
