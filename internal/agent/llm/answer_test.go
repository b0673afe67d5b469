package llm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestYesThatCannotBeReadIsNone(t *testing.T) {
	block := func(text string) []contracts.ContentBlock {
		return []contracts.ContentBlock{{Type: "text", Text: text}}
	}
	for _, out := range []contracts.Outcome{
		{Reason: `{"remember":"session"`},
		{Reason: `{"remember":"session","option_id":"a"}`},
		{Reason: `{"remember":"always"}`},
		{Reason: "Approved", Content: block(`{"remember":"session"`)},
	} {
		host, asked := hosttest.New(t), 0
		out.Verdict, out.By = contracts.VerdictApproved, contracts.ResolvedByUser
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
			if asked++; asked > 1 {
				return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
			}
			return out
		}
		m := newFake(t, says("", callOf("a", "bash", `{"command":"make"}`)), says("", callOf("b", "bash", `{"command":"make"}`)), says("Done."))
		a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}})
		hosttest.Must(t, a.Run(t.Context(), prompt("go")))
		first, second := results(m.request(1))[0], results(m.request(2))[0]
		if !first.IsError || !strings.Contains(first.Text, "could not be read") || second.Text != "ran make" || asked != 2 {
			t.Errorf("%+v: got %+v and then %+v, %d questions, want it run at the second", out, first, second, asked)
		}
		if got := statuses(host); len(got) != 1 || !strings.HasPrefix(got[0], "Not run: the answer is not understood: ") {
			t.Errorf("%+v: got statuses %q, want one that says why", out, got)
		}
		ends := hosttest.As[*contracts.ToolEnd](host)
		if ends[0].Success || ends[0].GovernedOutcome != "denied" {
			t.Errorf("%+v: got the end %+v, want denied", out, ends[0])
		}
	}
}

func TestWhatIsRememberedCanBeSeenAndTakenBack(t *testing.T) {
	host, state := hosttest.New(t), t.TempDir()
	host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session","rule":"bash(go test:*)"}`, By: contracts.ResolvedByUser}
	}
	call := says("", callOf("a", "bash", `{"command":"go test ./..."}`))
	m := newFake(t, call, says("One."), call, says("Two."), call, says("Three."), says("Four."))
	a := start(t, host, Options{Model: m, StateDir: state, Tools: []tool.Tool{bash(echo)}})
	told := func(text string) string {
		t.Helper()
		was := len(host.Said())
		hosttest.Must(t, a.Run(t.Context(), prompt(text)))
		return host.Said()[was:]
	}
	if got := told("/rules"); got != "No answer is remembered for the session." {
		t.Errorf("got %q, want that nothing is remembered", got)
	}
	told("go")
	if got := told(" /rules\n"); !strings.Contains(got, "\n- allow bash(go test:*)") {
		t.Errorf("got %q, want the rule word for word", got)
	}
	if got := told("/forget bash(go vet:*)"); !strings.Contains(got, "no rule to forget") || !strings.Contains(got, "- allow bash(go test:*)") {
		t.Errorf("got %q, want that there is none, and what there is", got)
	}
	told("go")
	if got := len(host.Asked()); got != 1 {
		t.Errorf("got %d questions, want 1 while the answer is remembered", got)
	}
	if got := told("/forget bash(go test:*)"); got != "Forgotten: allow bash(go test:*)" {
		t.Errorf("got %q, want that it is forgotten", got)
	}
	a = start(t, host, Options{Model: m, StateDir: state, Tools: []tool.Tool{bash(echo)}}) // another process
	if got := told("/rules"); got != "No answer is remembered for the session." {
		t.Errorf("got %q after a restart, want that nothing is remembered", got)
	}
	told("go")
	if got := len(host.Asked()); got != 2 {
		t.Errorf("got %d questions, want 2 once it is forgotten", got)
	}
	told("/rules of the house") // is for the model
	for _, msg := range m.request(6).Messages {
		for _, p := range msg.Parts {
			if p.Text != nil && (strings.HasPrefix(*p.Text, "/forget") || *p.Text == "/rules") {
				t.Errorf("the model was told %q", *p.Text)
			}
		}
	}
}

func TestWhatIsRememberedIsShownWithoutSecrets(t *testing.T) {
	host := hosttest.New(t)
	a := start(t, host, Options{Model: newFake(t), Tools: []tool.Tool{bash(echo)}})
	hosttest.Must(t, a.journal.add(record{Rule: &remembered{allow, "bash(API_TOKEN=hunter22 make)"}})) // as older versions did
	hosttest.Must(t, a.Run(t.Context(), prompt("/rules")))
	hosttest.Must(t, a.Run(t.Context(), prompt("/forget bash(API_TOKEN=*** make)")))
	if all := strings.Join(statuses(host), " ") + host.Said(); strings.Contains(all, "hunter22") || !strings.Contains(all, "Forgotten: allow bash(API_TOKEN=*** make)") {
		t.Errorf("got %q, want no secret, and the rule forgotten as it is shown", all)
	}
}

func TestRulesAreForgottenAsTheyAreListed(t *testing.T) {
	for command, forms := range map[string][]string{
		"make all":          {"bash(make all)", "allow bash(make all)", "- allow bash(make all)"},
		"make a\n\tmake  b": {"- allow bash(make a\n  \tmake  b)", "allow bash(make a make b)", "bash(make a make b)"},
	} {
		for _, form := range forms {
			host := hosttest.New(t)
			host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session"}`, By: contracts.ResolvedByUser}
			}
			m := newFake(t, says("", callOf("a", "bash", string(args(t, map[string]string{"command": command})))), says("Done."))
			a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}})
			hosttest.Must(t, a.Run(t.Context(), prompt("go")))
			hosttest.Must(t, a.Run(t.Context(), prompt("/rules")))
			if listed := "\n- allow bash(" + strings.ReplaceAll(command, "\n", "\n  ") + ")"; !strings.Contains(host.Said(), listed) {
				t.Errorf("got %q, want %q in it", host.Said(), listed)
			}
			hosttest.Must(t, a.Run(t.Context(), prompt("/forget deny "+form)))
			if strings.Contains(host.Said(), "Forgotten") {
				t.Errorf("/forget deny %s: got %q, want nothing forgotten", form, host.Said())
			}
			hosttest.Must(t, a.Run(t.Context(), prompt("/forget "+form)))
			if !strings.Contains(host.Said(), "Forgotten: allow bash(make") {
				t.Errorf("/forget %s: got %q, want it forgotten", form, host.Said())
			}
		}
	}
}

func TestLateYesThatCannotBeReadIsNone(t *testing.T) {
	host := hosttest.New(t)
	host.Earlier = true
	m := newFake(t, says("Well."))
	a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}})
	host.Announced("call_1")
	out := contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session"`, By: contracts.ResolvedByUser}
	hosttest.Must(t, a.Resume(t.Context(), &contracts.ServerRequest{
		RequestID: "call_1", RequestType: contracts.RequestApproval, CallID: "call_1", Tool: "bash", Args: []byte(`{"command":"make"}`),
	}, out))
	if host.Output() != "" || len(statuses(host)) != 1 || hosttest.As[*contracts.ToolEnd](host)[0].GovernedOutcome != "denied" {
		t.Errorf("got output %q and statuses %q, want the call denied and said why", host.Output(), statuses(host))
	}
}

func TestPathThatLeadsElsewhereIsNotRemembered(t *testing.T) {
	host, dir := hosttest.New(t), t.TempDir()
	hosttest.Must(t, os.Symlink("b", filepath.Join(dir, "a")))
	host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session"}`, By: contracts.ResolvedByUser}
	}
	m := newFake(t, says("", callOf("a", "write", `{"path":"a","text":"x"}`)), says("Done."))
	a := start(t, host, Options{Model: m, Workspace: at(t, dir), Tools: fileTools(dir)})
	hosttest.Must(t, a.Run(t.Context(), prompt("go")))
	const want = "Not remembered: the rule write(a) does not match this call, whose path leads to b"
	if got := statuses(host); len(got) != 1 || got[0] != want {
		t.Errorf("got statuses %q, want %q", got, want)
	}
}
