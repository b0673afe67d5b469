package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// A delivery is one frame that a follower was shown and that everybody else is
// shown too.
type delivery struct {
	cursor uint64

	// run is what a piece of text belongs to, and empty for everything else. A
	// follower that is behind may be shown several pieces of one run as one,
	// with the cursor of the last (D5).
	run  string
	body string // the piece of text, or the whole message
}

// Faults are what a comparison found.
type faults struct {
	losses     int // messages shown to one and not to the other, or no longer in the journal
	duplicates int // shown twice
	changes    int // messages with other bytes, and texts that differ in any way
	examples   []string
}

const maxExamples = 20

func (f *faults) clean() bool { return f.losses+f.duplicates+f.changes == 0 }

func (f *faults) note(format string, args ...any) {
	if len(f.examples) < maxExamples {
		f.examples = append(f.examples, fmt.Sprintf(format, args...))
	}
}

func (f *faults) add(more faults) {
	f.losses += more.losses
	f.duplicates += more.duplicates
	f.changes += more.changes
	f.examples = append(f.examples, more.examples[:min(len(more.examples), maxExamples-len(f.examples))]...)
}

// A side is one of two sequences that are compared, and how far it was read.
type side struct {
	rest  []delivery
	texts []text // since the last cursor that both sides have
}

// A text is all that was read of one run.
type text struct {
	run  string
	body []byte
}

// before reports whether s has a delivery that comes before all that o has.
func (s *side) before(o *side) bool {
	return len(s.rest) > 0 && (len(o.rest) == 0 || s.rest[0].cursor < o.rest[0].cursor)
}

// take reads one delivery; a piece of text is put behind those of its run.
func (s *side) take() delivery {
	d := s.rest[0]
	s.rest = s.rest[1:]
	if d.run == "" {
		return d
	}
	if n := len(s.texts); n == 0 || s.texts[n-1].run != d.run {
		s.texts = append(s.texts, text{run: d.run})
	}
	last := &s.texts[len(s.texts)-1]
	last.body = append(last.body, d.body...)
	return d
}

// compare holds what a follower got against what it should have got; both are
// complete up to the same entry, and in the order of their cursors. Texts are
// compared at the cursors that both have, because either may have been merged.
func compare(name string, want, got []delivery) faults {
	var f faults
	w, g := &side{rest: want}, &side{rest: got}
	for len(w.rest) > 0 || len(g.rest) > 0 {
		switch {
		case w.before(g):
			if d := w.take(); d.run == "" {
				f.losses++
				f.note("%s: was not shown %d %.80s", name, d.cursor, d.body)
			}
		case g.before(w):
			if d := g.take(); d.run == "" {
				f.losses++
				f.note("%s: %d %.80s is gone", name, d.cursor, d.body)
			}
		default:
			a, b := w.take(), g.take()
			f.texts(name, a.cursor, w, g)
			if a.run == "" && b.run == "" && a.body != b.body || (a.run == "") != (b.run == "") {
				f.changes++
				f.note("%s: at %d got %.80s, want %.80s", name, a.cursor, b.body, a.body)
			}
		}
	}
	f.texts(name, math.MaxUint64, w, g)
	return f
}

// texts compares the text that both sides have read and lets go of it.
func (f *faults) texts(name string, cursor uint64, w, g *side) {
	same := func(a, b text) bool { return a.run == b.run && bytes.Equal(a.body, b.body) }
	if !slices.EqualFunc(w.texts, g.texts, same) {
		f.changes++
		f.note("%s: the text before %d is %.200q, want %.200q", name, cursor, g.texts, w.texts)
	}
	w.texts, g.texts = nil, nil
}
