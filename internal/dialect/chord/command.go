package chord

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// line executes one command.
func (t *Translator) line(out *dialect.Out, text []byte) {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return
	}
	var cmd Command
	if text[0] != '{' || json.Unmarshal(text, &cmd) != nil {
		t.fail(out, "", "invalid JSON command")
		return
	}
	switch cmd.Type {
	case CommandSubscribe:
		t.subscribe(out, cmd.Events)
	case CommandStatus:
		reply(out, TypeStatusResponse, t.status())
	case CommandSend:
		t.send(out, cmd.Content)
	case CommandModels:
		t.models(out, cmd.Action, cmd.Pool)
	case CommandConfirm:
		t.confirm(out, &cmd)
	case CommandQuestion:
		t.answer(out, &cmd)
	case CommandCancel:
		t.cancel(out)
	case CommandHandoff:
		t.fail(out, "", "no matching pending handoff")
	case CommandLocalShell:
		t.emit(out, TypeLocalShellResult, LocalShellResult{
			Command: abridge.Bytes(cmp.Or(cmd.Command, cmd.Content), maxMessage), Failed: true, Error: "local_shell is disabled",
		})
	default:
		t.fail(out, "", "unknown command type: "+cmd.Type)
	}
}

// subscribe replaces the types that the client gets.
func (t *Translator) subscribe(out *dialect.Out, events []string) {
	t.allowed = map[string]bool{}
	effective := []string{}
	for _, kind := range subscribable {
		if slices.Contains(events, kind) {
			t.allowed[kind] = true
			effective = append(effective, kind)
		}
	}
	reply(out, TypeSubscribeResponse, SubscribeResponse{Events: echo(events), Effective: effective})
}

// echo returns the events as requested, without those that would make a line too long.
func echo(events []string) []string {
	size := 0
	for i, e := range events {
		if size += len(dialect.Encode(e)) + 1; size > MaxLine/2 {
			return events[:i]
		}
	}
	return events
}

func (t *Translator) status() Status {
	s := Status{
		SessionID: t.session, Busy: t.busy, Phase: t.phase, PhaseDetail: t.detail,
		LastError: t.lastError, LastOutcome: t.lastOutcome, UpdatedAt: t.updated.UTC().Format(time.RFC3339),
	}
	if r := t.exposed(contracts.RequestApproval); r != nil {
		s.PendingConfirm = r.confirm()
	}
	if r := t.exposed(contracts.RequestUserInput); r != nil {
		s.PendingQuestion = r.question()
	}
	return s
}

// send takes a message for the agent, or executes a slash command.
func (t *Translator) send(out *dialect.Out, content string) {
	if strings.TrimSpace(content) == "" {
		t.fail(out, "empty_message", "content must not be empty")
		return
	}
	if t.slash(out, content) || !t.mayControl(out) {
		return
	}
	size := len(content)
	for _, m := range t.queue {
		size += len(m)
	}
	if len(t.queue) == maxQueued || size > maxQueuedBytes {
		t.fail(out, "queue_full", "too many messages wait for the turn to end")
		return
	}
	t.dismiss(out)
	t.queue = append(t.queue, content)
	t.settle(out)
}

// dismiss denies and cancels all pending requests, because a new message replaces them.
func (t *Translator) dismiss(out *dialect.Out) {
	for _, r := range slices.Clone(t.pending) {
		if r.answered {
			continue
		}
		answer := &contracts.ServerRequestResponse{Reason: superseded}
		if r.kind == contracts.RequestApproval {
			answer.Approved = new(false)
		} else {
			answer.IsError, answer.Reason, answer.Content = true, "", textBlock(superseded)
		}
		t.respond(out, r, answer)
	}
}

const superseded = "superseded by a new message"

// settle sends the next message when the session has no run. If there is none, the turn
// is over.
func (t *Translator) settle(out *dialect.Out) {
	switch {
	case t.running || t.prompt != nil:
	case len(t.queue) > 0:
		content := t.queue[0]
		t.queue = slices.Delete(t.queue, 0, 1)
		t.prompt = &content
		t.enter(out, PhaseConnecting, "")
		t.do(out, &contracts.Prompt{Content: content}, func(out *dialect.Out, refused *contracts.Refusal) {
			t.prompted(out, content, refused)
		})
	case t.busy:
		t.idle(out)
	}
}

// prompted handles the answer to a prompt.
func (t *Translator) prompted(out *dialect.Out, content string, refused *contracts.Refusal) {
	t.prompt = nil
	switch {
	case refused == nil:
		t.running = true // also if its events come later
		return
	case refused.Code == contracts.CodeRuntimeBusy && !t.cancelling: // the run of another client
		t.running = true
		t.queue = slices.Insert(t.queue, 0, content)
		return
	case refused.Code == contracts.CodeRuntimeBusy:
	default:
		t.refuse(out, refused)
		t.failed, t.queue = true, nil
	}
	t.settle(out)
}

// idle ends the turn.
func (t *Translator) idle(out *dialect.Out) {
	t.lastOutcome = OutcomeCompleted
	switch {
	case t.failed:
		t.lastOutcome = OutcomeError
	case t.cancelled:
		t.lastOutcome = OutcomeCancelled
	}
	t.busy, t.failed, t.cancelled, t.cancelling = false, false, false, false
	t.phase, t.detail, t.lastError = "", "", ""
	t.updated = out.Now
	t.stats.turns++
	t.emit(out, TypeIdle, Idle{LastOutcome: t.lastOutcome})
}

// cancel stops the turn. Messages that wait for its end are dropped.
func (t *Translator) cancel(out *dialect.Out) {
	if !t.busy || t.cancelling || !t.mayControl(out) {
		return
	}
	if len(t.queue) > 0 {
		t.info(out, strconv.Itoa(len(t.queue))+" waiting messages were dropped")
		t.queue = nil
	}
	t.cancelling = true
	for _, r := range t.pending {
		r.answered = true // the session cancels them
	}
	t.do(out, &contracts.Interrupt{}, func(out *dialect.Out, refused *contracts.Refusal) {
		if refused == nil {
			return
		}
		t.cancelling = false
		for _, r := range t.pending {
			r.answered = false
		}
		t.refuse(out, refused)
	})
}

// thePool is the only pool of models.
const thePool = "default"

func (t *Translator) models(out *dialect.Out, action, pool string) {
	answer := ModelsResponse{}
	switch {
	case action == "" || action == "status":
		answer.OK = true
	case action != "set_current_model_pool":
		answer.Message = "unsupported models action: " + abridge.Bytes(action, maxMessage)
	case pool == "":
		answer.Message = "models set_current_model_pool requires pool"
	case pool != thePool:
		answer.Message = "unknown model pool: " + abridge.Bytes(pool, maxMessage)
	default:
		answer.OK = true
	}
	if answer.OK {
		answer.Status = t.modelStatus()
	}
	reply(out, TypeModelsResponse, answer)
	if answer.OK && pool != "" && !t.busy {
		t.emit(out, TypeIdle, Idle{SuppressUserNotification: true})
	}
}

func (t *Translator) modelStatus() string {
	return fmt.Sprintf("Current model pool: %s\nModel: %s/%s",
		thePool, abridge.Bytes(t.provider, 256), abridge.Bytes(t.model, 256))
}
