// Package proc starts processes: it filters the environment that a process
// gets, runs it in a group with its children, exchanges lines with it until it
// ends, and splits command lines into words.
//
// After Stop no process of a group is left. None is left either after the
// server was killed: a second process, the guard, kills the rest. On Linux this
// includes processes that have left the group, such as daemons; on other
// systems those are not found. Windows has neither process groups nor a guard,
// so only the process itself is killed, not its descendants.
package proc
