// Package pty runs programs on terminals.
//
// A [Terminal] is one program in its own session, with the terminal as its
// controlling terminal, and everything that the program started.
//
// The last bytes of a program that has ended are still read. A blocked read or
// write ends at its deadline and when the terminal is closed. After the group
// was stopped, nothing of the program is left. The package does not interpret
// the bytes: a reader must build the screen from them.
package pty
