// Package child is what the rooms that start processes have in common: which
// of the server's environment a process may see, the group that it and its own
// children form, and how a command line becomes words.
//
// It promises that no process of a group is left once the group was stopped.
// That reaches as far as process groups do: a process that leaves its group, as
// a daemon does, is not found again. Windows has no groups that a signal
// reaches, so there the process itself is killed and its descendants are not.
// Only Linux ends a process when the server dies without a chance to do it.
package child
