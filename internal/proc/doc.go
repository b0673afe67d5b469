// Package proc is what the rooms that start processes have in common: which
// of the server's environment a process may see, the group that it and its own
// children form, one that is spoken to line by line until it ends or is made to,
// and how a command line becomes words.
//
// It promises that no process of a group is left once the group was stopped, and
// that none is left either when the server was killed: a process beside it, the
// guard, sees to that. On Linux that holds for what has left the group, too, as
// a daemon does; elsewhere that is not found again. Windows has no groups that a
// signal reaches and no guard, so there the process itself is killed and its
// descendants are not.
package proc
