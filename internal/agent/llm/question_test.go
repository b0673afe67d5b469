package llm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

const goodQuestion = `{"header":"Database","question":"Which database?","options":[{"label":"SQLite","description":"A file","preview":{"kind":"diff","body":"+x"}},{"label":"Postgres","description":""}]}`

func TestQuestionsReachThePerson(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictAnswered, By: contracts.ResolvedByClient, Content: []contracts.ContentBlock{{Type: "text", Text: "SQLite, please"}}}
	}
	m := newFake(t, says("", callOf("q", "ask_user", `{"questions":[`+goodQuestion+`]}`)), says("Fine."))
	a := start(t, host, Options{Model: m})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	req := host.Asked()[0]
	if req.RequestType != contracts.RequestUserInput || req.Tool != "ask_user" || req.RequestID != req.CallID || req.Reason != "Agent requested structured user input" {
		t.Errorf("got %+v", req)
	}
	if want := `{"questions":[` + goodQuestion + `]}`; !sameJSON(req.Args, json.RawMessage(want)) {
		t.Errorf("got args %s, want %s", req.Args, want)
	}
	if got := results(m.request(1))[0]; got.Text != "SQLite, please" || got.IsError {
		t.Errorf("the model was told %+v", got)
	}
}

func TestNoAnswerIsMadeUp(t *testing.T) {
	for _, out := range []contracts.Outcome{
		{Verdict: contracts.VerdictFailed, Reason: "User input request timed out", By: contracts.ResolvedByPolicy},
		{Verdict: contracts.VerdictCancelled, Reason: "Withdrawn", By: contracts.ResolvedByRuntime},
		{Verdict: contracts.VerdictFailed, Reason: "User input request reported an error", By: contracts.ResolvedByClient, Content: []contracts.ContentBlock{{Type: "text", Text: "window closed"}}},
	} {
		host := hosttest.New(t)
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome { return out }
		m := newFake(t, says("", callOf("q", "ask_user", `{"questions":[`+goodQuestion+`]}`)), says("Fine."))
		a := start(t, host, Options{Model: m})
		err := a.Run(t.Context(), prompt("go"))
		if (err != nil) != (out.Verdict == contracts.VerdictCancelled) {
			t.Errorf("%s: got %v, want the run ended if the runtime stops it", out.Reason, err)
		}
		if err != nil {
			hosttest.Must(t, a.Run(t.Context(), prompt("go on")))
		}
		got := results(m.request(1))[0]
		if !got.IsError || !strings.Contains(got.Text, "did not answer") || !strings.Contains(got.Text, out.Reason) {
			t.Errorf("%s: the model was told %+v", out.Reason, got)
		}
		if end := hosttest.As[*contracts.ToolEnd](host)[0]; end.Success {
			t.Errorf("got %+v, want a failure", end)
		}
	}
}

func TestQuestionsKeepTheLimitsOfTheWire(t *testing.T) {
	change := func(old, with string) string { return strings.Replace(goodQuestion, old, with, 1) }
	tests := []struct{ question, want string }{
		{change(`Database`, `Databases too`), "questions[0].header is longer than 12 characters"},
		{change(`Which database?`, `What`), "question is shorter than 5 characters"},
		{change(`Which database?`, strings.Repeat("x", 501)), "question is longer than 500 characters"},
		{change(`SQLite`, strings.Repeat("😀", 26)), "options[0].label is longer than 50 characters"},
		{change(`A file`, strings.Repeat("x", 201)), "description is longer than 200 characters"},
		{change(`"kind":"diff"`, `"kind":"html"`), "kind must be one of markdown, text, diff"},
		{change(`+x`, strings.Repeat("x", 12_001)), "body is longer than 12000 characters"},
		{change(`"body"`, `"title":"`+strings.Repeat("x", 81)+`","body"`), "title is longer than 80 characters"},
		{change(`,{"label":"Postgres","description":""}`, ``), "options has fewer than 2 items"},
		{goodQuestion + strings.Repeat(","+goodQuestion, 4), "questions has more than 4 items"},
		{``, "questions has fewer than 1 items"},
		{`"what?"`, "questions[0] must be an object"},
	}
	for _, tt := range tests {
		host := hosttest.New(t)
		m := newFake(t, says("", callOf("q", "ask_user", `{"questions":[`+tt.question+`]}`)), says("Oh."))
		a := start(t, host, Options{Model: m})
		hosttest.Must(t, a.Run(t.Context(), prompt("go")))
		if got := results(m.request(1))[0]; !got.IsError || !strings.Contains(got.Text, tt.want) || len(host.Asked()) != 0 {
			t.Errorf("got %+v and %d questions, want %q and none", got, len(host.Asked()), tt.want)
		}
	}
}
