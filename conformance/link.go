package conformance

import (
	"context"
	"errors"
	"fmt"
)

// A Link is one connection to the server under test. It carries whole JSON
// texts: lines on stdio, frames on WebSocket. Send and the closing methods are
// called from one goroutine, Recv from one other.
type Link interface {
	// Send sends one text; on stdio it adds the line feed.
	Send(ctx context.Context, text []byte) error
	// SendRaw sends bytes as they are: without a line feed on stdio, as a
	// binary frame on WebSocket.
	SendRaw(ctx context.Context, data []byte) error
	// Recv waits for the next text. Its error ends the link: a *Closed if the
	// server ended it, io.EOF when a process closed its output.
	Recv(ctx context.Context) ([]byte, error)
	// CloseInput ends the client's half: EOF on the server's standard input,
	// a close frame on WebSocket.
	CloseInput() error
	// Wait returns the server's exit status once it has ended by itself.
	// It is an error on WebSocket.
	Wait(ctx context.Context) (int, error)
	// Diagnostics is what the server wrote for humans on this link.
	Diagnostics() string
	// Close ends the link at once, and the process behind it.
	Close() error
}

// errNoProcess is what Wait returns where no process belongs to the link.
var errNoProcess = errors.New("a socket has no exit status")

// Closed is the close frame that ended a WebSocket link.
type Closed struct {
	Code   int
	Reason string
}

// Error returns the code and the reason.
func (c *Closed) Error() string { return fmt.Sprintf("closed with %d %q", c.Code, c.Reason) }

// Refused is an attachment that was refused over HTTP, before the upgrade.
type Refused struct {
	Status int
	Code   string // code in the error body, if it has one
	Text   string // error in the error body
	Offers string // Sec-WebSocket-Protocol of the answer
	Cause  error
}

// Error returns the status and what the body said.
func (r *Refused) Error() string {
	return fmt.Sprintf("refused before the upgrade: %d %s %q (%v)", r.Status, r.Code, r.Text, r.Cause)
}
