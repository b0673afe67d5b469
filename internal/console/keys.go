package console

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A key is what a key press, some typed characters or a paste does to the line. It
// returns an event, or 0 if there is none.
type key func(*Line) Event

var (
	left         = edits(func(l *Line) { l.at = max(l.at-1, 0) })
	right        = edits(func(l *Line) { l.at = min(l.at+1, len(l.cells)) })
	wordLeft     = edits(func(l *Line) { l.at = l.word(-1) })
	wordRight    = edits(func(l *Line) { l.at = l.word(1) })
	lineStart    = edits(func(l *Line) { l.at = 0 })
	lineEnd      = edits(func(l *Line) { l.at = len(l.cells) })
	older        = edits(func(l *Line) { l.recall(1) })
	newer        = edits(func(l *Line) { l.recall(-1) })
	backspace    = edits(func(l *Line) { l.remove(l.at-1, l.at) })
	deleteNext   = edits(func(l *Line) { l.remove(l.at, l.at+1) })
	deleteWord   = edits(func(l *Line) { l.remove(l.word(-1), l.at) })
	deleteBefore = edits(func(l *Line) { l.remove(0, l.at) })
	deleteAfter  = edits(func(l *Line) { l.remove(l.at, len(l.cells)) })

	newline     = types("\n", false)
	enter       = always(Entered)
	stop        = always(Stop)
	clearScreen = always(Clear)
	interrupt   = ifEmpty(Interrupt, func(l *Line) { l.set(nil) })
	end         = ifEmpty(End, func(l *Line) { l.remove(l.at, l.at+1) })
)

func edits(edit func(*Line)) key { return func(l *Line) Event { edit(l); return 0 } }

func always(e Event) key { return func(*Line) Event { return e } }

// ifEmpty returns a key that is an event on an empty line, and otherwise edits it.
func ifEmpty(e Event, edit func(*Line)) key {
	return func(l *Line) Event {
		if len(l.cells) == 0 {
			return e
		}
		edit(l)
		return 0
	}
}

// types returns a key that inserts a text at the cursor. A paste that is too long is
// put in the history.
func types(text string, paste bool) key {
	return func(l *Line) Event {
		if l.insert(text, paste) {
			return 0
		}
		if paste {
			l.Remember(text)
		}
		return Refused
	}
}

// controls are the keys of control characters, as in a shell.
var controls = map[byte]key{
	0x01: lineStart, 0x02: left, 0x03: interrupt, 0x04: end, 0x05: lineEnd, 0x06: right,
	0x08: backspace, 0x0a: enter, 0x0b: deleteAfter, 0x0c: clearScreen, 0x0d: enter, 0x0e: newer,
	0x10: older, 0x15: deleteBefore, 0x17: deleteWord, 0x1a: stop, 0x7f: backspace,
}

// sequences are the keys for the sequences that a terminal sends after ESC.
var sequences = map[string]key{
	"[A": older, "OA": older, "[B": newer, "OB": newer,
	"[C": right, "OC": right, "[D": left, "OD": left,
	"[1;3C": wordRight, "[1;5C": wordRight, "f": wordRight,
	"[1;3D": wordLeft, "[1;5D": wordLeft, "b": wordLeft,
	"[H": lineStart, "OH": lineStart, "[1~": lineStart, "[7~": lineStart,
	"[F": lineEnd, "OF": lineEnd, "[4~": lineEnd, "[8~": lineEnd,
	"[3~": deleteNext, "\x7f": deleteWord, "\x08": deleteWord, "\r": newline, "\n": newline,
}

// The marks around a paste, and the sequences that switch them on and off.
const (
	pasteOn    = "\x1b[?2004h"
	pasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// maxSequence bounds an escape sequence, in bytes. A longer one is not a
// sequence.
const maxSequence = 32

// A keyboard turns the bytes of a terminal into keys.
type keyboard struct {
	waiting []byte // read and not yet processed
	pasting bool   // between the marks of a paste
	pasted  []byte // the paste so far; at most MaxLine bytes
	tooLong bool   // more was pasted
}

// feed adds input. A lone ESC is the Escape key. It is dropped, so that the
// next key does not become part of its sequence.
func (k *keyboard) feed(input []byte) {
	if !k.pasting && len(k.waiting) == 0 && string(input) == "\x1b" {
		return
	}
	k.waiting = append(k.waiting, input...)
}

// next returns the next key, nil for an unknown one. It returns false until more is fed.
func (k *keyboard) next() (key, bool) {
	if k.pasting {
		return k.paste()
	}
	if len(k.waiting) == 0 {
		return nil, false
	}
	first := k.waiting[0]
	if first == 0x1b {
		return k.sequence()
	}
	if pressed, known := controls[first]; known || first < ' ' {
		k.drop(1)
		if first == '\r' && len(k.waiting) > 0 && k.waiting[0] == '\n' {
			k.drop(1)
		}
		return pressed, true
	}
	n := 0
	for n < len(k.waiting) && k.waiting[n] >= ' ' && k.waiting[n] != 0x7f && utf8.FullRune(k.waiting[n:]) {
		_, size := utf8.DecodeRune(k.waiting[n:])
		n += size
	}
	text := string(k.waiting[:n])
	k.drop(n)
	return types(text, false), n > 0
}

func (k *keyboard) sequence() (key, bool) {
	if bytes.HasPrefix(k.waiting, []byte(pasteBegin)) {
		k.drop(len(pasteBegin))
		k.pasting = true
		return k.paste()
	}
	n := sequenceLength(k.waiting[1:])
	if n == 0 {
		return nil, false
	}
	pressed := sequences[string(k.waiting[1:1+n])]
	k.drop(1 + n)
	return pressed, true
}

// sequenceLength returns the length of the sequence at the beginning of text,
// or 0 if its end is missing.
func sequenceLength(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] {
	case 'O':
		if len(text) < 2 {
			return 0
		}
		return 2
	case '[':
		for i, b := range text[1:] {
			if b >= '@' && b <= '~' {
				return i + 2
			}
			if b < ' ' || i+2 > maxSequence {
				return i + 1 // not a sequence: the rest is read as keys
			}
		}
		return 0
	case 0x1b:
		return 1
	}
	if !utf8.FullRune(text) {
		return 0
	}
	_, size := utf8.DecodeRune(text)
	return size
}

// paste reads up to the end of a paste. Ctrl-C also ends it, because the end
// mark may have been lost.
func (k *keyboard) paste() (key, bool) {
	end, skip := bytes.Index(k.waiting, []byte(pasteEnd)), len(pasteEnd)
	if stop := bytes.IndexByte(k.waiting, 0x03); stop >= 0 && (end < 0 || stop < end) {
		end, skip = stop, 0
	}
	n := end
	if end < 0 { // without what may be the beginning of the mark
		n = len(k.waiting) - partOf(k.waiting, pasteEnd)
	}
	if len(k.pasted)+n > MaxLine {
		k.tooLong = true
	}
	k.pasted = append(k.pasted, k.waiting[:min(n, MaxLine-len(k.pasted))]...)
	k.drop(n)
	if end < 0 {
		return nil, false
	}
	k.drop(skip)
	pasted := types(string(k.pasted), true)
	if k.tooLong {
		begin := strings.ToValidUTF8(string(k.pasted), "") // it may end within a character
		pasted = func(l *Line) Event { l.Remember(begin); return Refused }
	}
	k.pasting, k.pasted, k.tooLong = false, nil, false
	return pasted, true
}

// partOf returns how many bytes at the end of text may be the beginning of
// mark.
func partOf(text []byte, mark string) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if string(text[len(text)-n:]) == mark[:n] {
			return n
		}
	}
	return 0
}

func (k *keyboard) drop(n int) {
	if k.waiting = k.waiting[n:]; len(k.waiting) == 0 {
		k.waiting = nil
	}
}
