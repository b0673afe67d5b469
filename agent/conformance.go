package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// Bounds of the conformance agent's triggers.
const (
	maxBurst        = 1_000_000
	maxBurstBytes   = 1 << 20 // of one message
	maxBurstTotal   = 1 << 30 // of one burst
	maxStreamChunks = 1_000_000
	maxStreamDelay  = time.Hour
)

// A Conformance is the agent that conformance suites drive. A prompt that is a trigger has a fixed effect; any other prompt is
// echoed in a status.
//
// Its questions outlive the run that asked them. Each has a goroutine, which
// ends with its answer or with Close.
type Conformance struct {
	unconfigured // suites check how the hub handles an init

	profile contracts.Profile
	log     *slog.Logger

	host contracts.Host // set by Start

	life context.Context // ends with Close
	end  context.CancelFunc
	asks sync.WaitGroup // the host bounds the open questions

	flushErr atomic.Pointer[string] // the text of the error of the next Flush; nil for none
}

func newConformance(o Options) contracts.Agent {
	life, end := context.WithCancel(context.Background())
	return &Conformance{profile: o.Profile, log: o.Log, life: life, end: end}
}

// The model and provider that suites expect.
const (
	conformanceModel    = "gpt-5.4"
	conformanceProvider = "openai"
)

// Start keeps host for later runs.
func (c *Conformance) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	c.host = host
	return contracts.AgentInfo{
		Model: conformanceModel, Provider: conformanceProvider, Executor: contracts.ExecutorLive,
		Requests: contracts.RequestTypes(), KeepsRequests: true,
		Immediate: true, Echoes: c.profile == contracts.ProfilePublic,
	}, nil
}

// Check refuses a trigger for a question with malformed arguments before the
// prompt is accepted.
func (c *Conformance) Check(content string) error {
	name, args := trigger(content)
	kind, asks := askedTypes[name]
	if !asks {
		return nil
	}
	_, err := parseRequest(args, kind)
	return err
}

// askedTypes has the triggers for a question, with its type; "" leaves the type
// to the arguments.
var askedTypes = map[string]contracts.RequestType{"approval": contracts.RequestApproval, "server_request": ""}

// trigger splits a prompt that may be a trigger into its name and arguments.
func trigger(content string) (name string, args []byte) {
	rest, ok := strings.CutPrefix(content, "__maestro_conformance_")
	if !ok {
		return "", nil
	}
	name, text, _ := strings.Cut(rest, "__:")
	return name, []byte(text)
}

// triggers maps the name of a trigger to its function.
var triggers = map[string]func(*Conformance, context.Context, []byte) error{
	"approval":       asks(askedTypes["approval"]),
	"server_request": asks(askedTypes["server_request"]),
	"burst":          reads((*Conformance).burst),
	"stream":         reads((*Conformance).stream),
	"hang":           reads((*Conformance).hang),
	"flush_error":    reads((*Conformance).rememberFlushError),
	"client_tools":   (*Conformance).clientTools,
}

// reads returns a trigger whose arguments are the JSON of a T.
func reads[T any](do func(*Conformance, context.Context, T) error) func(*Conformance, context.Context, []byte) error {
	return func(c *Conformance, ctx context.Context, args []byte) error {
		var a T
		if err := json.Unmarshal(args, &a); err != nil {
			return badTrigger(err.Error())
		}
		return do(c, ctx, a)
	}
}

// Run executes the trigger in the prompt. A trigger with malformed or too large
// arguments is refused with bad_request before anything is published.
func (c *Conformance) Run(ctx context.Context, work contracts.Work) error {
	name, args := trigger(work.Content)
	if do := triggers[name]; do != nil {
		return do(c, ctx, args)
	}
	if err := c.host.Publish(ctx, &contracts.Status{Message: "Prompt: " + work.Content}); err != nil {
		return err
	}
	return c.acknowledge(ctx)
}

// acknowledge publishes a small response, so that the prompt has one (R37).
// Suites of the public profile count envelopes and expect none.
func (c *Conformance) acknowledge(ctx context.Context) error {
	if c.profile == contracts.ProfilePublic {
		return nil
	}
	return c.respond(ctx, 1, 0, "Done.")
}

// respond publishes a response of n chunks, with a delay before each. %d in the
// text is the number of the chunk, from 0.
func (c *Conformance) respond(ctx context.Context, n int, delay time.Duration, text string) error {
	turn := turn.New(c.host, conformanceModel, conformanceProvider)
	if err := turn.Start(ctx); err != nil {
		return err
	}
	for i := range n {
		if err := sleep.For(ctx, delay); err != nil {
			return err
		}
		if err := turn.Say(ctx, strings.ReplaceAll(text, "%d", strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return turn.End(ctx, contracts.Usage{InputTokens: 3, OutputTokens: int64(n)})
}

// asks returns a trigger for a question of the given type, or of the type in the
// arguments. It does not wait for the answer.
func asks(kind contracts.RequestType) func(*Conformance, context.Context, []byte) error {
	return func(c *Conformance, ctx context.Context, args []byte) error {
		req, err := parseRequest(args, kind)
		if err == nil {
			err = c.acknowledge(ctx)
		}
		if err != nil {
			return err
		}
		waiting, shown := context.WithCancel(ctx)
		c.asks.Go(func() { c.ask(req, shown) })   // ends with the answer, or with life
		if c.profile == contracts.ProfilePublic { // the run waits until the question has been asked
			<-waiting.Done()
			return ctx.Err()
		}
		return nil
	}
}

// ask asks and handles the answer. If the host refuses the question, it
// publishes an error, because the run may have ended.
func (c *Conformance) ask(req *contracts.ServerRequest, shown func()) {
	defer shown()
	out, err := c.host.Ask(c.life, req, contracts.AskOptions{Opened: shown})
	if err == nil {
		err = c.Resume(c.life, req, out)
	}
	if err == nil || c.life.Err() != nil {
		return
	}
	c.log.Warn("conformance request", "request", req.RequestID, "err", err)
	failed := &contracts.ErrorEvent{Message: "Request failed: " + err.Error(), ErrorType: contracts.ErrorTool}
	if err := c.host.Publish(c.life, failed); err != nil {
		c.log.Debug("conformance request", "request", req.RequestID, "err", err)
	}
}

// Resume ends the call that a question announced (R46), also if the question was
// asked before the server restarted. If the runtime cancelled the question,
// whatever cancelled it has ended the call.
func (c *Conformance) Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error {
	cancelled := out.Verdict == contracts.VerdictCancelled && out.By == contracts.ResolvedByRuntime
	if c.profile == contracts.ProfilePublic || !out.Announced || cancelled {
		return nil
	}
	end := turn.After(req.CallID, out.Verdict)
	if out.Verdict == contracts.VerdictApproved {
		return c.host.Publish(ctx, &contracts.ToolStart{CallID: req.CallID}, end)
	}
	return c.host.Publish(ctx, end)
}

// parseRequest reads a question. Its call_id is its request_id, except for a
// retry that names the call in its arguments.
func parseRequest(args []byte, kind contracts.RequestType) (*contracts.ServerRequest, error) {
	var a struct {
		RequestID   string                `json:"request_id"`
		RequestType contracts.RequestType `json:"request_type"`
		Tool        string                `json:"tool"`
		Args        json.RawMessage       `json:"args"`
		Reason      string                `json:"reason"`
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, badTrigger(err.Error())
	}
	kind = cmp.Or(kind, a.RequestType)
	if len(a.Args) == 0 {
		a.Args = json.RawMessage("{}")
	}
	req := &contracts.ServerRequest{RequestID: a.RequestID, RequestType: kind, CallID: a.RequestID, Tool: a.Tool, Args: a.Args, Reason: a.Reason}
	if kind == contracts.RequestToolRetry {
		var retry struct {
			ToolCallID string `json:"tool_call_id"`
		}
		if json.Unmarshal(a.Args, &retry) == nil && retry.ToolCallID != "" {
			req.CallID = retry.ToolCallID
		}
	}
	if a.RequestID == "" {
		return nil, badTrigger("request_id is missing")
	}
	if err := contracts.ValidateEvent(req); err != nil {
		return nil, badTrigger(err.Error())
	}
	return req, nil
}

// clientTools publishes the names of the tools that the controlling client has
// announced.
func (c *Conformance) clientTools(ctx context.Context, _ []byte) error {
	names := []string{}
	for _, t := range c.host.ClientTools() {
		names = append(names, t.Name)
	}
	text, _ := json.Marshal(names) // texts can be encoded
	if err := c.host.Publish(ctx, &contracts.Status{Message: "Client tools: " + string(text)}); err != nil {
		return err
	}
	return c.acknowledge(ctx)
}

func (c *Conformance) burst(ctx context.Context, a struct{ Count, Bytes int }) error {
	if a.Count < 0 || a.Count > maxBurst || a.Bytes < 0 || a.Bytes > maxBurstBytes || a.Count*a.Bytes > maxBurstTotal {
		return badTrigger("count or bytes is out of bounds")
	}
	out := &batch{Host: c.host}
	message := strings.Repeat("b", a.Bytes)
	for range a.Count {
		if err := out.Publish(ctx, &contracts.Status{Message: message}); err != nil {
			return err
		}
	}
	if err := out.flush(ctx); err != nil {
		return err
	}
	return c.acknowledge(ctx)
}

func (c *Conformance) stream(ctx context.Context, a struct {
	Chunks  int   `json:"chunks"`
	DelayMS int64 `json:"delay_ms"`
}) error {
	if a.Chunks < 0 || a.Chunks > maxStreamChunks || a.DelayMS < 0 || a.DelayMS > maxStreamDelay.Milliseconds() {
		return badTrigger("chunks or delay_ms is out of bounds")
	}
	return c.respond(ctx, a.Chunks, time.Duration(a.DelayMS)*time.Millisecond, "chunk %d ")
}

// hang opens a response that only an interrupt or a drain ends.
func (c *Conformance) hang(ctx context.Context, _ struct{}) error {
	if err := turn.New(c.host, conformanceModel, conformanceProvider).Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (c *Conformance) rememberFlushError(ctx context.Context, a struct{ Message string }) error {
	c.flushErr.Store(&a.Message)
	return c.acknowledge(ctx)
}

// Flush has nothing to save. It fails once if a trigger asked for it.
func (c *Conformance) Flush(context.Context) error {
	if text := c.flushErr.Swap(nil); text != nil {
		return errors.New(*text)
	}
	return nil
}

// Close ends the open questions.
func (c *Conformance) Close(context.Context) error {
	c.end()
	c.asks.Wait()
	return nil
}

func badTrigger(why string) error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Type: contracts.ErrorProtocol, Message: "invalid conformance trigger: " + why}
}
