// Package console shows a terminal in which one line is typed at the bottom
// while text is printed above it.
//
// A [Screen] prints, a [Line] is the line being typed, and a [Mode] switches
// the terminal. Screen and Line are plain values: they start no goroutine, read
// no clock and do not know the session. Their owner reads the keyboard, feeds
// the Line and flushes the Screen. The owner must also clean printed text: it
// may contain no control characters except newline and tab.
package console
