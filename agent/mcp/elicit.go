package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
)

// Words of an elicitation.
const (
	elicitTool    = "mcp_elicitation"
	elicitReason  = "MCP server requested additional user input"
	withdrawn     = "The MCP server does not wait for an answer any more"
	modeForm      = "form"
	modeURL       = "url"
	actionAccept  = "accept"
	actionDecline = "decline"
	actionCancel  = "cancel"
)

// Bounds on a question.
const (
	maxMessage     = 16 << 10
	maxFormBytes   = 128 << 10
	maxURLBytes    = 8 << 10
	maxElicitID    = 256
	maxElsewhere   = 16 // addresses that one call may send people to
	elsewhereLimit = 30 * time.Minute
	endTime        = 5 * time.Second // for the end of a question to be shown
)

// errDeclined says that people did not do what a server wanted first.
var errDeclined = errors.New("what the server asked for first was not accepted")

// A question is what clients are told of an elicitation.
type question struct {
	ServerName      string          `json:"serverName"`
	RequestID       string          `json:"requestId"`
	Mode            string          `json:"mode"`
	Message         string          `json:"message"`
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"`
	URL             string          `json:"url,omitempty"`
	ElicitationID   string          `json:"elicitationId,omitempty"`
}

// elicit asks people what a server wants to know, whether it pushed the question
// or gave it as the answer to a call: the library makes one of both. The answer
// is theirs or a cancellation, which is said in the open unless they chose it.
// When ctx ends, the server has withdrawn the question.
func (s *session) elicit(ctx context.Context, p *sdk.ElicitParams) *sdk.ElicitResult {
	result, why := s.ask(ctx, p)
	if why != "" {
		s.link.say("MCP server %q asked for input and was told that it is cancelled: %s", s.link.server.Name, s.link.redact(errors.New(why)))
	}
	if result == nil {
		return &sdk.ElicitResult{Action: actionCancel}
	}
	return result
}

// ask returns an answer, or nil and why there is none: "" if that is known
// anyway.
func (s *session) ask(ctx context.Context, p *sdk.ElicitParams) (answer *sdk.ElicitResult, why string) {
	l := s.link
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.begun.Store(true)
	}
	if l.set.opts.Host == nil {
		return nil, "nobody is there to be asked"
	}
	select {
	case l.set.questions <- struct{}{}:
		defer func() { <-l.set.questions }()
	default:
		return nil, "too many questions are open"
	}
	l.asks(1)
	defer l.asks(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)() // who is gone does not wait either
	q, err := newQuestion(l.server.Name, p)
	if err != nil {
		return nil, err.Error()
	}
	args, err := json.Marshal(q)
	if err != nil {
		return nil, "the question cannot be shown"
	}
	id := elicitTool + ":" + l.server.Name + ":" + q.RequestID
	out, err := s.put(ctx, &contracts.ServerRequest{
		RequestID: id, RequestType: contracts.RequestMCPElicitation, CallID: id,
		Tool: elicitTool, Args: args, Reason: elicitReason,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, "" // nobody waits for it
	case err != nil:
		l.log.Warn("ask people for an MCP server", "error", err)
		return nil, "the question could not be put"
	case out.Verdict == contracts.VerdictAnswered:
		return answerOf(q, out.Content)
	case out.By == contracts.ResolvedByRuntime:
		return nil, "" // with the run, which clients were shown
	}
	return nil, out.Reason
}

// put puts the question and waits for its end, and shows the end of the call that
// a question is. Where the hub has ended the question with its run, it ends the
// call as well.
func (s *session) put(ctx context.Context, req *contracts.ServerRequest) (contracts.Outcome, error) {
	host := s.link.set.opts.Host
	var shown, ours bool // it was shown; it was us who ended it
	release := func() {}
	out, err := host.Ask(s.link.set.life, req, contracts.AskOptions{Opened: func() {
		shown = true
		gone := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(gone)
			ours = host.Withdraw(req.RequestID, contracts.VerdictCancelled, withdrawn, contracts.ResolvedByRuntime)
		})
		release = func() {
			if !stop() {
				<-gone
			}
		}
	}})
	release()
	over := out.Announced && (ours || out.By != contracts.ResolvedByRuntime)
	if over || err != nil && shown {
		end, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if err := host.Publish(end, &contracts.ToolEnd{CallID: req.CallID, Success: out.Verdict == contracts.VerdictAnswered}); err != nil {
			s.link.log.Debug("publish the end of a question", "error", err)
		}
	}
	return out, err
}

// newQuestion makes a question that clients can show. The id is ours: those of a
// server begin anew with every connection.
func newQuestion(server string, p *sdk.ElicitParams) (*question, error) {
	if p == nil {
		return nil, errors.New("the question is empty")
	}
	q := &question{
		ServerName: server, RequestID: strings.ToLower(rand.Text())[:16], Mode: p.Mode,
		Message: cut(strings.ToValidUTF8(p.Message, "\uFFFD"), maxMessage),
	}
	switch q.Mode {
	case "", modeForm:
		q.Mode = modeForm
		return q, q.form(p)
	case modeURL:
		return q, q.elsewhere(p)
	}
	return nil, errors.New("the question is of an unknown kind")
}

func (q *question) form(p *sdk.ElicitParams) error {
	if p.RequestedSchema == nil {
		return nil
	}
	if refers(p.RequestedSchema) {
		return errors.New("the form refers to itself or to another, as forms may not")
	}
	schema, err := json.Marshal(p.RequestedSchema)
	if err != nil || len(schema) > maxFormBytes {
		return errors.New("the form is too long")
	}
	q.RequestedSchema = schema
	return nil
}

// refers reports whether a schema has a reference anywhere. Forms are flat and
// have none; one that refers to itself would be followed without end, by the
// library as well, if an answer to it were accepted.
func refers(schema any) bool {
	switch v := schema.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.HasSuffix(strings.ToLower(key), "ref") && strings.HasPrefix(key, "$") || refers(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}

// elsewhere takes an address that people are to visit. Only those of the web are
// shown: a client might open others with more rights than a page has.
func (q *question) elsewhere(p *sdk.ElicitParams) error {
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(p.URL) > maxURLBytes {
		return errors.New("it wanted an address opened that is none of the web, or too long")
	}
	q.URL, q.ElicitationID = p.URL, cut(p.ElicitationID, maxElicitID)
	return nil
}

// refuseSampling refuses to ask a model on behalf of a server, which was not told
// that it might.
func (s *session) refuseSampling(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if method != methodSampling {
			return next(ctx, method, req)
		}
		s.link.say("MCP server %q wanted to ask the model, which is not offered", s.link.server.Name)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "sampling is not offered"}
	}
}

// errand asks people to visit the addresses without which the server refuses a
// call, and waits until it says that they have finished there.
func (s *session) errand(ctx context.Context, data json.RawMessage) error {
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
		finished, forget := s.link.await(cut(p.ElicitationID, maxElicitID)) // before people are asked, lest it be missed
		defer forget()
		p.Mode = modeURL
		if s.elicit(ctx, p).Action != actionAccept {
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
