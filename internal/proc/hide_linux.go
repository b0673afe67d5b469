package proc

import "golang.org/x/sys/unix"

// Hide keeps the memory of this process, including its environment and keys,
// from other processes of the same user, such as those that it starts. They can
// neither read it nor attach as debuggers. It hides nothing from root, so it
// does not help a server that runs as root. Started programs are not hidden.
func Hide() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
