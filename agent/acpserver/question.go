package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

const (
	// maxAsked bounds the questions that wait at the editor. More wait at the
	// server until one of those is resolved.
	maxAsked = 32

	maxOptions = 32 // of one question; more are not offered
)

// errUnreadable is for people, who do not know the types of the protocol.
var errUnreadable = errors.New("its answer cannot be read")

// The options of an approval whose agent offers none.
var yesOrNo = contracts.ApprovalOptions{
	{ID: "allow", Name: "Allow", Kind: string(acp.PermissionOptionKindAllowOnce)},
	{ID: "reject", Name: "Reject", Kind: string(acp.PermissionOptionKindRejectOnce)},
}

// mattersToQuestions reports whether an update can change what is to be asked, or
// who may answer.
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

// mayAnswer reports whether the server would take an answer of ours.
func (a *attachment) mayAnswer(st *contracts.State) bool {
	holder := holderOf(st)
	return !a.peer.View && (holder == "" || holder == a.client.Attached().ConnectionID)
}

// tellHolder tells the editor when somebody else takes control.
func (a *attachment) tellHolder() {
	st := a.fold.Snapshot(0).State
	holder := holderOf(&st)
	if holder == a.holder {
		return
	}
	a.holder = holder
	if holder != "" && holder != a.client.Attached().ConnectionID {
		a.notice(fmt.Sprintf("%s is in control of this session.", nameOf(&st, holder)))
	}
}

// control tells of somebody who wants control from us.
func (a *attachment) control(f contracts.Frame) {
	ask, ok := f.(*contracts.ControlRequest)
	if !ok {
		return
	}
	name := ask.ConnectionID
	if ask.ClientInfo != nil {
		name = abridge.Head(ask.ClientInfo.Name, maxName)
	}
	a.notice(fmt.Sprintf("%s asks for control: send /%s to give it up.", name, commandRelease))
}

// questioned announces the call that a question is about, where nothing else does.
func (a *attachment) questioned(e *contracts.ServerRequest) {
	if e.RequestType != contracts.RequestToolRetry {
		a.called(e.CallID, e.Tool, e.Args)
	}
}

// resolved shows why a question ended without a yes.
func (a *attachment) resolved(e *contracts.ServerRequestResolved) {
	c := a.calls[e.CallID]
	if c == nil || e.Reason == "" {
		return
	}
	switch e.Resolution {
	case contracts.VerdictDenied, contracts.VerdictFailed, contracts.VerdictCancelled:
		c.append("[" + string(e.Resolution) + ": " + reasonOf(e.Reason) + "]\n")
	}
}

// reasonOf returns what people are told of a reason, which may be more than words.
func reasonOf(text string) string {
	if w, err := contracts.ParseAnswerNote(text); err == nil && w.OptionID != "" {
		return "as chosen"
	}
	return text
}

// reconcile puts to the editor what waits for an answer and can be answered from
// here, and withdraws what cannot or need not be any more.
func (a *attachment) reconcile() {
	st := a.fold.Snapshot(0).State
	wanted := map[string]contracts.PendingRequest{}
	if a.mayAnswer(&st) {
		for _, r := range st.PendingRequests {
			if a.canAsk(r.Kind) {
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

// canAsk reports whether the editor can be asked such a question.
func (a *attachment) canAsk(kind contracts.RequestType) bool {
	switch kind {
	case contracts.RequestApproval:
		return true
	case contracts.RequestUserInput:
		return a.peer.form
	case contracts.RequestMCPElicitation:
		return a.peer.form || a.peer.url
	}
	return false
}

// ask puts a question to the editor. a.mu is held.
func (a *attachment) ask(r contracts.PendingRequest) {
	ctx, stop := context.WithCancel(a.ctx)
	a.asked[r.ID] = stop
	status, known := acp.ToolCallStatusPending, a.calls[r.CallID]
	if known != nil {
		status = known.status
	}
	a.asking.Go(func() { // ends with the answer, or when the question is withdrawn
		defer stop()
		answer, err := a.put(ctx, r, status)
		if ctx.Err() != nil {
			return // it was withdrawn, and what the editor says is nobody's answer
		}
		if err != nil {
			a.notice("The question waits for an answer, which this editor did not give: " + err.Error())
			return
		}
		if answer == nil { // the editor says that the prompt was cancelled
			if !a.cancelTurn(nil) {
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

// reply sends an answer. One that was lost with its connection is sent again, as
// long as its question waits: if the server had taken it, the second is too late
// and changes nothing.
func (a *attachment) reply(ctx context.Context, answer *contracts.ServerRequestResponse) {
	_, err := a.tell(answer)
	for errors.Is(err, client.ErrAnswerLost) && ctx.Err() == nil {
		_, err = a.tell(answer)
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound}) {
		return
	}
	a.notice("The answer was not taken: " + a.blame(err).Error())
}

// permission asks whether a call may go on.
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
	shown := &call{diff: in.Details.Diff}
	raw, err := a.peer.call(ctx, acp.ClientMethodSessionRequestPermission, acp.RequestPermissionRequest{
		SessionId: a.id, Options: offered,
		ToolCall: acp.ToolCallUpdate{
			ToolCallId: acp.ToolCallId(r.CallID), Title: &title, Kind: &kind, Status: &status,
			RawInput: rawInput(r.Args), Content: shown.content(), Locations: in.locations(a.client.State().Cwd),
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

// choose makes an answer of the option that was selected. Which one is said only
// where it says more than the verdict.
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
