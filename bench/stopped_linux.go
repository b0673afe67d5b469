package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
)

const (
	smallBuffer = 4 << 10   // bytes of receive buffer, so that a viewer that stops is felt soon
	largeBuffer = 256 << 10 // the same once it reads again: with a small one the kernel trickles
	maxResumes  = 5         // of one viewer
)

// A stopped viewer attaches, stops reading, and later reads everything it
// missed: on the connection it has or, if the server has closed that, by
// coming back with the cursor it had reached. It is used by one goroutine.
type stopped struct {
	addr    string
	dialect dialect

	*wire
	epoch   string
	cursor  uint64 // of the last frame read
	next    uint64 // number of the message that must come next
	text    []byte // read and not yet checked: less than a message
	resumes int
}

// envelope is what a stopped viewer needs of any frame.
type envelope struct {
	Type     string `json:"type"`
	Cursor   uint64 `json:"cursor"`
	Epoch    string `json:"epoch"`
	Reason   string `json:"reason"`
	Snapshot *struct {
		Cursor uint64 `json:"cursor"`
	} `json:"snapshot"`
	Message *struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	} `json:"message"`
}

// attachStopped attaches a viewer that reads nothing beyond its handshake.
// next is the number of the first message published after that.
func attachStopped(addr string, d dialect, next uint64) (*stopped, error) {
	v := &stopped{addr: addr, dialect: d, next: next}
	small := d
	small.buffer = smallBuffer
	if err := v.connect(small); err != nil {
		return nil, err
	}
	for { // the handshake; dial has it all
		e, err := v.read()
		if err != nil {
			return nil, errors.Join(err, v.close())
		}
		if e.Snapshot != nil {
			v.cursor = e.Snapshot.Cursor
		}
		if e.Message != nil && e.Message.Type == "hello_ok" {
			return v, nil
		}
	}
}

func (v *stopped) connect(d dialect) (err error) {
	if v.wire, err = dialWire(v.addr, d); err == nil {
		v.stuck = true
	}
	return err
}

// catchUp reads until the viewer has all messages below target.
func (v *stopped) catchUp(target uint64) error {
	if err := v.conn.SetReadBuffer(largeBuffer); err != nil {
		return err
	}
	for v.next < target {
		e, err := v.read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%d messages are missing and nothing came for %v", target-v.next, attachTimeout)
		case err != nil:
			err = v.resume(err)
		default:
			err = v.apply(e)
		}
		if err != nil {
			return err
		}
	}
	if len(v.text) > 0 {
		return fmt.Errorf("%d bytes of text beyond the last message", len(v.text))
	}
	return nil
}

// resume comes back after why ended the connection.
func (v *stopped) resume(why error) error {
	if v.resumes++; v.resumes > maxResumes {
		return fmt.Errorf("disconnected %d times, last: %w", v.resumes, why)
	}
	if err := v.close(); err != nil {
		return err
	}
	d := v.dialect
	d.path = fmt.Sprintf("%s&cursor=%d&epoch=%s", d.path, v.cursor, v.epoch)
	d.answer = `"type":"ws.attached"` // hello_ok comes only after everything missed
	if err := v.connect(d); err != nil {
		return fmt.Errorf("resume at cursor %d after %w: %w", v.cursor, why, err)
	}
	return nil
}

// apply checks one frame against what the viewer has.
func (v *stopped) apply(e envelope) error {
	switch e.Type {
	case "snapshot", "reset":
		return fmt.Errorf("got a %s (%s) at cursor %d, want a replay", e.Type, e.Reason, v.cursor)
	case "message":
	default:
		return nil
	}
	if e.Cursor < v.cursor {
		return fmt.Errorf("cursor went back: got %d, want at least %d", e.Cursor, v.cursor)
	}
	v.cursor = e.Cursor
	if e.Message == nil || e.Message.Type != "response_chunk" {
		return nil
	}
	v.text = append(v.text, e.Message.Content...)
	for {
		n, sent, ok := control.ParseMark(v.text)
		want := control.Text(n, time.UnixMicro(sent))
		if len(v.text) < len(want) {
			return nil
		}
		if !ok || n != v.next || !bytes.HasPrefix(v.text, want) {
			return fmt.Errorf("got text %.60q, want that of message %d", v.text, v.next)
		}
		v.text = v.text[len(want):]
		v.next++
	}
}

// read returns the next frame.
func (v *stopped) read() (e envelope, err error) {
	payload, err := v.wire.next()
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return e, err
	}
	if e.Type == "ws.attached" {
		v.epoch = e.Epoch
	}
	if e.Type == "ws.goodbye" {
		return e, fmt.Errorf("goodbye: %s", strings.TrimSpace(string(payload)))
	}
	return e, nil
}
