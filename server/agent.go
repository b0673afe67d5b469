package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
)

// AgentFunc returns a value for Options.NewAgent: agents that call run for each prompt. Runs
// of one session never overlap. name is what clients are shown as the model.
//
// ctx ends when a client interrupts the run; run must then return soon. If run returns an
// error, clients see its text and the run counts as failed.
func AgentFunc(name string, run func(ctx context.Context, r *Run) error) func(Session) (contracts.Agent, error) {
	return func(Session) (contracts.Agent, error) {
		if run == nil {
			return nil, fmt.Errorf("server.AgentFunc(%q, nil): the function is nil", name)
		}
		return &funcAgent{name: name, run: run}, nil
	}
}

// ErrNotApproved is the error of [Run.Call] if the clients did not approve the call.
var ErrNotApproved = errors.New("the call was not approved")

// A Run is one prompt of a session, while an agent of [AgentFunc] serves it. It is not
// safe for concurrent use, but its Host is.
type Run struct {
	contracts.Work                // the prompt
	Host           contracts.Host // publishes other events and asks other questions

	turn *turn.Turn
}

// Say appends text to the answer.
func (r *Run) Say(ctx context.Context, text string) error { return r.turn.Say(ctx, text) }

// Think appends text to the reasoning, which clients show apart from the answer.
func (r *Run) Think(ctx context.Context, text string) error { return r.turn.Think(ctx, text) }

// Call shows a call of a tool with args, which encoding/json encodes, and asks the clients
// to approve it. reason says what the call can do. If they approve it, Call calls do and
// shows the text that do returns as the output of the tool. Call returns what do returns,
// or ErrNotApproved. It waits as long as the question may stay open.
//
// The question is subject to the approval mode of the session, which a controller can set:
// with "auto" Call calls do without a question, with "fail" it returns ErrNotApproved
// without one. Check in do what no controller may do.
func (r *Run) Call(ctx context.Context, tool string, args any, reason string, do func(context.Context) (string, error)) (string, error) {
	if do == nil {
		return "", fmt.Errorf("Run.Call of %s: the function is nil", tool)
	}
	text, err := json.Marshal(args)
	if err != nil {
		return "", fmt.Errorf("args of %s: %w", tool, err)
	}
	id := turn.ID("call_")
	out, err := r.Host.Ask(ctx, &contracts.ServerRequest{
		RequestID: id, RequestType: contracts.RequestApproval, CallID: id, Tool: tool, Args: text, Reason: reason,
	}, contracts.AskOptions{})
	if err == nil && !out.Announced { // policy decided, and clients have not seen the call
		err = r.Host.Publish(ctx, &contracts.ToolCall{CallID: id, Tool: tool, Args: text})
	}
	if err != nil {
		return "", err
	}
	if out.Verdict != contracts.VerdictApproved {
		r.turn.Finished(tool, false, "")
		return "", errors.Join(ErrNotApproved, r.Host.Publish(ctx, turn.After(id, out.Verdict)))
	}
	if err := r.Host.Publish(ctx, &contracts.ToolStart{CallID: id}); err != nil {
		return "", err
	}
	said, failed := do(ctx)
	r.turn.Finished(tool, failed == nil, "")
	events := []contracts.Event{&contracts.ToolEnd{CallID: id, Success: failed == nil}}
	if said != "" {
		events = append([]contracts.Event{&contracts.ToolOutput{CallID: id, Content: said}}, events...)
	}
	return said, errors.Join(failed, r.Host.Publish(ctx, events...))
}

// A funcAgent calls a function for each prompt.
type funcAgent struct {
	name string
	run  func(context.Context, *Run) error
	host contracts.Host // set by Start
}

func (a *funcAgent) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	a.host = host
	return contracts.AgentInfo{
		Model: a.name, Provider: a.name, Executor: contracts.ExecutorLive, Requests: contracts.RequestTypes(),
		Forgets: true, // the function that asked ends with the process
	}, nil
}

func (a *funcAgent) Configure(*contracts.Init) {}

func (a *funcAgent) Run(ctx context.Context, work contracts.Work) error {
	r := &Run{Work: work, Host: a.host, turn: turn.New(a.host, a.name, a.name)}
	if err := r.turn.Start(ctx); err != nil {
		return err
	}
	if err := a.run(ctx, r); err != nil {
		return err // the hub closes the response
	}
	return r.turn.End(ctx, contracts.Usage{})
}

func (a *funcAgent) Close(context.Context) error { return nil }
