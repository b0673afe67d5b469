package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

const (
	maxErrands  = 3       // times that a call sends people to an address first
	maxProgress = 1 << 10 // bytes of a text about progress

	// progressPause is the least time between two of them.
	progressPause = 100 * time.Millisecond

	maxArgs = 8 << 20 // bytes
)

// How the library marks errors of its own, which it does not export: what it
// could not send, and answers to calls that it repeats.
const (
	codeUnsent = -32005
	rounds     = "round-trip"
)

// Why a call is cancelled by us.
var (
	errSilent  = errors.New("the tool said nothing for too long")
	errEndless = errors.New("the tool took too long")
)

// tokens makes progress tokens, which have to differ per connection only.
var tokens atomic.Int64

// A call is a tool call under way.
type call struct {
	token string
	news  chan struct{} // 1-buffered: a token means that text is to be looked at; never closed
	sent  atomic.Bool   // the server may have got it
	begun atomic.Bool   // the server has asked for something before it answers
	alien atomic.Bool   // the server did not know the session, and so did not take the call up

	mu   sync.Mutex
	text string // the newest about progress; "" once it was looked at
}

// callKey is the key of a call in the context of what the library does for it.
type callKey struct{}

func (c *call) tell(text string) {
	c.mu.Lock()
	c.text = text
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *call) told() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.text
	c.text = ""
	return text
}

// Call calls a tool by its full name. args is a JSON object, or empty. progress,
// if not nil, gets what the server says about its progress, by the goroutine of
// Call alone and ten times a second at the most; what is said meanwhile is left out
// but for the last.
//
// When ctx ends, the server is told and Call returns the cause of ctx. What the
// server says against the call, or its silence, is a result with IsError.
// ErrUnavailable says that the server was not reached or was lost; then there is
// no result. A call that was certainly not sent is sent once more by itself.
func (s *Set) Call(ctx context.Context, fullName string, args json.RawMessage, progress func(text string)) (Result, error) {
	l, tool, ok := s.find(fullName)
	if !ok {
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
		if s.life.Err() != nil && ctx.Err() == nil { // Close cancels questions, on which an answer may rest
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

// objectOf returns args as the object that a tool gets.
func objectOf(args json.RawMessage) (json.RawMessage, error) {
	if len(args) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(args) > maxArgs {
		return nil, errors.New("the arguments are too long")
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(args, &fields) != nil {
		return nil, errors.New("the arguments are no JSON object")
	}
	if fields == nil {
		return json.RawMessage("{}"), nil // of null
	}
	return args, nil
}

// unsent reports whether err says that the server did not take the call up, as far
// as the library knows.
func unsent(err error) bool {
	return errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, sdk.ErrSessionMissing)
}

// call calls a tool and, if the server sends people to an address first, calls it
// again afterwards.
func (s *session) call(ctx context.Context, name string, args json.RawMessage, progress func(string)) (*sdk.CallToolResult, error) {
	for errand := 0; ; errand++ {
		answer, err := s.callOnce(ctx, name, args, progress)
		refused, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok || refused.Code != sdk.CodeURLElicitationRequired || errand >= maxErrands {
			return answer, err
		}
		if err := s.errand(ctx, refused.Data); err != nil {
			return nil, err
		}
	}
}

// callOnce calls a tool and waits for its answer, as long as it shows life.
func (s *session) callOnce(ctx context.Context, name string, args json.RawMessage, progress func(string)) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	free := context.AfterFunc(s.stopping, func() { cancel(context.Cause(s.stopping)) })
	defer free()
	c := s.link.begin()
	defer s.link.finish(c)

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
	if errors.Is(err, errEnded) && c.alien.Load() { // the end of the connection was seen first
		err = sdk.ErrSessionMissing
	}
	if unsent(err) && (c.begun.Load() || c.sent.Load() && !c.alien.Load()) { // only the repetition was not sent, or that is what the server says
		err = errEnded
	}
	return answer, err
}

// attend passes on progress until done is closed, and cancels a call that takes
// too long.
func (s *session) attend(c *call, done <-chan struct{}, cancel context.CancelCauseFunc, progress func(string)) {
	o := &s.link.set.opts
	heard := time.Now()
	news, pause := c.news, time.NewTimer(0)
	defer pause.Stop()
	silence, limit := time.NewTimer(o.CallTimeout), time.NewTimer(o.CallLimit)
	defer silence.Stop()
	defer limit.Stop()
	for {
		select {
		case <-done:
			if text := c.told(); text != "" { // the last one counts
				progress(text)
			}
			return
		case <-news:
			heard = time.Now()
			if text := c.told(); text != "" {
				progress(text)
			}
			news = nil
			pause.Reset(progressPause)
		case <-pause.C:
			news = c.news
		case <-silence.C:
			last := heard
			if asked := s.link.asked(); asked.After(last) {
				last = asked
			}
			if left := o.CallTimeout - time.Since(last); left > 0 {
				silence.Reset(left)
				continue
			}
			cancel(errSilent)
		case <-limit.C:
			if time.Since(s.link.asked()) < o.CallTimeout {
				limit.Reset(o.CallTimeout)
				continue
			}
			cancel(errEndless)
		}
	}
}

// verdict is what comes of a call that was not answered.
func (s *session) verdict(ctx context.Context, err error) (Result, error) {
	o := &s.link.set.opts
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case errors.Is(err, errSilent):
		return failure("Cancelled: the tool did not answer and told of no progress for %s.", o.CallTimeout), nil
	case errors.Is(err, errEndless):
		return failure("Cancelled: the tool took longer than %s.", o.CallLimit), nil
	case errors.Is(err, errDeclined):
		return failure("Not done: %v.", err), nil
	}
	if strings.Contains(err.Error(), rounds) {
		s.link.log.Warn("MCP server asked for what it could not be given", "error", s.link.redact(err))
		return failure("Not done, because the server could not be given what it asked for"), nil
	}
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && refused.Code != codeUnsent {
		s.useful.Store(true)
		return failure("The server refused the call: %s", s.link.hide(refused.Message)), nil
	}
	if s.pipe != nil && ended(err) {
		s.stop(errEnded) // perhaps the server only says so
		select {         // the reason is known when nothing of the session is left
		case <-s.over:
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
	}
	err = s.reason(err)
	s.link.log.Warn("call of an MCP tool is lost", "error", s.link.redact(err))
	return Result{}, s.link.unavailable(err)
}

// begin makes room for a call.
func (l *link) begin() *call {
	c := &call{token: "call-" + strconv.FormatInt(tokens.Add(1), 10), news: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[c.token] = c
	return c
}

func (l *link) finish(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, c.token)
}

// progress takes in what the server says about a call.
func (s *session) progress(p *sdk.ProgressNotificationParams) {
	token, ok := p.ProgressToken.(string)
	if !ok {
		return
	}
	s.link.mu.Lock()
	c := s.link.calls[token]
	s.link.mu.Unlock()
	if c != nil {
		c.tell(progressText(p))
	}
}

// progressText returns progress in words, such as "3/10: reading".
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

// completed takes in that people have finished what they were sent away for.
func (s *session) completed(elicitationID string) { s.link.completed(elicitationID) }
