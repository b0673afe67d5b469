package client

import (
	"errors"
	"testing"
)

// opened returns a call that has been added to a table with a connection.
func opened(t *testing.T, table *calls, id string, repeat bool) *call {
	t.Helper()
	c := &call{id: id, frame: []byte("frame " + id), repeat: repeat, done: make(chan answer, 1)}
	if err := table.add(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantAnswer fails unless the call has ended with an error, or is open if that is nil.
func wantAnswer(t *testing.T, c *call, want error) {
	t.Helper()
	select {
	case a := <-c.done:
		if want == nil || !errors.Is(a.err, want) {
			t.Errorf("call %s: got ended with %v, want %v", c.id, a.err, want)
		}
	default:
		if want != nil {
			t.Errorf("call %s: got it open, want it ended with %v", c.id, want)
		}
	}
}

func TestCallsWithoutAConnection(t *testing.T) {
	table := newCalls()
	if err := table.add(&call{id: "once"}); !errors.Is(err, ErrNotConnected) {
		t.Errorf("got %v for a frame that is never repeated, want %v", err, ErrNotConnected)
	}
	waits := opened(t, table, "again", true)
	table.close(errSilent)
	wantAnswer(t, waits, errSilent)
	if err := table.add(&call{id: "late", repeat: true}); !errors.Is(err, errSilent) {
		t.Errorf("got %v after the end, want %v", err, errSilent)
	}
}

func TestCallsAfterTheirConnectionEnded(t *testing.T) {
	for _, same := range []bool{false, true} {
		table := newCalls()
		table.link(true)
		once, written, unwritten := opened(t, table, "once", false), opened(t, table, "written", true), opened(t, table, "unwritten", true)
		for _, want := range []*call{once, written} {
			if got := string(table.next()); got != string(want.frame) {
				t.Fatalf("got %q written, want %q: the oldest first", got, want.frame)
			}
		}
		table.unlink()
		wantAnswer(t, once, ErrAnswerLost)
		wantAnswer(t, written, nil)
		table.link(same)
		var again []string
		for f := table.next(); f != nil; f = table.next() {
			again = append(again, string(f))
		}
		if same {
			wantAnswer(t, written, nil)
		} else {
			wantAnswer(t, written, ErrAnswerLost)
		}
		if want := map[bool]int{true: 2, false: 1}[same]; len(again) != want || again[want-1] != string(unwritten.frame) {
			t.Errorf("same connection %t: got %q written again, want %d frames, the unwritten last", same, again, want)
		}
	}
}

func TestCallsAtTheEnd(t *testing.T) {
	table := newCalls()
	table.link(true)
	lost, written, waits := opened(t, table, "lost", true), opened(t, table, "written", true), opened(t, table, "waits", true)
	table.next()
	table.unlink()
	table.link(true)
	table.next()
	table.next()
	table.unlink()
	table.link(true)
	table.next()
	table.close(errSilent)
	wantAnswer(t, lost, ErrAnswerLost)
	wantAnswer(t, written, ErrAnswerLost)
	wantAnswer(t, waits, errSilent)
	if table.next() != nil {
		t.Error("got a frame to write after the end, want none")
	}
}

func TestFrameWithoutIDEndsWhenWritten(t *testing.T) {
	table := newCalls()
	table.link(true)
	c := opened(t, table, "", false)
	if table.next() == nil {
		t.Fatal("got nothing to write, want the frame")
	}
	if a := <-c.done; a.err != nil || len(table.open) != 0 {
		t.Errorf("got %v and %d open, want it ended", a.err, len(table.open))
	}
	table.answer(nil, answer{})
	id := "unknown"
	table.answer(&id, answer{}) // its caller gave up
}
