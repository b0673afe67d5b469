package proc

import "golang.org/x/sys/unix"

// Hide keeps what this process has in memory, its environment and so its keys
// included, from other processes of the same user: what it starts is of that user.
// They can neither read it nor attach to it as debuggers. Nothing is hidden from
// root, so not from what a server of root's starts. Programs that are started are
// not hidden.
func Hide() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
