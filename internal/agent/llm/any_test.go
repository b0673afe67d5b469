package llm

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// anyPart is something that a model may say, sensible or not.
func anyPart(t *rapid.T) model.Part {
	text := rapid.SampledFrom([]string{"", " \n", "words", "é\xff"})
	switch rapid.IntRange(0, 3).Draw(t, "part") {
	case 0:
		said := text.Draw(t, "text")
		return model.Part{Text: &said}
	case 1:
		opaque := rapid.SampledFrom([]string{"", `{"a":1}`, "{"}).Draw(t, "opaque")
		return model.Part{Thinking: &model.Thinking{Text: text.Draw(t, "thought"), Opaque: json.RawMessage(opaque)}}
	}
	return model.Part{Call: &model.Call{
		ID:   rapid.SampledFrom([]string{"", "a", "b", "c", "ü", "call_1"}).Draw(t, "id"),
		Tool: rapid.SampledFrom([]string{"bash", "read", "flaky", "ask_user", "client", "fly", ""}).Draw(t, "tool"),
		Args: json.RawMessage(rapid.SampledFrom([]string{
			"", "{", "null", "[]", "{}", `{"command":"ls"}`, `{"command":"stop"}`, `{"path":"x"}`, `{"questions":[` + goodQuestion + `]}`,
		}).Draw(t, "args")),
	}}
}

// anyTurn is a turn of a model that may do anything, with an interrupt now and
// then.
func anyTurn(t *rapid.T, interrupt func()) turnFunc {
	var parts []model.Part
	for range rapid.IntRange(0, 4).Draw(t, "parts") {
		parts = append(parts, anyPart(t))
	}
	reply := model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Parts: parts},
		Stop:    rapid.SampledFrom([]model.Stop{model.StopDone, model.StopCalls, model.StopLength, model.StopRefused, "odd"}).Draw(t, "stop"),
		Usage:   model.Usage{Input: rapid.Int64Range(0, 9000).Draw(t, "tokens")},
	}
	said := rapid.SampledFrom([]string{"", " ", "half a ", "words"}).Draw(t, "said")
	kind := rapid.SampledFrom([]model.Kind{"", "", "", "", model.KindTransient, model.KindTooLong, model.KindAuth, "odd"}).Draw(t, "failure")
	stops := rapid.IntRange(0, 9).Draw(t, "stops") == 0
	return func(ctx context.Context, _ *model.Request, say func(model.Delta) error) (model.Reply, error) {
		if err := say(model.Delta{Text: said}); err != nil {
			return reply, err
		}
		if stops {
			interrupt()
			return reply, context.Cause(ctx)
		}
		if kind != "" {
			return reply, failure(kind)
		}
		return reply, nil
	}
}

// Whatever a model says, however it fails and whatever people answer, the history
// stays valid and a later process has the same.
func TestAnyModelLeavesAValidHistory(t *testing.T) {
	root := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		k := &anyRun{dir: root, state: filepath.Join(root, strconv.Itoa(runs))}
		for range rapid.IntRange(1, 10).Draw(rt, "turns") {
			k.turns = append(k.turns, anyTurn(rt, k.interrupt))
		}
		k.answers = rapid.SliceOfN(rapid.SampledFrom([]contracts.Outcome{
			{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"remember":"session"}`},
			{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByPolicy},
			{Verdict: contracts.VerdictCancelled, By: contracts.ResolvedByRuntime},
			{Verdict: contracts.VerdictFailed, By: contracts.ResolvedByClient},
			{Verdict: contracts.VerdictRetried, By: contracts.ResolvedByUser},
		}), 1, 5).Draw(rt, "answers")
		synctest.Test(t, k.play)
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
}

// An anyRun is a session with a model that does anything.
type anyRun struct {
	dir, state string
	turns      []turnFunc
	answers    []contracts.Outcome
	asked      atomic.Int64
	cancel     context.CancelCauseFunc // of the run that goes on
}

func (k *anyRun) interrupt() { k.cancel(errInterrupted) }

func (k *anyRun) answer(*contracts.ServerRequest) contracts.Outcome {
	return k.answers[int(k.asked.Add(1))%len(k.answers)]
}

// run is a bash that can be interrupted.
func (k *anyRun) run(ctx context.Context, command string, _ func(string) error) (tool.Result, error) {
	if command == "stop" {
		k.interrupt()
		return tool.Result{}, context.Cause(ctx)
	}
	return tool.Result{Text: command}, nil
}

func (k *anyRun) play(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = k.answer
	m := newFake(t, k.turns...)
	m.after = fails("", failure(model.KindInvalid)) // once the script is over
	a := open(t, host, Options{
		Model: m, Workspace: at(t, k.dir), StateDir: k.state, ContextTokens: 8000, MaxIterations: 4,
		Tools:       append(fileTools(k.dir)[1:2], bash(k.run), flaky(3, Retryable(errInterrupted))),
		ClientTools: func() []model.Tool { return []model.Tool{{Name: "client"}} },
	})
	for len(m.turns) > 0 {
		var ctx context.Context
		ctx, k.cancel = context.WithCancelCause(t.Context())
		_ = a.Run(ctx, prompt("go on")) // any end will do
		k.cancel(nil)
		checkValid(t, a.Agent)
	}
	hosttest.Must(t, a.Close(t.Context()))
	again, err := openJournal(k.state, quiet)
	hosttest.Must(t, err)
	if string(args(t, again.messages)) != string(args(t, a.journal.messages)) {
		t.Errorf("got %s on disk, want %s", args(t, again.messages), args(t, a.journal.messages))
	}
	hosttest.Must(t, again.close())
}
