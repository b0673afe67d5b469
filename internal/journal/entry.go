package journal

import (
	"bytes"
	"errors"
	"fmt"
)

// An Entry is one step of a session: an event or snapshot that clients see, or data
// from which the owner rebuilds its state.
type Entry struct {
	Cursor uint64 // position; assigned by the journal, from 1 upwards
	Time   int64  // Unix milliseconds, by the owner's clock
	Kind   Kind
	Class  Class

	// TextStart and TextEnd are the span of Body that holds mergeable text. An
	// entry with an empty span is never merged (D5). Texts are joined byte by byte,
	// so the span must not begin or end within an escape sequence. In an entry of
	// kind Joint, the span is a part of the entry.
	TextStart, TextEnd uint32

	// A transient entry is shown while it is in the window. The store has an empty
	// note in its place.
	Transient bool

	Body []byte // at most MaxBody bytes
}

// MaxBody is the longest body of an entry, in bytes.
const MaxBody = 64 << 20

// MaxMergedText is the most text one merged frame carries, in bytes (D5).
const MaxMergedText = 64 << 10

// A Kind is the kind of an entry.
type Kind uint8

const (
	Message    Kind = iota // a public event; the body is its JSON
	Snapshot               // a public snapshot; the body is its JSON
	Note                   // data of the owner; never shown
	Checkpoint             // the owner's whole state; recovery starts here; never shown
	Joint                  // an event and data of the owner under one cursor; see Parts
)

// hidden reports whether followers never see entries of kind k.
func (k Kind) hidden() bool { return k == Note || k == Checkpoint }

// A Class is a set of bits by which followers opt out of entries. The owner defines
// the bits. An entry of class zero is always shown.
type Class uint8

var (
	// ErrGap means that the entries after a cursor cannot be read: retention
	// has removed them, they were lost, or they do not exist yet (A44).
	ErrGap = errors.New("journal gap")

	// ErrBroken means that a store cannot be written to until it is reopened,
	// because it could not undo a failed write.
	ErrBroken = errors.New("journal store is broken")

	// ErrCorrupt means that an entry which was once readable no longer is.
	ErrCorrupt = errors.New("journal is corrupt")

	// ErrLocked means that another process, or another store in this one, has
	// the directory open.
	ErrLocked = errors.New("journal is in use by another process")
)

// check returns an error if e cannot be stored.
func (e *Entry) check() error {
	switch {
	case e.Kind > Joint:
		return fmt.Errorf("entry of unknown kind %d", e.Kind)
	case len(e.Body) > MaxBody:
		return fmt.Errorf("entry body of %d bytes is longer than %d", len(e.Body), MaxBody)
	case e.TextStart > e.TextEnd || int(e.TextEnd) > len(e.Body):
		return fmt.Errorf("text span %d to %d does not lie in a body of %d bytes", e.TextStart, e.TextEnd, len(e.Body))
	case e.Kind == Joint && e.TextStart == 0:
		return errors.New("joint entry was not made by Parts.Joint")
	}
	return nil
}

// Continues reports whether e may be merged with an older entry (D5): both are events
// that differ only in their text.
func (e *Entry) Continues(older *Entry) bool {
	return e.TextEnd > e.TextStart && older.TextEnd > older.TextStart &&
		e.Kind == Message && older.Kind == Message && e.Class == older.Class &&
		bytes.Equal(e.Body[:e.TextStart], older.Body[:older.TextStart]) &&
		bytes.Equal(e.Body[e.TextEnd:], older.Body[older.TextEnd:])
}

// checkBatch returns an error unless entries can be stored and their cursors follow
// last without a hole. If last is zero, the first cursor may be any.
func checkBatch(last uint64, entries []Entry) error {
	want := last + 1
	if last == 0 {
		want = max(1, entries[0].Cursor)
	}
	for i := range entries {
		if got := entries[i].Cursor; got != want {
			return fmt.Errorf("entry has cursor %d, want %d", got, want)
		}
		if err := entries[i].check(); err != nil {
			return fmt.Errorf("entry %d: %w", want, err)
		}
		want++
	}
	return nil
}
