package utility

import "golang.org/x/sys/unix"

// limitMemory has a process that was just started die of more than maxGitMemory.
func limitMemory(id int) {
	limit := unix.Rlimit{Cur: maxGitMemory, Max: maxGitMemory}
	_ = unix.Prlimit(id, unix.RLIMIT_DATA, &limit, nil) // it may have ended; its time is bounded in any case
}
