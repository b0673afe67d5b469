package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
	"github.com/seed-028515a8/maestro/internal/proc"
)

const (
	// maxRequests bounds a server's open requests. Further ones are refused
	// before the library, which queues without a bound, sees them.
	maxRequests = 64

	// discoverTime is how long a program has to answer the first request of the
	// newer generation. A program of the older one may ignore unknown requests.
	// Then the library gets an error and uses the older handshake.
	discoverTime = 5 * time.Second
)

// Methods that the pipe handles.
const (
	methodDiscover    = "server/discover"
	methodCancelled   = "notifications/cancelled"
	methodListChanged = "notifications/tools/list_changed"
	methodProgress    = "notifications/progress"
	methodComplete    = "notifications/elicitation/complete"
	methodSampling    = "sampling/createMessage"
)

// codeBusy is the error code for a request beyond the bound.
const codeBusy = -32000

// notices are events that a link gets at once. Its methods must not block.
type notices interface {
	progress(*sdk.ProgressNotificationParams)
	completed(elicitationID string)
}

// A pipe is the connection to a program, as the library sees it. A program that
// floods fills no queue: the pipe handles relevant notifications itself, drops
// the others, and counts requests.
type pipe struct {
	*proc.Process
	send    func(line []byte) error // to the program; does not block
	notices notices
	log     *slog.Logger

	incoming chan jsonrpc.Message // unbuffered; messages for the library

	answered  atomic.Bool // the program has sent an answer
	relisting atomic.Bool // the library has a list_changed that it has not handled

	mu       sync.Mutex
	late     *time.Timer         // answers the first request if the program does not; nil without one
	requests map[jsonrpc.ID]bool // open requests of the program; true after it was withdrawn
}

var _ sdk.Connection = (*pipe)(nil)

// newPipe starts the program of a server.
func newPipe(l *link) (*pipe, error) {
	cmd, err := command(&l.server, l.set.opts.Dir, proc.Environ(os.Environ(), l.set.opts.Hosted, l.set.opts.EnvPass))
	if err != nil {
		return nil, err
	}
	p := makePipe(proc.NewProcess(cmd, proc.ProcessOptions{Name: "the program", Log: l.log}), l)
	p.log = l.log
	if err := p.Start(p.listen); err != nil {
		return nil, startError(err)
	}
	return p, nil
}

// makePipe returns the pipe of a program that has not been started.
func makePipe(program *proc.Process, n notices) *pipe {
	return &pipe{
		Process: program, send: program.Send, notices: n,
		incoming: make(chan jsonrpc.Message), requests: map[jsonrpc.ID]bool{},
	}
}

// Connect makes the pipe the transport of its own connection.
func (p *pipe) Connect(context.Context) (sdk.Connection, error) { return p, nil }

// SessionID implements [sdk.Connection].
func (p *pipe) SessionID() string { return "" }

// Read implements [sdk.Connection].
func (p *pipe) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-p.incoming:
		return m, nil
	case <-p.Ending():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, io.EOF
}

// Write implements [sdk.Connection]. It does not block.
func (p *pipe) Write(ctx context.Context, m jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *jsonrpc.Response:
		p.mu.Lock()
		delete(p.requests, m.ID)
		p.mu.Unlock()
	case *jsonrpc.Request:
		if m.Method == methodDiscover {
			p.mu.Lock()
			p.late = time.AfterFunc(discoverTime, func() { // the program does not answer
				p.deliver(&jsonrpc.Response{ID: m.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no answer"}})
			})
			p.mu.Unlock()
		}
		if c, ok := ctx.Value(callKey{}).(*call); ok {
			c.sent.Store(true)
		}
	}
	if err := p.send(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w", errEnded, err) // the program's failure has the reason
	}
	return nil
}

// Close implements [sdk.Connection]. It does not wait, because the library
// holds a lock.
func (p *pipe) Close() error {
	p.End(exitGrace, errUnwanted)
	return nil
}

// deliver passes a message to the library. It returns false if no more messages
// will be read.
func (p *pipe) deliver(m jsonrpc.Message) bool {
	select {
	case p.incoming <- m:
		return true
	case <-p.Ending():
	}
	return false
}

// receive handles a message of the program. It returns false if no more
// messages will be read.
func (p *pipe) receive(m jsonrpc.Message) bool {
	switch m := m.(type) {
	case *jsonrpc.Response:
		p.answered.Store(true)
		p.mu.Lock()
		if p.late != nil {
			p.late.Stop() // any answer is one to the first request
		}
		p.mu.Unlock()
	case *jsonrpc.Request:
		if m.IsCall() && !p.admit(m) || !m.IsCall() && !p.forLibrary(m) {
			return true
		}
	}
	return p.deliver(m)
}

// admit counts a request of the program. It refuses one beyond the bound, or
// with an id that is in use.
func (p *pipe) admit(m *jsonrpc.Request) bool {
	p.mu.Lock()
	_, taken := p.requests[m.ID]
	room := !taken && len(p.requests) < maxRequests
	if room {
		p.requests[m.ID] = false
	}
	p.mu.Unlock()
	if room {
		return true
	}
	line, err := jsonrpc.EncodeMessage(&jsonrpc.Response{ID: m.ID, Error: &jsonrpc.Error{Code: codeBusy, Message: "too many requests at once, or an id that is in use"}})
	if err == nil {
		_ = p.send(append(line, '\n')) // a program that does not read is ended
	}
	return false
}

// forLibrary reports whether the library needs a notification. It passes the
// relevant ones to the session.
func (p *pipe) forLibrary(m *jsonrpc.Request) bool {
	switch m.Method {
	case methodCancelled:
		var params struct {
			RequestID any `json:"requestId"`
		}
		if json.Unmarshal(m.Params, &params) != nil {
			return false
		}
		id, err := jsonrpc.MakeID(params.RequestID)
		if err != nil {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		withdrawn, open := p.requests[id]
		if open {
			p.requests[id] = true
		}
		return open && !withdrawn
	case methodListChanged:
		m.Params = nil // so that the library understands it; its handler resets relisting
		return !p.relisting.Swap(true)
	case methodProgress:
		var params sdk.ProgressNotificationParams
		if json.Unmarshal(m.Params, &params) == nil {
			p.notices.progress(&params)
		}
	case methodComplete:
		var params sdk.ElicitationCompleteParams
		if json.Unmarshal(m.Params, &params) == nil {
			p.notices.completed(params.ElicitationID)
		}
	}
	return false
}

// decode decodes a message, or a batch as in one of the older revisions.
func decode(line []byte) (messages []jsonrpc.Message, err error) {
	parts := []json.RawMessage{line}
	if line[0] == '[' {
		if err := json.Unmarshal(line, &parts); err != nil {
			return nil, err
		}
	}
	for _, part := range parts {
		m, err := jsonrpc.DecodeMessage(part)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

const (
	maxBadLines = 16          // lines in a row that are no messages; one more ends the program
	exitGrace   = time.Second // time from the end of the program's input to the signal to end
)

// command returns the command of a server's program in the workspace dir.
func command(s *Server, dir string, env []string) (*exec.Cmd, error) {
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		dir = filepath.Join(dir, s.Dir)
	} else if s.Dir != "" {
		dir = s.Dir
	}
	if at, err := os.Stat(dir); err != nil { // otherwise the program would be reported as missing
		return nil, &fault{"the directory in which it is to start (cwd) does not exist", err}
	} else if !at.IsDir() {
		return nil, &fault{words: "where it is to start (cwd) is no directory"}
	}
	path, err := proc.FindProgram(s.Command, dir, env)
	if err != nil {
		return nil, startError(err)
	}
	cmd := exec.Command(path, s.Args...)
	cmd.Args[0] = s.Command
	cmd.Dir, cmd.Env = dir, env
	return cmd, nil
}

// startError returns the error of a program that could not be started.
func startError(err error) error {
	return &fault{"its program does not start: " + cmp.Or(systemWords(err), "see the server's log"), err}
}

// listen receives the program's output, line by line. It logs lines that are no
// messages, because many programs print greetings or warnings there.
func (p *pipe) listen(stdout io.Reader) {
	lines := line.NewReader(stdout, contracts.MaxLineBytes)
	bad := 0
	for {
		text, err := lines.Next()
		if errors.Is(err, line.ErrLong) {
			p.Kill(fmt.Errorf("wrote a line longer than %d bytes", contracts.MaxLineBytes))
			return
		}
		if err != nil {
			return
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		messages, err := decode(text)
		if err != nil {
			p.log.Debug("MCP server wrote a line that is not a message", "line", label(string(text[:min(len(text), maxLabel)])))
			if bad++; bad > maxBadLines {
				p.Kill(fmt.Errorf("wrote %d lines in a row that are no messages", bad))
				return
			}
			continue
		}
		bad = 0
		for _, m := range messages {
			if !p.receive(m) {
				return
			}
		}
	}
}

// failure returns why the program ended, with the last line of its standard
// error as the detail. Call it after the end.
func (p *pipe) failure() error {
	cause := p.Failure()
	if cause == nil {
		return nil
	}
	f := &fault{words: cause.Error()}
	if words := p.LastWords(); words != "" {
		f.words += "; what it said is in the server's log"
		f.detail = errors.New(words)
	}
	return f
}
