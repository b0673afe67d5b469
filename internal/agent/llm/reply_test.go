package llm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestAnswerStreamsWithUsageAndCost(t *testing.T) {
	host := hosttest.New(t)
	m := newFake(t, func(_ context.Context, _ *model.Request, say func(model.Delta) error) (model.Reply, error) {
		hosttest.Must(t, errors.Join(say(model.Delta{Text: "hmm", Thinking: true}), say(model.Delta{Text: "Hi"}), say(model.Delta{Text: " you"})))
		reply := whole("Hi you")
		reply.Model, reply.Usage = "atlas-2", model.Usage{Input: 1000, Output: 200, CacheRead: 3000, CacheWrite: 40}
		return reply, nil
	})
	a := start(t, host, Options{Model: m, Price: Price{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75}})
	hosttest.Must(t, a.Run(t.Context(), prompt("hello")))
	if got := host.Types(); !slices.Equal(got, []string{"response_start", "response_chunk", "response_end"}) {
		t.Errorf("got events %q, want one response", got)
	}
	if host.Said() != "Hi you" || !hosttest.As[*contracts.ResponseChunk](host)[0].IsThinking {
		t.Errorf("got %q, want Hi you after a thought", host.Said())
	}
	usage := hosttest.As[*contracts.ResponseEnd](host)[0].Usage
	cost := usage.TotalCostUSD
	usage.TotalCostUSD = 0
	want := contracts.Usage{InputTokens: 1000, OutputTokens: 200, CacheReadTokens: 3000, CacheWriteTokens: 40, TotalTokens: 4240, ModelID: "atlas-2", Provider: "example"}
	if usage != want || math.Abs(cost-0.00705) > 1e-9 {
		t.Errorf("got %+v for $%v, want %+v for $0.00705", usage, cost, want)
	}
	if got := saidIn(a.journal.messages); got != "Hi you" {
		t.Errorf("the history has %q, want Hi you", got)
	}
}

func TestFailingModelIsAskedAgain(t *testing.T) {
	for _, kind := range []model.Kind{model.KindOverloaded, model.KindTransient, model.KindCut, model.KindMalformed} {
		synctest.Test(t, func(t *testing.T) {
			host := hosttest.New(t)
			m := newFake(t, fails("", failure(kind)), fails("", failure(kind)), says("Here."))
			a := start(t, host, Options{Model: m})
			began := time.Now()
			hosttest.Must(t, a.Run(t.Context(), prompt("hello")))
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("got an answer after %s, want 1 s and 2 s", took)
			}
			if got := statuses(host); len(got) != 2 || !strings.HasSuffix(got[1], "Trying again in 2s (2/4)") {
				t.Errorf("got statuses %q, want one for each wait", got)
			}
			if n := len(hosttest.As[*contracts.ResponseStart](host)); n != 1 || host.Said() != "Here." {
				t.Errorf("got %d responses with %q, want one: nothing was said before", n, host.Said())
			}
		})
	}
}

func TestProviderSaysWhenToTryAgain(t *testing.T) {
	tests := []struct {
		after, want time.Duration
		fails       bool
	}{
		{20 * time.Second, 20 * time.Second, false},
		{time.Minute, time.Minute, false},
		{time.Hour, 0, true},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			host := hosttest.New(t)
			err := failure(model.KindOverloaded)
			err.RetryAfter = tt.after
			a := start(t, host, Options{Model: newFake(t, fails("", err), says("Here."))})
			began := time.Now()
			if got := a.Run(t.Context(), prompt("hello")); (got != nil) != tt.fails || time.Since(began) != tt.want {
				t.Errorf("asked to wait %s: got %v after %s, want failure %t after %s", tt.after, got, time.Since(began), tt.fails, tt.want)
			}
		})
	}
}

func TestModelIsNotAskedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		m := newFake(t)
		for i := range maxModelRetries + 1 {
			m.turns = append(m.turns, fails(fmt.Sprintf("Part %d. ", i), failure(model.KindTransient)))
		}
		m.turns = append(m.turns, says("At last."))
		a := start(t, host, Options{Model: m})
		err := a.Run(t.Context(), prompt("hello"))
		if own, ok := errors.AsType[*contracts.Error](err); !ok || own.Type != contracts.ErrorTransient {
			t.Fatalf("got %v, want a transient error", err)
		}
		hosttest.Must(t, a.Run(t.Context(), prompt("again")))
		if got := saidIn(a.journal.messages); got != host.Said() || got != "Part 0. Part 1. Part 2. Part 3. Part 4. At last." {
			t.Errorf("the history has %q, shown was %q", got, host.Said())
		}
	})
}

func TestTextBeforeACutIsKeptAndContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		broken := func(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
			reply, err := fails("It is ", failure(model.KindTransient))(ctx, req, say)
			reply.Message.Parts = append(reply.Message.Parts, model.Part{Call: &model.Call{ID: "x", Tool: "bash", Args: []byte("{}")}})
			return reply, err
		}
		m := newFake(t, broken, says("done."))
		a := start(t, host, Options{Model: m})
		hosttest.Must(t, a.Run(t.Context(), prompt("hello")))
		messages := m.request(-1).Messages
		if len(messages) != 3 || textOf(messages[1]) != "It is " || len(messages[1].Parts) != 1 || textOf(messages[2]) != cutOff {
			t.Errorf("got %s, want the text and the request to go on", args(t, messages))
		}
		if ends := hosttest.As[*contracts.ResponseEnd](host); len(ends) != 2 || ends[0].Usage.InputTokens != 3 {
			t.Errorf("got ends %+v, want two, the first with what it cost", ends)
		}
	})
}

func TestFailuresAreClassified(t *testing.T) {
	tests := map[model.Kind]struct {
		want  contracts.ErrorType
		words string
	}{
		model.KindAuth:       {contracts.ErrorFatal, "does not accept the credentials"},
		model.KindQuota:      {contracts.ErrorFatal, "quota or credit is used up"},
		model.KindInvalid:    {contracts.ErrorFatal, "refused the request"},
		model.KindTooLong:    {contracts.ErrorFatal, "does not fit the model's context"},
		model.KindOverloaded: {contracts.ErrorTransient, "is overloaded"},
		model.KindTransient:  {contracts.ErrorTransient, "could not be reached"},
		model.KindCut:        {contracts.ErrorTransient, "answer broke off"},
		model.KindMalformed:  {contracts.ErrorTransient, "was not understood"},
	}
	for kind, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			err := failure(kind)
			err.Message = "denied with api_key=sk-12345 for you"
			m := newFake(t)
			for range 20 {
				m.turns = append(m.turns, fails("", err))
			}
			a := start(t, hosttest.New(t), Options{Model: m})
			own, ok := errors.AsType[*contracts.Error](a.Run(t.Context(), prompt("hello")))
			if !ok || own.Type != tt.want || !strings.Contains(own.Message, tt.words) || strings.Contains(own.Message, "sk-12345") || !strings.Contains(own.Message, "for you") {
				t.Errorf("%s: got %+v, want type %s and %q without the secret", kind, own, tt.want, tt.words)
			}
		})
	}
}

func TestOutputLimitIsContinued(t *testing.T) {
	long := strings.Repeat("word ", 100)
	tests := []struct {
		name  string
		turns []turnFunc
		want  []string
	}{
		{"once", []turnFunc{stops("a", model.StopLength), says("b")}, []string{
			"Response hit the output limit. Continuing automatically..."}},
		{"until the end", []turnFunc{stops(long, model.StopLength), stops(long, model.StopLength), stops(long, model.StopLength), stops(long, model.StopLength), stops(long, model.StopLength), stops(long, model.StopLength)}, []string{
			"Response hit the output limit. Continuing automatically...",
			"Response still hit the output limit. Continuing automatically (2/5)...",
			"Response still hit the output limit. Continuing automatically (3/5)...",
			"Response still hit the output limit. Continuing automatically (4/5)...",
			"Response still hit the output limit. Continuing automatically (5/5)...",
			"Stopped after 5 automatic continuations because the response kept hitting the output limit."}},
		{"without progress", []turnFunc{stops(long, model.StopLength), stops("a", model.StopLength), stops("", model.StopLength)}, []string{
			"Response hit the output limit. Continuing automatically...",
			"Response still hit the output limit. Continuing automatically (2/5)...",
			"Stopped automatic continuation early after 2/5 retries because recent responses made minimal progress."}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := hosttest.New(t)
			a := start(t, host, Options{Model: newFake(t, tt.turns...)})
			hosttest.Must(t, a.Run(t.Context(), prompt("hello")))
			if got := statuses(host); !slices.Equal(got, tt.want) {
				t.Errorf("got statuses %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRefusalEndsTheRun(t *testing.T) {
	m := newFake(t, stops("I would rather ", model.StopRefused), says("Sure."))
	a := start(t, hosttest.New(t), Options{Model: m})
	if err := a.Run(t.Context(), prompt("hello")); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want a refusal", err)
	}
	hosttest.Must(t, a.Run(t.Context(), prompt("please")))
}

func TestTurnsAreBounded(t *testing.T) {
	host := hosttest.New(t)
	m := newFake(t)
	for i := range 3 {
		m.turns = append(m.turns, says("", callOf(fmt.Sprint("c", i), "read", fmt.Sprintf(`{"path":"f%d"}`, i))))
	}
	m.turns = append(m.turns, says("Done."))
	a := start(t, host, Options{Model: m, MaxIterations: 3, Tools: fileTools(t.TempDir())})
	if err := a.Run(t.Context(), prompt("hello")); err == nil || !strings.Contains(err.Error(), "after 3 turns") {
		t.Errorf("got %v, want the end after 3 turns", err)
	}
	hosttest.Must(t, a.Run(t.Context(), prompt("go on")))
}

func TestInitAndWorkspaceMakeTheSystemPrompt(t *testing.T) {
	dir := t.TempDir()
	hosttest.Must(t, os.WriteFile(filepath.Join(dir, "CLAUDE.md"), []byte("Speak French."), 0o600))
	m := newFake(t, says("a"), says("b"), says("c"))
	a := start(t, hosttest.New(t), Options{Model: m, Workspace: at(t, dir), MaxTokens: 777, Metadata: map[string]string{"trace_id": "t1"}})
	appended, replaced := "Be brief.", "You are a cat."
	a.Configure(&contracts.Init{AppendSystemPrompt: &appended})
	hosttest.Must(t, a.Run(t.Context(), prompt("1")))
	req := m.request(0)
	if want := "\n\nBe brief.\n\nInstructions of the project, from CLAUDE.md:\n\nSpeak French."; !strings.HasSuffix(req.System, want) || !strings.HasPrefix(req.System, "You are a coding agent") {
		t.Errorf("got %q, want the base with %q", req.System, want)
	}
	if req.MaxTokens != 777 || req.Metadata["trace_id"] != "t1" || req.Thinking != "" {
		t.Errorf("got %+v, want the bound and the metadata", req)
	}
	hosttest.Must(t, os.WriteFile(filepath.Join(dir, "AGENTS.md"), []byte(strings.Repeat("Rule. ", 20_000)), 0o600))
	a.Configure(&contracts.Init{SystemPrompt: &replaced, AppendSystemPrompt: &appended, ThinkingLevel: contracts.ThinkingHigh})
	hosttest.Must(t, a.Run(t.Context(), prompt("2")))
	req = m.request(1)
	if !strings.HasPrefix(req.System, "You are a cat.\n\nBe brief.\n\nInstructions of the project, from AGENTS.md:\n\nRule. ") || strings.Contains(req.System, "French") || len(req.System) > maxInstructionBytes+200 {
		t.Errorf("got %d bytes %.200q, want the cat with bounded rules", len(req.System), req.System)
	}
	if req.Thinking != model.EffortHigh {
		t.Errorf("got effort %q, want high", req.Thinking)
	}
}

func TestAttachmentsAreSent(t *testing.T) {
	m := newFake(t, says("Nice."))
	a := start(t, hosttest.New(t), Options{Model: m})
	hosttest.Must(t, a.Run(t.Context(), contracts.Work{Content: "look", Attachments: []contracts.Attachment{
		{Path: "a.go", MimeType: "text/plain", Text: "x\n```\ny"},
		{Path: "b.png", MimeType: "image/png", Data: []byte{1, 2}},
	}}))
	parts := m.request(0).Messages[0].Parts
	if len(parts) != 4 || *parts[0].Text != "Attached file a.go:\n\n````go\nx\n```\ny\n````" || *parts[3].Text != "look" {
		t.Fatalf("got %s, want a fenced document, an image and the prompt", args(t, parts))
	}
	if image := parts[2].Image; image == nil || image.MimeType != "image/png" || string(image.Data) != "\x01\x02" {
		t.Errorf("got %+v, want the image", image)
	}
}

func TestEmptyPromptDoesNotReachTheModel(t *testing.T) {
	host := hosttest.New(t)
	a := start(t, host, Options{Model: newFake(t)})
	hosttest.Must(t, a.Run(t.Context(), prompt(" \n")))
	if host.Said() == "" || len(a.journal.messages) != 0 {
		t.Errorf("got %q and %d messages, want a word and no history", host.Said(), len(a.journal.messages))
	}
}

func TestPromptWithoutRoomIsRefused(t *testing.T) {
	a := start(t, hosttest.New(t), Options{Model: newFake(t), ContextTokens: 1000})
	hosttest.Must(t, a.Check("hello"))
	if err := a.Check(strings.Repeat("hello ", 1000)); !errors.Is(err, &contracts.Error{Code: contracts.CodePayloadTooLarge}) {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestPromptsWithoutAnAnswerAreToldApart(t *testing.T) {
	thinks := func(context.Context, *model.Request, func(model.Delta) error) (model.Reply, error) {
		reply := whole("")
		reply.Message.Parts = []model.Part{{Thinking: &model.Thinking{Text: "Hm."}}}
		return reply, nil
	}
	m := newFake(t, thinks, fails("", failure(model.KindInvalid)), says("Here."), says("Again."))
	a := start(t, hosttest.New(t), Options{Model: m})
	for i, text := range []string{"one", "two", "three", "four"} {
		if err := a.Run(t.Context(), prompt(text)); (err != nil) != (i == 1) {
			t.Fatalf("%s: got %v", text, err)
		}
	}
	var got []string
	for _, p := range m.request(3).Messages[0].Parts {
		got = append(got, *p.Text)
	}
	if want := []string{"one", noAnswer, "two", noAnswer, "three"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if last := m.request(3).Messages[2]; len(last.Parts) != 1 {
		t.Errorf("got %d parts after an answer, want the prompt alone", len(last.Parts))
	}
}
