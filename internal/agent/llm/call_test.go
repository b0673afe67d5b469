package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestGatedCallAsksAndRuns(t *testing.T) {
	host := hosttest.New(t)
	m := newFake(t, says("I run it.", callOf("toolu_1", "bash", `{"command":"API_KEY=sk-1 make"}`)), says("Done."))
	var ran string
	run := func(_ context.Context, command string, out func(string) error) (tool.Result, error) {
		ran = command
		return tool.Result{Text: "built"}, out("built")
	}
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(run)}})
	hosttest.Must(t, a.Run(t.Context(), prompt("build")))
	want := []string{"response_start", "response_chunk", "response_end", "tool_call", "server_request", "server_request_resolved",
		"tool_start", "tool_output", "tool_end", "response_start", "response_chunk", "response_end"}
	if got := host.Types(); !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
	req := host.Asked()[0]
	if req.RequestID != req.CallID || req.CallID == "toolu_1" || req.Tool != "bash" || req.DisplayName != "Bash" ||
		req.SummaryLabel != "Ran API_KEY=*** make" || req.ActionDescription != "Running API_KEY=*** make" ||
		string(req.Args) != `{"command":"API_KEY=*** make"}` || req.Reason != "Approval required. Not all is shown: a value that looks like a credential is hidden" {
		t.Errorf("got request %+v with %s, want the masked command under an id of our own", req, req.Args)
	}
	if ran != "API_KEY=sk-1 make" || host.Output() != "built" {
		t.Errorf("ran %q with output %q, want the command as it is", ran, host.Output())
	}
	if got := results(m.request(1)); len(got) != 1 || got[0].ID != "toolu_1" || got[0].Text != "built" || got[0].IsError {
		t.Errorf("the model was told %+v, want built under its own id", got)
	}
	end := hosttest.As[*contracts.ResponseEnd](host)[1]
	if sum := end.ToolsSummary; sum.CallsSucceeded != 1 || !slices.Equal(sum.ToolsUsed, []string{"bash"}) || !slices.Equal(sum.SummaryLabels, []string{"Ran API_KEY=*** make"}) {
		t.Errorf("got summary %+v, want one call of bash", sum)
	}
}

// Whoever is asked learns what the arguments do not say, and nobody is asked about
// what can't be done, unless that goes on and on.
func TestCallsAreLookedAtBeforeAnybodyIsAsked(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
	}
	change := tool.Tool{
		Tool: model.Tool{Name: "change", Schema: json.RawMessage(`{"type":"object"}`)}, Gated: true,
		Look: func(args json.RawMessage) tool.Result {
			bad := strings.Contains(string(args), "bad")
			return tool.Result{Text: map[bool]string{true: "Read it first.", false: "It makes a new file"}[bad], IsError: bad}
		},
		Run: func(_ context.Context, args json.RawMessage, _ func(string) error) (tool.Result, error) {
			return tool.Result{Text: "Read it first.", IsError: strings.Contains(string(args), "bad")}, nil
		},
	}
	turns := []turnFunc{says("", callOf("good", "change", `{}`))}
	for i := range maxRepeats + 1 {
		turns = append(turns, says("", callOf(fmt.Sprint("bad", i), "change", `{"bad":true}`)))
	}
	m := newFake(t, append(turns, says("Done."))...)
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{change}})
	hosttest.Must(t, a.Run(t.Context(), prompt("change it")))
	asked := host.Asked()
	if len(asked) != 2 || asked[0].Reason != "Approval required. It makes a new file" ||
		asked[1].Reason != fmt.Sprintf("The same call has had the same result %d times in a row", maxRepeats) {
		t.Fatalf("got questions %+v, want one about the good call and one about the repetition", asked)
	}
	for i := range maxRepeats {
		got := results(m.request(2 + i))
		if last := got[len(got)-1]; !last.IsError || last.Text != "Read it first." {
			t.Errorf("turn %d: the model was told %+v, want why it can't be done", i, last)
		}
	}
	types := host.Types()
	at := slices.Index(types, "tool_end") + 1 // of the good call
	at += slices.Index(types[at:], "tool_call")
	if got, want := types[at:at+4], []string{"tool_call", "tool_start", "tool_output", "tool_end"}; !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
}

func TestUngatedCallsStartAtOnceAndRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		var calls []model.Call
		for i := range 6 {
			calls = append(calls, callOf(fmt.Sprint("c", i), "look", fmt.Sprintf(`{"n":%d}`, i)))
		}
		var now atomic.Int64
		release := make(chan struct{})
		look := tool.Tool{Tool: model.Tool{Name: "look"}, Run: func(context.Context, json.RawMessage, func(string) error) (tool.Result, error) {
			now.Add(1)
			<-release
			return tool.Result{Text: "seen"}, nil
		}}
		m := newFake(t, says("", calls...), says("Done."))
		a := start(t, host, Options{Model: m, Tools: []tool.Tool{look}})
		ended := make(chan error, 1)
		go func() { ended <- a.Run(t.Context(), prompt("look")) }() // ends once they are released
		synctest.Wait()
		if n := now.Load(); n != maxTogether {
			t.Errorf("got %d calls at the same time, want %d", n, maxTogether)
		}
		close(release)
		hosttest.Must(t, <-ended)
		if got := results(m.request(1)); len(got) != 6 {
			t.Errorf("got results %+v, want six", got)
		}
		events := host.Shown()
		for i, ev := range events {
			if call, ok := ev.(*contracts.ToolCall); ok {
				if next, ok := events[i+1].(*contracts.ToolStart); !ok || next.CallID != call.CallID || call.RequiresApproval {
					t.Errorf("got %+v after %+v, want its start at once", events[i+1], call)
				}
			}
		}
	})
}

func TestDeniedCallDoesNotRun(t *testing.T) {
	for _, mode := range []contracts.ApprovalMode{contracts.ApprovalPrompt, contracts.ApprovalFail} {
		host := hosttest.New(t)
		host.Mode = mode
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: contracts.VerdictDenied, Reason: "Not on a Friday", By: contracts.ResolvedByUser}
		}
		dir := t.TempDir()
		m := newFake(t, says("", callOf("c", "write", `{"path":"x","text":"y"}`)), says("Pity."))
		a := start(t, host, Options{Model: m, Workspace: at(t, dir), Tools: fileTools(dir)})
		hosttest.Must(t, a.Run(t.Context(), prompt("write")))
		if len(treeOf(t, dir)) != 0 || len(hosttest.As[*contracts.ToolStart](host)) != 0 {
			t.Error("the denied call ran")
		}
		end := hosttest.As[*contracts.ToolEnd](host)[0]
		if end.Success || end.ErrorCode != "governance_denied" || end.GovernedOutcome != "denied" {
			t.Errorf("got %+v, want a denial", end)
		}
		got := results(m.request(1))[0]
		if !got.IsError || mode == contracts.ApprovalPrompt && !strings.Contains(got.Text, "Not on a Friday") || mode == contracts.ApprovalFail && !strings.Contains(got.Text, "by policy") {
			t.Errorf("the model was told %+v, want who denied it and why", got)
		}
	}
}

func TestDenyRulesHoldInAutoMode(t *testing.T) {
	host := hosttest.New(t)
	host.Mode = contracts.ApprovalAuto
	m := newFake(t, says("", callOf("a", "bash", `{"command":"ls && rm x"}`), callOf("b", "bash", `{"command":"ls"}`)), says("Pity."))
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}, Rules: parsed(t, "", "", "bash(rm:*)")})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	if len(host.Asked()) != 1 || len(hosttest.As[*contracts.ServerRequest](host)) != 0 {
		t.Errorf("got %d questions to the host and %v, want one that policy decides", len(host.Asked()), host.Types())
	}
	got := results(m.request(1))
	if !got[0].IsError || !strings.Contains(got[0].Text, "bash(rm:*)") || got[1].Text != "ran ls" {
		t.Errorf("the model was told %+v, want a denial that names the rule, and ls", got)
	}
}

func TestAllowedCallIsNotAsked(t *testing.T) {
	host := hosttest.New(t)
	m := newFake(t, says("", callOf("a", "bash", `{"command":"git status -s"}`)), says("Fine."))
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}, Rules: parsed(t, "bash(git status:*)", "", "")})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	if len(host.Asked()) != 0 || host.Output() != "ran git status -s" {
		t.Errorf("got %d questions and output %q, want none", len(host.Asked()), host.Output())
	}
}

func TestAnswersAreRememberedForTheSession(t *testing.T) {
	tests := []struct {
		name, reason, command string
		verdict               contracts.Verdict
		asked                 int
		status                string // how the first begins; "" if there is none
	}{
		{"plain", "Approved", "make", contracts.VerdictApproved, 2, ""},
		{"this line", `{"remember":"session"}`, "make", contracts.VerdictApproved, 1, "Remembered for the session: allow bash(make)"},
		{"another line", `{"remember":"session"}`, "make all", contracts.VerdictApproved, 2, "Remembered for the session: allow bash(make)"},
		{"a rule", `{"remember":"session","rule":"bash(make:*)"}`, "make all", contracts.VerdictApproved, 1, "Remembered for the session: allow bash(make:*)"},
		{"a line without its comment", `{"remember":"session","rule":"bash(make '#' x)"}`, "make", contracts.VerdictApproved, 2, "Not remembered: "},
		{"a denial", `{"remember":"session","reason":"no building"}`, "make", contracts.VerdictDenied, 1, "Remembered for the session: deny bash(make)"},
		{"a rule for something else", `{"remember":"session","rule":"bash(rm:*)"}`, "make", contracts.VerdictApproved, 2, "Not remembered: "},
		{"a rule that could not be a flag", `{"remember":"session","rule":"bash(mak*)"}`, "make", contracts.VerdictApproved, 2, `Not remembered: rule "bash(mak*)": what is allowed has no * but in :* at the end`},
		{"a rule that is none", `{"remember":"session","rule":"bash("}`, "make", contracts.VerdictApproved, 2, "Not remembered: "},
		{"a denial for ever", `{"remember":"always"}`, "make", contracts.VerdictDenied, 2, "Not remembered: "},
		{"a rule alone", `{"rule":"bash(make:*)"}`, "make", contracts.VerdictApproved, 2, "Not remembered: "},
		{"a denial that is none", `{"remember":"session"`, "make", contracts.VerdictDenied, 2, "Not remembered: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host, state := hosttest.New(t), t.TempDir()
			host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: tt.verdict, Reason: tt.reason, By: contracts.ResolvedByUser}
			}
			m := newFake(t, says("", callOf("a", "bash", `{"command":"make"}`)), says("One."), says("", callOf("b", "bash", string(args(t, map[string]string{"command": tt.command})))), says("Two."))
			o := Options{Model: m, StateDir: state, Tools: []tool.Tool{bash(echo)}, Rules: parsed(t, "", "bash + bash(make all:*)", "")}
			first := start(t, host, o)
			hosttest.Must(t, first.Run(t.Context(), prompt("go")))
			again := start(t, host, o) // another process
			hosttest.Must(t, again.Run(t.Context(), prompt("go")))
			if got := len(host.Asked()); got != tt.asked {
				t.Errorf("got %d questions, want %d", got, tt.asked)
			}
			if got := statuses(host); (len(got) > 0) != (tt.status != "") || tt.status != "" && !strings.HasPrefix(got[0], tt.status) {
				t.Errorf("got statuses %q, want %q", got, tt.status)
			}
			if got := results(m.request(1))[0].Text; tt.name == "a denial that is none" && !strings.HasSuffix(got, tt.reason) {
				t.Errorf("the model was told %q, want what was said", got)
			}
			if tt.name == "a denial" {
				if got := results(m.request(1))[0].Text; !strings.Contains(got, "no building") || strings.Contains(got, "remember") {
					t.Errorf("the model was told %q, want the reason alone", got)
				}
			}
		})
	}
}

func TestRememberedRuleDoesNotOverrideTheOperator(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session","rule":"bash"}`, By: contracts.ResolvedByUser}
	}
	var calls []model.Call
	for i, line := range []string{"ls", "pwd", "rm x", "$X x"} {
		calls = append(calls, callOf(fmt.Sprint(i), "bash", string(args(t, map[string]string{"command": line}))))
	}
	m := newFake(t, says("", calls...), says("Pity."))
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}, Rules: parsed(t, "", "", "bash(rm:*)")})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	if got := results(m.request(1)); got[1].IsError || !got[2].IsError {
		t.Errorf("got %+v, want the third denied", got)
	}
	if asked := host.Asked(); len(asked) != 2 || string(asked[1].Args) != string(calls[3].Args) {
		t.Errorf("got the questions %+v, want one about the first and one about what may be denied", asked)
	}
}

func TestCallsThatCannotRunAreTold(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	tests := []struct{ name, tool, args, want string }{
		{"unknown tool", "fly", `{}`, "no tool fly"},
		{"odd name", "functions.bash now!", `{}`, "no tool functions_bash_now_"},
		{"no name", "", `{}`, "no tool unknown"},
		{"args that are no JSON", "bash", `{"command":`, "not usable"},
		{"args that are no object", "bash", `["ls"]`, "not usable"},
		{"two objects", "bash", `{"command":"ls"}{}`, "not usable"},
		{"a bracket too many", "bash", `{"command":"ls"}}`, "not usable"},
		{"keys in two spellings", "bash", `{"command":"ls","Command":"rm"}`, "differ in case"},
		{"missing args", "bash", ``, "command is missing"},
		{"null args", "bash", `null`, "command is missing"},
		{"deep args", "bash", deep, "at most 64 levels"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := hosttest.New(t)
			m := newFake(t, says("", model.Call{ID: "c", Tool: tt.tool, Args: json.RawMessage(tt.args)}), says("Oh."))
			a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}})
			hosttest.Must(t, a.Run(t.Context(), prompt("go")))
			got := results(m.request(1))[0]
			if !got.IsError || !strings.Contains(got.Text, tt.want) {
				t.Errorf("the model was told %+v, want %q", got, tt.want)
			}
			if len(host.Asked()) != 0 || len(hosttest.As[*contracts.ToolEnd](host)) != 1 || len(hosttest.As[*contracts.ToolStart](host)) != 0 {
				t.Errorf("got events %v, want a call that ends without a question or a start", host.Types())
			}
		})
	}
}

func TestApprovedCallIsJudgedAgain(t *testing.T) {
	for denied, want := range map[string]string{
		"write(secret/**)": "Not run: The rule write(secret/**) denies it.",
		"":                 "Not run: its path leads elsewhere than when it was asked about.",
	} {
		host, dir := hosttest.New(t), t.TempDir()
		hosttest.Must(t, os.Mkdir(filepath.Join(dir, "secret"), 0o700))
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
			hosttest.Must(t, os.Symlink("secret", filepath.Join(dir, "ok"))) // while it is asked about
			return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
		}
		m := newFake(t, says("", callOf("a", "write", `{"path":"ok/n","text":"x"}`)), says("Pity."))
		a := start(t, host, Options{Model: m, Workspace: at(t, dir), Tools: fileTools(dir), Rules: parsed(t, "", "", denied)})
		hosttest.Must(t, a.Run(t.Context(), prompt("go")))
		if _, err := os.Stat(filepath.Join(dir, "secret/n")); err == nil {
			t.Errorf("deny %q: the file was written where the link leads", denied)
		}
		if got := results(m.request(1))[0]; !got.IsError || got.Text != want || len(host.Asked()) != 1 {
			t.Errorf("deny %q: the model was told %+v, want %q", denied, got, want)
		}
		if end := hosttest.As[*contracts.ToolEnd](host)[0]; end.Success || end.GovernedOutcome != "denied" {
			t.Errorf("deny %q: got the end %+v, want denied", denied, end)
		}
	}
}

func TestHiddenValuesAreSaidAndNotRemembered(t *testing.T) {
	for args, hidden := range map[string]bool{
		`{"command":"API_KEY=abc make"}`:             true,
		`{"command":"make","password":"p"}`:          true,
		`{"command":"API_KEY=./make; $API_KEY all"}`: false,
		`{"command":"make"}`:                         false,
	} {
		host := hosttest.New(t)
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session","rule":"bash"}`, By: contracts.ResolvedByUser}
		}
		call := callOf("a", "bash", args)
		a := start(t, host, Options{Model: newFake(t, says("", call), says("", call), says("Done.")), Tools: []tool.Tool{bash(echo)}})
		hosttest.Must(t, a.Run(t.Context(), prompt("go")))
		asked := host.Asked()
		if again := len(asked) == 2; again != hidden {
			t.Errorf("%s: got %d questions and %q, want it asked again: %t", args, len(asked), statuses(host), hidden)
		}
		if said := strings.Contains(asked[0].Reason, "a value that looks like a credential is hidden"); said != hidden || strings.Contains(string(asked[0].Args), "***") != hidden {
			t.Errorf("%s: got %s because of %q, want it said: %t", args, asked[0].Args, asked[0].Reason, hidden)
		}
	}
}

func TestLongArgumentsAreCutAndNotRemembered(t *testing.T) {
	long := strings.Repeat("x", contracts.MaxValueBytes)
	tests := []struct {
		name, args string
		cut        bool
		want       []string // in what is shown
	}{
		{"short", `{"command":"make","password":"p"}`, false, []string{`"make"`, `"***"`}},
		{"shown", `{"command":"make"}`, false, []string{`{"command":"make"}`}},
		{"made long by its spelling alone", `{"command":"TOKEN=abc echo '` + strings.Repeat("<", maxArgsBytes-100) + `'"}`, false, []string{"TOKEN=*** echo '<<<"}},
		{"made short by what is hidden", `{"command":"make","password":"` + long + `"}`, false, []string{`{"command":"make","password":"***"}`}},
		{"one long text", `{"command":"make ` + long + ` last","n":9007199254740993,"password":"p"}`, true, []string{`"command":"make xxx`, ` last"`, "bytes left out", `"password":"***"`, `"n":9007199254740993`, `"_omitted_bytes":2`}},
		{"many texts", `{"command":"make","more":["` + strings.Repeat(strings.Repeat("x", maxArgBytes)+`","`, 40) + `"]}`, true, []string{`"head":"{\"command\":\"make\"`, `"_omitted_bytes":`}},
	}
	for _, tt := range tests {
		host := hosttest.New(t)
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session","rule":"bash"}`, By: contracts.ResolvedByUser}
		}
		call := callOf("a", "bash", tt.args)
		a := start(t, host, Options{Model: newFake(t, says("", call), says("", call), says("Done.")), Tools: []tool.Tool{bash(echo)}})
		hosttest.Must(t, a.Run(t.Context(), prompt("go")))
		asked := host.Asked()
		want := 1
		if tt.cut || strings.Contains(string(asked[0].Args), "***") {
			want = 2 // the answer is not remembered
		}
		if len(asked) != want || len(statuses(host)) != want {
			t.Fatalf("%s: got %d questions and statuses %q, want %d of each", tt.name, len(asked), statuses(host), want)
		}
		shown := asked[0].Args
		if said := strings.Contains(asked[0].Reason, "NOT SHOWN"); said != tt.cut || len(shown) > maxArgsBytes || !json.Valid(shown) {
			t.Errorf("%s: got %d bytes because of %q, want at most %d and it said: %t", tt.name, len(shown), asked[0].Reason, maxArgsBytes, tt.cut)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(shown), want) {
				t.Errorf("%s: got %.100s, want %q in it", tt.name, shown, want)
			}
		}
		for _, call := range hosttest.As[*contracts.ToolCall](host) {
			if string(call.Args) != string(shown) {
				t.Errorf("%s: got the call with %.100s, want what was asked about", tt.name, call.Args)
			}
		}
	}
}

func TestCallsOfOthersAreRememberedByARuleAlone(t *testing.T) {
	for reason, want := range map[string]int{
		`{"remember":"session"}`:                       2,
		`{"remember":"session","rule":"mcp__sh__run"}`: 1,
	} {
		for _, verdict := range []contracts.Verdict{contracts.VerdictApproved, contracts.VerdictDenied} {
			host := hosttest.New(t)
			host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: verdict, Reason: reason, By: contracts.ResolvedByUser}
			}
			remote := bash(echo)
			remote.Name = "mcp__sh__run"
			m := newFake(t, says("", callOf("a", remote.Name, `{"command":"ls"}`)), says("", callOf("b", remote.Name, `{"command":"ls","env":{"A":"b"}}`)), says("Done."))
			a := start(t, host, Options{Model: m, Tools: []tool.Tool{remote}})
			hosttest.Must(t, a.Run(t.Context(), prompt("go")))
			if got := len(host.Asked()); got != want {
				t.Errorf("%s by %s: got %d questions, want %d", verdict, reason, got, want)
			}
			if told := strings.Join(statuses(host), " "); (want == 2) != strings.Contains(told, `"rule":"mcp__sh__run"`) {
				t.Errorf("%s by %s: got statuses %q, want how to say it if it was not said", verdict, reason, told)
			}
		}
	}
}

func TestOddIDsAreMadeUnique(t *testing.T) {
	host := hosttest.New(t)
	long := strings.Repeat("x", 100)
	read := `{"path":"missing"}`
	m := newFake(t,
		says("", callOf("same", "read", read), callOf("same", "read", read), callOf("", "read", read), callOf("a b", "read", read), callOf(long, "read", read)),
		says("", callOf("same", "read", `{"path":"other"}`)), says("Done."))
	a := start(t, host, Options{Model: m, Tools: fileTools(t.TempDir())})
	hosttest.Must(t, a.Run(t.Context(), prompt("go"))) // the fake checks the ids in the history
	seen := map[string]bool{}
	for _, call := range hosttest.As[*contracts.ToolCall](host) {
		if seen[call.CallID] || !strings.HasPrefix(call.CallID, "call_") {
			t.Errorf("got call id %q twice, or one of the provider's", call.CallID)
		}
		seen[call.CallID] = true
	}
	if len(seen) != 6 {
		t.Errorf("got %d calls, want 6", len(seen))
	}
}

func TestRepetitionIsLookedAt(t *testing.T) {
	same := says("", callOf("c", "read", `{"path":"missing"}`))
	t.Run("by a person", func(t *testing.T) {
		host := hosttest.New(t)
		host.Answer = func(req *contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: contracts.VerdictDenied, Reason: "stop that", By: contracts.ResolvedByUser}
		}
		m := newFake(t, same, same, same, same, says("Sorry."))
		a := start(t, host, Options{Model: m, Tools: fileTools(t.TempDir())})
		hosttest.Must(t, a.Run(t.Context(), prompt("go")))
		if asked := host.Asked(); len(asked) != 1 || !strings.Contains(asked[0].Reason, "3 times in a row") {
			t.Errorf("got questions %+v, want one about the fourth call", asked)
		}
		if got := results(m.request(-1))[0]; !strings.Contains(got.Text, "stop that") {
			t.Errorf("the model was told %+v, want the reason", got)
		}
	})
	for _, mode := range []contracts.ApprovalMode{contracts.ApprovalAuto, contracts.ApprovalFail} {
		t.Run("by policy "+string(mode), func(t *testing.T) {
			host := hosttest.New(t)
			host.Mode = mode
			m := newFake(t, same, same, same, same, says("I am free."))
			a := start(t, host, Options{Model: m, Tools: fileTools(t.TempDir())})
			if err := a.Run(t.Context(), prompt("go")); err == nil || !strings.Contains(err.Error(), "repeats itself") {
				t.Errorf("got %v, want the run stopped", err)
			}
			checkValid(t, a.Agent)
			hosttest.Must(t, a.Run(t.Context(), prompt("do something else")))
		})
	}
	t.Run("by policy, where it gates", func(t *testing.T) {
		host := hosttest.New(t)
		host.Mode = contracts.ApprovalAuto
		again := says("", callOf("c", "bash", `{"command":"make"}`))
		a := start(t, host, Options{Model: newFake(t, again, again, again, again), Tools: []tool.Tool{bash(echo)}})
		if err := a.Run(t.Context(), prompt("go")); err == nil || !strings.Contains(err.Error(), "repeats itself") {
			t.Errorf("got %v, want the run stopped", err)
		}
	})
	t.Run("not if the result changes", func(t *testing.T) {
		host := hosttest.New(t)
		n := 0
		count := tool.Tool{Tool: model.Tool{Name: "read"}, Run: func(context.Context, json.RawMessage, func(string) error) (tool.Result, error) {
			n++
			return tool.Result{Text: fmt.Sprint(n)}, nil
		}}
		a := start(t, host, Options{Model: newFake(t, same, same, same, same, same, says("Done.")), Tools: []tool.Tool{count}})
		hosttest.Must(t, a.Run(t.Context(), prompt("go")))
		if len(host.Asked()) != 0 {
			t.Errorf("got %d questions, want none", len(host.Asked()))
		}
	})
}

// flaky is a tool that fails so often.
func flaky(failures int64, err error) tool.Tool {
	var left atomic.Int64
	left.Store(failures)
	return tool.Tool{Tool: model.Tool{Name: "flaky"}, Title: "Flaky", Run: func(_ context.Context, _ json.RawMessage, out func(string) error) (tool.Result, error) {
		if left.Add(-1) >= 0 {
			return tool.Result{}, err
		}
		return tool.Result{Text: "fine"}, nil
	}}
}

func TestFailuresThatMayPassAreRetried(t *testing.T) {
	retry := func(verdict contracts.Verdict) func(*contracts.ServerRequest) contracts.Outcome {
		return func(*contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: verdict, By: contracts.ResolvedByUser}
		}
	}
	broken := Retryable(errors.New("connection reset"))
	tests := []struct {
		name     string
		failures int64
		err      error
		verdict  contracts.Verdict
		asked    int
		want     string // of the result
		ends     contracts.ErrorType
	}{
		{"once", 1, broken, "", 0, "fine", ""},
		{"a timeout", 1, fmt.Errorf("call: %w", context.DeadlineExceeded), "", 0, "fine", ""},
		{"os timeout", 1, fmt.Errorf("call: %w", os.ErrDeadlineExceeded), "", 0, "fine", ""},
		{"until asked", 3, broken, contracts.VerdictRetried, 2, "fine", ""},
		{"skipped", 3, broken, contracts.VerdictSkipped, 1, "connection reset", ""},
		{"aborted", 3, broken, contracts.VerdictAborted, 1, "Run aborted", contracts.ErrorCancelled},
		{"for ever", 100, broken, contracts.VerdictRetried, 10, "connection reset", ""},
		{"one that stays", 1, errors.New("no such thing"), "", 0, "no such thing", contracts.ErrorTool},
	}
	t.Run("not if there may be an effect", func(t *testing.T) {
		for repeats, want := range map[bool]int{false: 1, true: 0} {
			synctest.Test(t, func(t *testing.T) {
				host := hosttest.New(t)
				host.Answer = retry(contracts.VerdictRetried)
				gated := flaky(1, broken)
				gated.Gated, gated.Repeats = true, repeats
				a := start(t, host, Options{Model: newFake(t, says("", callOf("c", "flaky", `{}`)), says("Done.")), Tools: []tool.Tool{gated}, Rules: parsed(t, "flaky", "", "")})
				hosttest.Must(t, a.Run(t.Context(), prompt("go")))
				if got := host.Asked(); len(got) != want {
					t.Errorf("a tool that repeats, %t: got the questions %+v, want %d", repeats, got, want)
				}
			})
		}
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := hosttest.New(t)
				host.Answer = retry(tt.verdict)
				m := newFake(t, says("", callOf("c", "flaky", `{}`), callOf("d", "bash", `{"command":"ls"}`)), says("Done."))
				a := start(t, host, Options{Model: m, Tools: []tool.Tool{flaky(tt.failures, tt.err), bash(echo)}, Rules: parsed(t, "bash", "", "")})
				began := time.Now()
				err := a.Run(t.Context(), prompt("go"))
				own, _ := errors.AsType[*contracts.Error](err)
				if (err != nil) != (tt.ends != "") || err != nil && own.Type != tt.ends {
					t.Fatalf("got %v, want an end of type %q", err, tt.ends)
				}
				if tt.ends == "" && time.Since(began) != toolDelay {
					t.Errorf("took %s, want one delay of %s", time.Since(began), toolDelay)
				}
				if tt.ends != "" {
					hosttest.Must(t, a.Run(t.Context(), prompt("go on")))
				}
				if got := results(m.request(1))[0]; !strings.Contains(got.Text, tt.want) || got.IsError == (tt.want == "fine") {
					t.Errorf("the model was told %+v, want %q", got, tt.want)
				}
				asked := host.Asked()
				if len(asked) != tt.asked {
					t.Fatalf("got %d questions, want %d", len(asked), tt.asked)
				}
				for i, req := range asked {
					var args retryArgs
					hosttest.Must(t, json.Unmarshal(req.Args, &args))
					if req.RequestID != fmt.Sprintf("%s:retry:%d", req.CallID, i+1) || args.ToolCallID != req.CallID || args.Attempt != i+1 || args.ErrorMessage != "connection reset" || string(args.Args) != "{}" {
						t.Errorf("got question %+v with %s", req, req.Args)
					}
				}
			})
		})
	}
}

func TestPanickingToolIsAFailure(t *testing.T) {
	boom := tool.Tool{Tool: model.Tool{Name: "boom"}, Run: func(context.Context, json.RawMessage, func(string) error) (tool.Result, error) { panic("boom") }}
	m := newFake(t, says("", callOf("a", "boom", `{}`), callOf("b", "boom", `{"x":1}`)), says("Oh."))
	a := start(t, hosttest.New(t), Options{Model: m, Tools: []tool.Tool{boom}})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	if got := results(m.request(1)); len(got) != 2 || !got[0].IsError || !got[1].IsError {
		t.Errorf("the model was told %+v, want two failures", got)
	}
}

func TestInterruptAnswersEveryCall(t *testing.T) {
	host := hosttest.New(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	hang := func(ctx context.Context, _ string, _ func(string) error) (tool.Result, error) {
		cancel(errInterrupted)
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	}
	m := newFake(t, says("Three.", callOf("a", "read", `{"path":"x"}`), callOf("b", "bash", `{"command":"hang"}`), callOf("c", "bash", `{"command":"ls"}`)), says("Yes?"))
	a := start(t, host, Options{Model: m, Tools: append(fileTools(t.TempDir()), bash(hang))})
	if err := a.Run(ctx, prompt("go")); !errors.Is(err, errInterrupted) {
		t.Errorf("got %v, want the cause", err)
	}
	checkValid(t, a.Agent)
	hosttest.Must(t, a.Run(t.Context(), prompt("still there?")))
	got := results(m.request(1))
	if len(got) != 3 || got[1].Text != "Interrupted: it may have run in part." || got[2].Text != "Not run: interrupted." {
		t.Errorf("the model was told %+v, want what ran and what did not", got)
	}
}

func TestInterruptWhileAPersonIsAsked(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	m := newFake(t, says("", callOf("a", "bash", `{"command":"ls"}`)), says("Yes?"))
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}})
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, prompt("go")) }() // ends with the interrupt
	host.AwaitType("server_request")
	cancel(errInterrupted)
	if err := <-ended; !errors.Is(err, errInterrupted) {
		t.Errorf("got %v, want the cause", err)
	}
	hosttest.Must(t, a.Run(t.Context(), prompt("still there?")))
	if got := results(m.request(1))[0]; got.Text != "Not run: interrupted." {
		t.Errorf("the model was told %+v", got)
	}
}

func TestLongResultsAreBounded(t *testing.T) {
	huge := func(context.Context, string, func(string) error) (tool.Result, error) {
		return tool.Result{Text: strings.Repeat("é", 1<<20), Images: []model.Image{{MimeType: "image/png", Data: []byte{1}}}}, nil
	}
	host := hosttest.New(t)
	m := newFake(t, says("", callOf("a", "bash", `{"command":"ls"}`)), says("Much."))
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(huge)}})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	got := results(m.request(1))[0]
	if len(got.Text) > maxResultBytes+100 || !strings.Contains(got.Text, "bytes left out") || len(got.Images) != 1 {
		t.Errorf("the model was told %d bytes and %d images", len(got.Text), len(got.Images))
	}
	if shown := host.Output(); len(shown) > maxShownBytes+200 || !strings.HasSuffix(shown, "\n[image:image/png]") {
		t.Errorf("clients were shown %d bytes", len(shown))
	}
}

func TestToolsOfServersAndClients(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = func(req *contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictCompleted, By: contracts.ResolvedByClient, Content: []contracts.ContentBlock{
			{Type: "text", Text: "opened"}, {Type: "image", Data: "AQI=", MimeType: "image/png"}, {Type: "image", Data: "!"},
		}}
	}
	remote := bash(echo)
	remote.Name, remote.Gated = "mcp__sh__run", false
	shadowed := bash(nil)
	servers := func(context.Context) []tool.Tool { return []tool.Tool{remote, shadowed} }
	m := newFake(t, says("", callOf("a", "mcp__sh__run", `{"command":"x"}`), callOf("b", "open_editor", `{"file":"README.md","token":"t"}`)), says("Done."))
	a := New(Options{Model: m, Name: "local/x", Workspace: at(t, t.TempDir()), Log: slog.New(slog.DiscardHandler), ServerTools: servers, Tools: []tool.Tool{bash(echo)}, ClientTools: func() []model.Tool {
		return []model.Tool{{Name: "open_editor"}, {Name: "ask_user"}}
	}})
	info, err := a.Start(t.Context(), host)
	hosttest.Must(t, err)
	if info.Model != "x" || info.Provider != "local" {
		t.Errorf("got %+v, want model x of local", info)
	}
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	var names []string
	for _, o := range m.request(0).Tools {
		names = append(names, o.Name)
	}
	if want := []string{"ask_user", "bash", "mcp__sh__run", "open_editor"}; !slices.Equal(names, want) {
		t.Errorf("got tools %q, want %q", names, want)
	}
	req := host.Asked()[0]
	if req.RequestType != contracts.RequestClientTool || req.Reason != "Client tool open_editor requires local execution" || string(req.Args) != `{"file":"README.md","token":"t"}` {
		t.Errorf("got %+v with %s, want the real arguments", req, req.Args)
	}
	got := results(m.request(1))
	if got[0].Text != "ran x" || got[1].Text != "opened\n[an image that could not be read]" || len(got[1].Images) != 1 {
		t.Errorf("the model was told %+v", got)
	}
	hosttest.Must(t, a.Close(t.Context()))
}

func TestClientToolThatFailsIsTold(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = func(req *contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictFailed, By: contracts.ResolvedByPolicy, Reason: "Client tool execution timed out"}
	}
	m := newFake(t, says("", callOf("b", "open_editor", `{}`)), says("Done."))
	a := start(t, host, Options{Model: m, ClientTools: func() []model.Tool { return []model.Tool{{Name: "open_editor"}} }})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	if got := results(m.request(1))[0]; !got.IsError || !strings.HasSuffix(got.Text, "Client tool execution timed out") {
		t.Errorf("the model was told %+v", got)
	}
}

func TestPanicLeavesAValidHistory(t *testing.T) {
	bad := bash(echo)
	bad.Brief = func(json.RawMessage) (string, string) { panic("no label") }
	m := newFake(t, says("", callOf("a", "bash", `{"command":"ls"}`)), says("Fine."))
	host := hosttest.New(t)
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bad}})
	func() {
		defer func() {
			if recover() == nil { // the hub does this
				t.Error("got no panic")
			}
		}()
		_ = a.Run(t.Context(), prompt("go"))
	}()
	checkValid(t, a.Agent)
	hosttest.Must(t, a.Run(t.Context(), prompt("go on")))
}

func TestClientToolMayNeedApproval(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = func(req *contracts.ServerRequest) contracts.Outcome {
		if req.RequestType == contracts.RequestApproval {
			return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
		}
		return contracts.Outcome{Verdict: contracts.VerdictCompleted, By: contracts.ResolvedByClient}
	}
	m := newFake(t, says("", callOf("b", "open_editor", `{}`)), says("Done."))
	a := start(t, host, Options{Model: m, Rules: parsed(t, "", "open_editor", ""), ClientTools: func() []model.Tool { return []model.Tool{{Name: "open_editor"}} }})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	asked := host.Asked()
	if len(asked) != 2 || asked[0].RequestID == asked[1].RequestID || asked[0].CallID != asked[1].CallID {
		t.Errorf("got %+v, want two questions about one call", asked)
	}
}

func TestHistoryThatCannotBeWrittenEndsTheRun(t *testing.T) {
	m := newFake(t, says("", callOf("a", "bash", `{"command":"break"}`)), says("Fine."))
	var a *session
	broken := bash(func(context.Context, string, func(string) error) (tool.Result, error) {
		hosttest.Must(t, a.journal.file.Close()) // as a disk that is gone
		return tool.Result{Text: "ran"}, nil
	})
	state := t.TempDir()
	a = start(t, hosttest.New(t), Options{Model: m, StateDir: state, Tools: []tool.Tool{broken}})
	if err := a.Run(t.Context(), prompt("go")); err == nil || !strings.Contains(err.Error(), "write history") {
		t.Errorf("got %v, want an error about the history", err)
	}
	checkValid(t, a.Agent)
	a.journal.file = nil
	hosttest.Must(t, a.Run(t.Context(), prompt("go on")))
	if got := results(m.request(1))[0]; got.Text != "ran" {
		t.Errorf("the model was told %+v, want what ran", got)
	}
	again, err := openJournal(state, quiet)
	hosttest.Must(t, err)
	if string(args(t, again.messages)) != string(args(t, a.journal.messages)) {
		t.Errorf("got %s on disk, want %s", args(t, again.messages), args(t, a.journal.messages))
	}
	hosttest.Must(t, again.close())
}

// A prompt that steers the run reaches the model with its next request, also if the
// model was about to end.
func TestSteeringReachesTheModel(t *testing.T) {
	host := hosttest.New(t)
	last := func(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
		host.Steer("/rules") // answered without the model
		host.Steer("and test")
		return says("Done.")(ctx, req, say)
	}
	m := newFake(t, says("I run it.", callOf("toolu_1", "bash", `{"command":"make"}`)), last, says("Also done."))
	run := func(_ context.Context, _ string, _ func(string) error) (tool.Result, error) {
		host.Steer("use ninja")
		return tool.Result{Text: "built"}, nil
	}
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(run)}})
	hosttest.Must(t, a.Run(t.Context(), prompt("build")))
	for i, want := range []string{"use ninja", "and test"} {
		messages := m.request(i + 1).Messages
		if last := textOf(messages[len(messages)-1]); last != want {
			t.Errorf("request %d: got %q at the end, want %q", i+1, last, want)
		}
	}
	if said := host.Said(); !strings.Contains(said, "No answer is remembered") {
		t.Errorf("got %q, want an answer to /rules", said)
	}
}
