// Package pty runs programs on terminals.
//
// A [Terminal] is one program, in a session of its own whose controlling
// terminal it is, with everything that the program started. What they write is
// read once and kept, as far as there is room, under cursors: who comes later
// starts from one and reads on. A cursor counts the bytes that were written
// before it.
//
// It promises that the last bytes of a program that has ended are read; that a
// read or write that waits ends at its deadline and when the terminal is closed;
// and that nothing of the program is left once its group was stopped. What the
// bytes mean it does not know: a screen is to be made of them by whoever follows
// them, from a cursor on.
package pty
