package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
)

// withdrawn is the reason of a question that its server has withdrawn.
const withdrawn = "The MCP server does not wait for an answer any more"

// Bounds on a question.
const (
	maxElicitID    = 256
	maxElsewhere   = 16 // URLs that one call may ask people to visit
	elsewhereLimit = 30 * time.Minute
	endTime        = 5 * time.Second // time to publish the end of a question
)

// errDeclined says that people did not do what a server required first.
var errDeclined = errors.New("what the server asked for first was not accepted")

// elicit asks people a question of a server. The server may have sent it as a
// request or as the answer to a call; the library handles both alike. The
// result is the people's answer or a cancellation; clients are told of a
// cancellation unless they chose it. When ctx ends, the server has withdrawn
// the question.
func (s *session) elicit(ctx context.Context, p *sdk.ElicitParams) *sdk.ElicitResult {
	result, why := s.ask(ctx, p)
	if why != "" {
		s.link.say("asked for input and was told that it is cancelled: "+label(s.link.hide(why)), nil)
	}
	if result == nil {
		return &sdk.ElicitResult{Action: elicit.Cancel}
	}
	return result
}

// ask returns an answer, or nil and the reason, which is "" if clients know it
// already.
func (s *session) ask(ctx context.Context, p *sdk.ElicitParams) (answer *sdk.ElicitResult, why string) {
	l := s.link
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.begun.Store(true)
	}
	select {
	case l.set.questions <- struct{}{}:
		defer func() { <-l.set.questions }()
	default:
		return nil, "too many questions are open"
	}
	if !l.beginQuestion() {
		return nil, "it asks too often"
	}
	defer l.endQuestion()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)() // a server that has gone does not wait either
	q, err := newQuestion(l.server.Name, p)
	if err != nil {
		return nil, err.Error()
	}
	said, out, why, err := q.Put(elicit.FromServer, func(req *contracts.ServerRequest) (contracts.Outcome, error) {
		return s.put(ctx, req)
	})
	switch {
	case said != nil:
		return &sdk.ElicitResult{Action: said.Action, Content: said.Values}, ""
	case err != nil && ctx.Err() != nil, err == nil && out.By == contracts.ResolvedByRuntime:
		return nil, "" // the server has withdrawn it, or it ended with its run, which clients have seen
	case err != nil:
		l.log.Warn("cannot ask a question of an MCP server", "error", err)
		return nil, "the question could not be put"
	}
	return nil, why
}

// put asks the question and waits for its end. It publishes the end of the
// question's call, unless the hub has ended the question with its run and so
// the call too.
func (s *session) put(ctx context.Context, req *contracts.ServerRequest) (contracts.Outcome, error) {
	host := s.link.set.opts.Host
	shown, stop := false, func() bool { return true }
	out, err := host.Ask(s.link.set.life, req, contracts.AskOptions{Opened: func() {
		shown = true
		stop = context.AfterFunc(ctx, func() {
			host.Withdraw(req.RequestID, contracts.VerdictCancelled, withdrawn, contracts.ResolvedByRuntime)
		})
	}})
	stop()
	if out.Announced && (out.By != contracts.ResolvedByRuntime || out.Reason == withdrawn) || err != nil && shown {
		end, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if err := host.Publish(end, &contracts.ToolEnd{CallID: req.CallID, Success: out.Verdict == contracts.VerdictAnswered}); err != nil {
			s.link.log.Debug("cannot publish the end of a question", "error", err)
		}
	}
	return out, err
}

// newQuestion returns a checked question.
func newQuestion(server string, p *sdk.ElicitParams) (*elicit.Question, error) {
	if p == nil {
		return nil, errors.New("the question is empty")
	}
	schema, err := json.Marshal(p.RequestedSchema) // null if there is none
	if err != nil {
		return nil, errors.New("the form is not understood")
	}
	q := &elicit.Question{Mode: p.Mode, Message: p.Message, RequestedSchema: schema, URL: p.URL, ElicitationID: p.ElicitationID}
	return q, q.Check(server)
}

// refuseSampling refuses a server's request to the model. Sampling was not
// offered to the server.
func (s *session) refuseSampling(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if method != methodSampling {
			return next(ctx, method, req)
		}
		s.link.say("wanted to ask the model, which is not offered", nil)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "sampling is not offered"}
	}
}

// visitURLs asks people to visit the URLs that the server requires before a call,
// and waits until the server says that they have finished.
func (s *session) visitURLs(ctx context.Context, data json.RawMessage) error {
	var wanted struct {
		Elicitations []*sdk.ElicitParams `json:"elicitations"`
	}
	if json.Unmarshal(data, &wanted) != nil || len(wanted.Elicitations) == 0 || len(wanted.Elicitations) > maxElsewhere {
		return fmt.Errorf("%w: it did not say what", errDeclined)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, elsewhereLimit, fmt.Errorf("%w in time", errDeclined))
	defer cancel()
	var done []<-chan struct{}
	for _, p := range wanted.Elicitations {
		if p == nil {
			return fmt.Errorf("%w: it did not say what", errDeclined)
		}
		finished, forget := s.link.await(abridge.Head(p.ElicitationID, maxElicitID)) // before people are asked, so that the end is not missed
		defer forget()
		p.Mode = elicit.ModeURL
		if s.elicit(ctx, p).Action != elicit.Accept {
			return errDeclined
		}
		if p.ElicitationID != "" {
			done = append(done, finished)
		}
	}
	for _, finished := range done {
		select {
		case <-finished:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.stopping.Done():
			return errEnded
		}
	}
	return nil
}
