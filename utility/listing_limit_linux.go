package utility

import "golang.org/x/sys/unix"

// limitMemory bounds the memory of a process that was just started to
// maxGitMemory.
func limitMemory(id int) {
	limit := unix.Rlimit{Cur: maxGitMemory, Max: maxGitMemory}
	_ = unix.Prlimit(id, unix.RLIMIT_DATA, &limit, nil) // an error says that it may have ended; its time is bounded anyway
}
