package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

const (
	maxErrands  = 3       // how often one call may ask people to visit URLs first
	maxProgress = 1 << 10 // bytes of a progress text

	// progressPause is the time between two progress texts, and between two checks
	// of a call's time limits.
	progressPause = 100 * time.Millisecond

	maxArgs = 8 << 20 // bytes
)

// How the library marks its own errors, which it does not export: for calls it
// could not send, and for requests during a call that were not answered.
const (
	codeUnsent = -32005
	rounds     = "round-trip"
)

// The causes with which we cancel a call.
var (
	errSilent  = errors.New("the tool said nothing for too long")
	errEndless = errors.New("the tool took too long")
)

// tokens counts progress tokens, which must differ within a connection only.
var tokens atomic.Int64

// A call is a running tool call.
type call struct {
	token          string
	sent           atomic.Bool            // the server may have received it
	begun          atomic.Bool            // the server has requested something before its answer
	unknownSession atomic.Bool            // the server did not know the session, so it did not start the call
	text           atomic.Pointer[string] // the newest progress text; nil after it was read
}

// callKey is the context key of a call in the library's work for it.
type callKey struct{}

// Call calls a tool by its full name. args is a JSON object, or empty. If
// progress is not nil, Call passes it the server's progress texts, from Call's
// own goroutine and at most ten times a second; of several texts in between
// only the last counts.
//
// When ctx ends, the server is told and Call returns the cause of ctx. A
// refusal by the server, or its silence, is a result with IsError.
// ErrUnavailable says that the server could not be reached or was lost; then
// there is no result. If the call was certainly not sent, Call sends it once
// more.
func (s *Set) Call(ctx context.Context, fullName string, args json.RawMessage, progress func(text string)) (Result, error) {
	l, tool := s.find(fullName)
	if l == nil {
		return failure("There is no tool %s, or not any more.", label(fullName)), nil
	}
	args, err := objectOf(args)
	if err != nil {
		return failure("Not called: %v.", err), nil
	}
	if progress == nil {
		progress = func(string) {}
	}
	for again := false; ; again = true {
		session, err := l.connected(ctx)
		if err != nil {
			return Result{}, err
		}
		answer, err := session.call(ctx, tool.Name, args, progress)
		if s.life.Err() != nil && ctx.Err() == nil { // Close cancels questions that the answer may depend on
			return Result{}, l.unavailable(errClosed)
		}
		if err == nil {
			session.useful.Store(true)
			return resultOf(answer), nil
		}
		if unsent(err) && ctx.Err() == nil {
			session.stop(errEnded)
			if !again {
				continue
			}
		}
		return session.verdict(ctx, err)
	}
}

// objectOf returns args as a JSON object.
func objectOf(args json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	switch {
	case len(args) > maxArgs:
		return nil, errors.New("the arguments are too long")
	case len(args) > 0 && json.Unmarshal(args, &fields) != nil:
		return nil, errors.New("the arguments are no JSON object")
	case fields == nil: // empty, or null
		return json.RawMessage("{}"), nil
	}
	return args, nil
}

// unsent reports whether err says that the server did not start the call, as
// far as the library knows.
func unsent(err error) bool {
	return errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, sdk.ErrSessionMissing)
}

// call calls a tool. If the server asks people to visit URLs first, it calls
// the tool again afterwards.
func (s *session) call(ctx context.Context, name string, args json.RawMessage, progress func(string)) (*sdk.CallToolResult, error) {
	for errand := 0; ; errand++ {
		answer, err := s.callOnce(ctx, name, args, progress)
		refused, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok || refused.Code != sdk.CodeURLElicitationRequired || errand >= maxErrands {
			return answer, err
		}
		if err := s.visitURLs(ctx, refused.Data); err != nil {
			return nil, err
		}
	}
}

// callOnce calls a tool and waits for its answer, within the time limits.
func (s *session) callOnce(ctx context.Context, name string, args json.RawMessage, progress func(string)) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(context.Cause(s.stopping)) })()
	c := &call{token: "call-" + strconv.FormatInt(tokens.Add(1), 10)}
	s.link.setCall(c.token, c)
	defer s.link.setCall(c.token, nil)
	ctx = context.WithValue(ctx, callKey{}, c)
	params := &sdk.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken(c.token)
	var answer *sdk.CallToolResult
	var err error
	done := make(chan struct{})
	go func() { // ends with the answer, or soon after ctx
		defer close(done)
		answer, err = s.client.CallTool(ctx, params)
	}()
	s.attend(c, done, cancel, progress)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, errEnded) && c.unknownSession.Load() { // the end of the connection was noticed first
		err = sdk.ErrSessionMissing
	}
	if unsent(err) && (c.begun.Load() || c.sent.Load() && !c.unknownSession.Load()) { // only a repetition was not sent, or the server has got the call
		err = errEnded
	}
	return answer, err
}

// attend passes on progress until done is closed, and cancels a call that takes
// too long.
func (s *session) attend(c *call, done <-chan struct{}, cancel context.CancelCauseFunc, progress func(string)) {
	o := &s.link.set.opts
	began, heard := time.Now(), time.Now()
	pause := time.NewTicker(progressPause)
	defer pause.Stop()
	tell := func() {
		if text := c.text.Swap(nil); text != nil {
			heard = time.Now()
			progress(*text)
		}
	}
	for {
		select {
		case <-done:
			tell() // the last text counts
			return
		case <-pause.C:
		}
		tell()
		asked := s.link.lastQuestion()
		switch {
		case time.Since(heard) < o.callTimeout && time.Since(began) < o.callLimit, time.Since(asked) < o.callTimeout:
		case time.Since(heard) >= o.callTimeout:
			cancel(errSilent)
		default:
			cancel(errEndless)
		}
	}
}

// verdict returns the result or error of a call without an answer.
func (s *session) verdict(ctx context.Context, err error) (Result, error) {
	o := &s.link.set.opts
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case errors.Is(err, errSilent):
		return failure("Cancelled: the tool did not answer and told of no progress for %s.", o.callTimeout), nil
	case errors.Is(err, errEndless):
		return failure("Cancelled: the tool took longer than %s.", o.callLimit), nil
	case errors.Is(err, errDeclined):
		return failure("Not done: %v.", err), nil
	}
	if strings.Contains(err.Error(), rounds) {
		s.link.log.Warn("MCP server needs input that could not be given", "error", s.link.redact(err))
		return failure("Not done, because the server could not be given what it asked for"), nil
	}
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && refused.Code != codeUnsent {
		s.useful.Store(true)
		return failure("The server refused the call: %s", s.link.hide(refused.Message)), nil
	}
	if s.pipe != nil && ended(err) {
		s.stop(errEnded) // in case only the server says that the session ended
		select {         // the reason is known when the session has ended
		case <-s.over:
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
	}
	err = s.reason(err)
	s.link.log.Warn("call of an MCP tool was lost", "error", s.link.redact(err))
	return Result{}, s.link.unavailable(err)
}

// setCall registers a call, or drops it if c is nil.
func (l *link) setCall(token string, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[token] = c; c == nil {
		delete(l.calls, token)
	}
}

// progress handles a progress notification.
func (l *link) progress(p *sdk.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	l.mu.Lock()
	c := l.calls[token]
	l.mu.Unlock()
	if c != nil {
		c.text.Store(new(progressText(p)))
	}
}

// progressText returns progress as text, such as "3/10: reading".
func progressText(p *sdk.ProgressNotificationParams) string {
	text := strconv.FormatFloat(p.Progress, 'g', 6, 64)
	if p.Total > 0 {
		text += "/" + strconv.FormatFloat(p.Total, 'g', 6, 64)
	}
	if p.Message != "" {
		text += ": " + clean(abridge.Head(p.Message, maxProgress))
	}
	return abridge.Head(text, maxProgress)
}
