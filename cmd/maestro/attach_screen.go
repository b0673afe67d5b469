package main

import (
	"io"
	"strings"
)

// A screen prints what happens above a prompt. Where the output is not a
// terminal there is no prompt and no colour. It is owned by the goroutine that
// follows the session. Only cleaned text may be printed.
type screen struct {
	terminal bool
	colour   bool

	out     io.Writer
	prompt  string
	shown   bool  // the prompt is on the last line
	midLine bool  // the last line has not ended
	err     error // of the output; the first one is final
}

// A style is how a piece of text looks.
type style string

const (
	stylePlain  style = ""
	styleBold   style = "\x1b[1m"
	styleDim    style = "\x1b[2m"
	styleRed    style = "\x1b[31m"
	styleGreen  style = "\x1b[32m"
	styleYellow style = "\x1b[33m"
	styleCyan   style = "\x1b[36m"
)

const (
	unstyled  = "\x1b[0m"
	eraseLine = "\r\x1b[K"
)

// write prints text where the last text ended. While a line is open the prompt
// is hidden, so that a text which arrives in pieces stays in one piece.
func (s *screen) write(look style, text string) {
	if text == "" {
		return
	}
	s.hide()
	s.put(look, text)
	s.midLine = !strings.HasSuffix(text, "\n")
	s.show()
}

// line prints text on lines of its own.
func (s *screen) line(look style, text string) {
	s.hide()
	s.end()
	s.put(look, text)
	s.emit("\n")
	s.show()
}

// endLine ends the open line, if there is one.
func (s *screen) endLine() {
	s.end()
	s.show()
}

// setPrompt changes the prompt.
func (s *screen) setPrompt(prompt string) {
	if prompt == s.prompt && s.shown {
		return
	}
	s.hide()
	s.prompt = prompt
	s.show()
}

// command tells a terminal something that is not shown.
func (s *screen) command(sequence string) {
	if s.terminal {
		s.emit(sequence)
	}
}

// entered notes that the user ended a line: the terminal has shown it and
// stands at the beginning of the next.
func (s *screen) entered() {
	if !s.terminal {
		return
	}
	s.shown, s.midLine = false, false
	s.show()
}

func (s *screen) hide() {
	if s.shown {
		s.emit(eraseLine)
		s.shown = false
	}
}

func (s *screen) show() {
	if s.terminal && !s.midLine && !s.shown && s.prompt != "" {
		s.emit(s.prompt)
		s.shown = true
	}
}

func (s *screen) end() {
	if s.midLine {
		s.emit("\n")
		s.midLine = false
	}
}

func (s *screen) put(look style, text string) {
	if s.colour && look != stylePlain {
		text = string(look) + text + unstyled
	}
	s.emit(text)
}

func (s *screen) emit(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.out, text)
	}
}
