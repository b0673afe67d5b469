package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
)

// Lines speaks the bare protocol of standard streams: one message a line, without
// envelopes, cursors or control frames.
type Lines struct {
	*Raw

	// Owned by the caller of Next.
	count   uint64
	decoder contracts.Decoder
}

// NewLines speaks to a server that reads w and writes r. Close calls their Close
// methods, if they have one; if r has none, Close waits until r ends.
func NewLines(r io.Reader, w io.Writer) *Lines {
	return &Lines{Raw: newRaw(&linePipe{in: line.NewReader(r, contracts.MaxLineBytes+len("\r")), r: r, w: w})}
}

// Send encodes and sends a command. The bare protocol has no answers; the result is
// among the events.
func (l *Lines) Send(cmd contracts.Command) error {
	text, err := contracts.EncodeCommand(cmd)
	if err != nil {
		return fmt.Errorf("encode %s: %w", cmd.CommandType(), err)
	}
	return l.SendText(text)
}

// Next returns the next event. Its cursor is the number of the line, from 1. It
// returns io.EOF at the end.
func (l *Lines) Next(ctx context.Context) (Update, error) {
	text, err := l.ReceiveText(ctx)
	if err != nil {
		return Update{}, err
	}
	l.count++
	u := Update{Kind: KindEvent, Cursor: l.count, Body: text}
	u.Event, err = l.decoder.Event(text)
	if errors.Is(err, contracts.ErrUnknownType) {
		u.Kind, err = KindUnknown, nil
	}
	if err != nil {
		return Update{}, &protocolError{err}
	}
	return u, nil
}

// errLongLine means that a line exceeds MaxLineBytes.
var errLongLine = fmt.Errorf("%w: it has more than %d bytes", line.ErrLong, contracts.MaxLineBytes)

// A linePipe is a pipe over two byte streams.
type linePipe struct {
	in *line.Reader
	r  io.Reader
	w  io.Writer
}

// read returns the next line that is not blank, without its terminator.
func (p *linePipe) read() ([]byte, error) {
	for {
		text, err := p.in.Next()
		if errors.Is(err, line.ErrLong) {
			return nil, errLongLine
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(text)) > 0 {
			return bytes.Clone(bytes.TrimSuffix(text, []byte("\r"))), nil
		}
	}
}

func (p *linePipe) write(text []byte) error {
	_, err := p.w.Write(append(bytes.Clone(text), '\n')) // one write, so that lines of several writers do not mix
	return err
}

func (p *linePipe) close() {
	for _, stream := range []any{p.w, p.r} {
		if c, ok := stream.(io.Closer); ok {
			_ = c.Close()
		}
	}
}
