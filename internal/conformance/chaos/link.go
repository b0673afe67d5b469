package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A link carries texts one way and injects faults into them. One goroutine uses it.
type link struct {
	faults []counted
	events bool   // the texts are events of a stream
	held   []byte // the text that is to follow the next one; nil for none
}

// errCut ends a link in the middle of a text, and errEnd between two.
var (
	errCut = errors.New("a fault cut the link")
	errEnd = errors.New("a fault ended the link")
)

// pump carries texts until reading or writing fails or a fault ends the link. It
// returns the reason.
func (l *link) pump(ctx context.Context, read func() ([]byte, error), write func([]byte) error) error {
	for {
		data, err := read()
		if len(data) > 0 || err == nil {
			sent, ends := l.pass(ctx, data)
			for _, data := range sent {
				if err := write(data); err != nil {
					return err
				}
			}
			if ends != nil {
				return ends
			}
		}
		if err != nil {
			if l.held != nil {
				_ = write(l.held) // the other end may have gone
			}
			return err
		}
	}
}

// pass returns what is to be sent in place of a text. With an error the link ends
// after that.
func (l *link) pass(ctx context.Context, data []byte) ([][]byte, error) {
	if len(l.faults) == 0 {
		return [][]byte{data}, nil
	}
	held := l.held
	l.held = nil
	t := l.parse(data)
	var before, after [][]byte
	out := []*text{t}
	for i := range l.faults {
		f := &l.faults[i]
		if !f.concerns(t.kind()) || !f.holds(t) || !f.due() {
			continue
		}
		switch f.Action {
		case "drop":
			out = nil
		case "repeat":
			out = append(out, t)
		case "swap":
			l.held = t.bytes()
			out = nil
		case "delay":
			if err := wait(ctx, f.Arg); err != nil {
				return nil, err
			}
		case "cut":
			whole := t.bytes()
			return [][]byte{whole[:len(whole)/2]}, errCut
		case "end":
			return nil, errEnd
		case "add":
			after = append(after, l.like(f.Arg))
		case "before":
			before = append(before, l.like(f.Arg))
		default:
			t.alter(f.Action, f.Arg)
		}
	}
	for _, t := range out {
		if data := t.bytes(); len(data) > 0 {
			before = append(before, data)
		}
	}
	if held != nil {
		before = append(before, held)
	}
	return slices.Concat(before, after), nil
}

func (l *link) parse(data []byte) *text {
	if l.events {
		return parseEvent(data)
	}
	return parseText(data)
}

// like returns a made-up text in the form that the link has.
func (l *link) like(made string) []byte {
	if l.events {
		return []byte(dataField + made + "\n\n")
	}
	return []byte(made)
}

// An ending is how a link ends, which faults see as a last frame of type end.
type ending struct {
	Type   string `json:"type"`
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// end lets faults alter how the link ends. It waits until ctx ends if one drops the
// end.
func (l *link) end(ctx context.Context, code int, reason string) ending {
	e := ending{"end", code, reason}
	data, _ := json.Marshal(e) // strings and a number
	l.events = false
	sent, _ := l.pass(ctx, data) // ctx has ended, or the link ends anyway
	if len(sent) == 0 {
		<-ctx.Done()
	} else if json.Unmarshal(sent[0], &e) != nil {
		return ending{"end", code, reason}
	}
	return e
}

// wait waits for a duration, which Parse has checked.
func wait(ctx context.Context, duration string) error {
	d, _ := time.ParseDuration(duration)
	return sleep.For(ctx, d)
}
