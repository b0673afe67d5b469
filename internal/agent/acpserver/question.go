package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

const (
	// maxAsked bounds the editor's open questions. Further ones wait at the
	// server until one is resolved.
	maxAsked = 32

	maxOptions = 32 // options of one question; further ones are not offered
)

// errUnreadable is for people, who do not know the protocol's types.
var errUnreadable = errors.New("its answer cannot be read")

// The options of an approval without options of its own.
var yesOrNo = contracts.ApprovalOptions{
	{ID: "allow", Name: "Allow", Kind: string(acp.PermissionOptionKindAllowOnce)},
	{ID: "reject", Name: "Reject", Kind: string(acp.PermissionOptionKindRejectOnce)},
}

// mattersToQuestions reports whether an update can change the open questions,
// or who may answer them.
func mattersToQuestions(u client.Update) bool {
	switch u.Kind {
	case client.KindEvent:
		switch u.Event.(type) {
		case *contracts.ServerRequest, *contracts.ServerRequestResolved, *contracts.ToolEnd, *contracts.ConnectionInfo, *contracts.HelloOK:
			return true
		}
		return false
	case client.KindHeartbeat, client.KindUnknown, client.KindDisconnected:
		return false
	}
	return true
}

// resolved adds the reason of a question that was not approved to the output of
// its call.
func (a *attachment) resolved(e *contracts.ServerRequestResolved) {
	c := a.calls[e.CallID]
	if c == nil || e.Reason == "" {
		return
	}
	switch e.Resolution {
	case contracts.VerdictDenied, contracts.VerdictFailed, contracts.VerdictCancelled:
		reason := e.Reason
		if w, err := contracts.ParseAnswerNote(reason); err == nil && w.OptionID != "" {
			reason = "as chosen" // the note is not for people
		}
		c.append("[" + string(e.Resolution) + ": " + reason + "]\n")
	}
}

// answerable returns the kinds of questions that the editor supports and may answer.
func (p *peer) answerable() []contracts.RequestType {
	if !p.Approve {
		return p.kinds
	}
	return slices.DeleteFunc(slices.Clone(p.kinds), func(kind contracts.RequestType) bool {
		return kind == contracts.RequestMCPElicitation
	})
}

// reconcile tells the editor when another client takes control. It asks the
// editor the open questions that it can answer, and withdraws the others.
func (a *attachment) reconcile() {
	st := a.fold.Snapshot(0).State
	holder := holderOf(&st)
	mine := holder == "" || holder == a.client.Attached().ConnectionID
	if holder != a.holder && !mine {
		a.notice(fmt.Sprintf("%s is in control of this session.", nameOf(&st, holder)))
	}
	a.holder = holder
	wanted := map[string]contracts.PendingRequest{}
	if !a.peer.View && (mine || a.peer.Approve) { // the server would accept an answer
		kinds := a.peer.answerable()
		for _, r := range st.PendingRequests {
			if slices.Contains(kinds, r.Kind) {
				wanted[r.ID] = r
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, withdraw := range a.asked {
		if _, still := wanted[id]; !still {
			withdraw()
			delete(a.asked, id)
		}
	}
	for _, r := range st.PendingRequests {
		if _, want := wanted[r.ID]; want && a.asked[r.ID] == nil && len(a.asked) < maxAsked {
			a.ask(r)
		}
	}
}

// ask asks the editor a question. The caller holds a.mu.
func (a *attachment) ask(r contracts.PendingRequest) {
	ctx, stop := context.WithCancel(a.ctx)
	a.asked[r.ID] = stop
	status, known := acp.ToolCallStatusPending, a.calls[r.CallID]
	if known != nil {
		status = known.status
	}
	a.asking.Go(func() { // ends with the answer, or when the question is withdrawn
		defer a.peer.contain()
		defer stop()
		answer, err := a.put(ctx, r, status)
		if ctx.Err() != nil {
			return // the question was withdrawn, so the answer is dropped
		}
		if err != nil {
			a.notice("The question waits for an answer, which this editor did not give: " + err.Error())
			return
		}
		if answer == nil { // the editor says that the prompt was cancelled
			if a.cancelTurn() == nil {
				a.notice("The question waits for an answer: it belongs to no prompt of this editor that could be cancelled.")
			}
			return
		}
		a.reply(ctx, answer)
	})
}

// put asks the editor and returns its answer, nil if it cancelled the prompt.
func (a *attachment) put(ctx context.Context, r contracts.PendingRequest, status acp.ToolCallStatus) (*contracts.ServerRequestResponse, error) {
	answer := &contracts.ServerRequestResponse{RequestID: r.ID, RequestType: r.Kind}
	switch r.Kind {
	case contracts.RequestApproval:
		return a.permission(ctx, r, status, answer)
	case contracts.RequestUserInput:
		return a.input(ctx, r, answer)
	default:
		return a.elicitation(ctx, r, answer)
	}
}

// reply sends an answer. If the connection was lost before the server confirmed
// it, it sends the answer again while the question is open. If the server had
// accepted the first one, the second has no effect.
func (a *attachment) reply(ctx context.Context, answer *contracts.ServerRequestResponse) {
	_, err := a.tell(answer)
	for errors.Is(err, client.ErrAnswerLost) && ctx.Err() == nil {
		_, err = a.tell(answer)
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound}) {
		return
	}
	a.notice("The answer was not taken: " + a.explain(err).Error())
}

// permission asks whether a call may run.
func (a *attachment) permission(ctx context.Context, r contracts.PendingRequest, status acp.ToolCallStatus, answer *contracts.ServerRequestResponse) (*contracts.ServerRequestResponse, error) {
	in := inputsOf(r.Args)
	options := in.Details.Options
	if len(options) == 0 {
		options = yesOrNo
	}
	options = options[:min(len(options), maxOptions)]
	offered := make([]acp.PermissionOption, len(options))
	for i, o := range options {
		offered[i] = acp.PermissionOption{OptionId: acp.PermissionOptionId(o.ID), Name: o.Name, Kind: acp.PermissionOptionKind(o.Kind)}
	}
	title, kind := in.title(r.Tool), in.kind(r.Tool)
	raw, err := a.peer.conn.Call(ctx, acp.ClientMethodSessionRequestPermission, acp.RequestPermissionRequest{
		SessionId: a.id, Options: offered,
		ToolCall: acp.ToolCallUpdate{
			ToolCallId: acp.ToolCallId(r.CallID), Title: &title, Kind: &kind, Status: &status,
			RawInput: rawInput(r.Args), Content: in.toApprove(r.Tool, r.Args), Locations: in.locations(a.client.State().Cwd),
		},
	})
	if err != nil {
		return nil, err
	}
	var chosen struct {
		Outcome struct {
			Outcome  string `json:"outcome"`
			OptionID string `json:"optionId"`
		} `json:"outcome"`
	}
	if err := json.Unmarshal(raw, &chosen); err != nil {
		return nil, errUnreadable
	}
	switch chosen.Outcome.Outcome {
	case "cancelled":
		return nil, nil
	case "selected":
		return choose(options, chosen.Outcome.OptionID, answer)
	}
	return nil, fmt.Errorf("its answer is neither selected nor cancelled but %q", abridge.Head(chosen.Outcome.Outcome, maxName))
}

// choose returns the answer for the selected option. It names the option unless
// the options are the default ones, where the verdict says all.
func choose(options contracts.ApprovalOptions, id string, answer *contracts.ServerRequestResponse) (*contracts.ServerRequestResponse, error) {
	i := options.Index(id)
	if i < 0 {
		return nil, fmt.Errorf("it selected %q, which was not offered", abridge.Head(id, maxName))
	}
	approved := options[i].Allows()
	answer.Approved = &approved
	if &options[0] == &yesOrNo[0] {
		return answer, nil
	}
	w := contracts.AnswerNote{OptionID: id}
	if options[i].Always() {
		w.Remember = contracts.RememberSession
	}
	answer.Reason = w.String()
	answer.Content = []contracts.ContentBlock{{Type: "text", Text: answer.Reason}}
	return answer, nil
}
