// Package console is a terminal in which one line is typed at the bottom while
// text is printed above it.
//
// A [Screen] prints, a [Line] is what is being typed, and a [Mode] switches the
// terminal. Screen and Line are plain values: they start no goroutine, read no
// clock and know nothing of the session. Their owner reads the keyboard, feeds
// the Line and flushes the Screen. The owner also cleans what it prints: a text
// may hold no control characters but newline and tab.
package console
