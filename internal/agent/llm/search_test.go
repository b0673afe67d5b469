package llm

import (
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestRulesHoldForSearchesOfWhatIsAbove(t *testing.T) {
	const word, named, both = `{"pattern":"word"}`, `{"pattern":"word","path":"secret"}`, "open\nsecret/key\n"
	tests := []struct {
		allowed, asked, denied string
		tool, args             string
		questions              int
		want                   string
	}{
		{"", "", "", "grep", word, 0, both},
		{"", "", "read(secret/**)", "grep", word, 0, "open\n[1 file left out"},
		{"", "", "grep(secret/**)", "grep", word, 0, "open\n[1 file left out"},
		{"", "", "read(**/key)", "grep", named, 0, "No matches.\n[1 file left out"},
		{"", "", "read(secret/**)", "grep", named, 0, "The rule read(secret/**) denies it"},
		{"", "", "read(secret/**)", "grep", `{"pattern":"word","path":"secret/key"}`, 0, "The rule read(secret/**) denies it"},
		{"", "read(secret/**)", "", "grep", word, 0, "open\n[1 file left out"},
		{"", "read(secret/**)", "", "grep", named, 1, "secret/key\n"},
		{"", "read(secret/**)", "read(secret/key)", "grep", named, 1, "No matches.\n[1 file left out"},
		{"", "grep", "", "grep", word, 1, both},
		{"read(open)", "", "read", "grep", word, 0, "The rule read denies it"},
		{"read(open)", "", "read", "grep", `{"pattern":"word","path":"open"}`, 0, "open\n"},
		{"read(secret/**)", "", "grep(secret/**)", "grep", word, 0, "open\n[1 file left out"},
		{"", "", "glob(secret/**)", "grep", word, 0, both},
		{"", "", "glob(secret/**)", "glob", `{"pattern":"**"}`, 0, "open\n[1 file left out"},
		{"", "glob(secret/**)", "", "glob", `{"pattern":"**"}`, 0, "open\n[1 file left out"},
		{"", "glob(secret/**)", "", "glob", `{"pattern":"**","path":"secret"}`, 1, "secret/key\n"},
	}
	for _, tt := range tests {
		work := at(t, t.TempDir())
		hosttest.Must(t, work.WriteFile("open", []byte("word\n")))
		hosttest.Must(t, work.WriteFile("secret/key", []byte("word\n")))
		host := hosttest.New(t)
		m := newFake(t, says("", callOf("a", tt.tool, tt.args)), says("So."))
		a := start(t, host, Options{Model: m, Workspace: work, Tools: (&tool.Kit{Workspace: work}).Tools(), Rules: parsed(t, tt.allowed, tt.asked, tt.denied)})
		hosttest.Must(t, a.Run(t.Context(), prompt("look")))
		got := results(m.request(1))[0].Text
		if tt.tool == "glob" { // the newest first
			got = strings.Replace(got, "secret/key\nopen\n", both, 1)
		}
		if n := len(host.Asked()); n != tt.questions || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %s with allow %q ask %q deny %q: got %q after %d questions, want %q after %d",
				tt.tool, tt.args, tt.allowed, tt.asked, tt.denied, got, n, tt.want, tt.questions)
		}
	}
}

func TestRememberedSearchesAreNotAskedAboutAgain(t *testing.T) {
	work := at(t, t.TempDir())
	hosttest.Must(t, work.WriteFile("secret/key", []byte("word\n")))
	host := hosttest.New(t)
	host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: `{"remember":"session","rule":"grep(secret/**)"}`, By: contracts.ResolvedByUser}
	}
	look := func(id, path string) model.Call { return callOf(id, "grep", `{"pattern":"word","path":"`+path+`"}`) }
	m := newFake(t, says("", look("a", "secret")), says("", look("b", "secret/key")), says("", look("c", ".")), says("So."))
	a := start(t, host, Options{Model: m, Workspace: work, Tools: (&tool.Kit{Workspace: work}).Tools(), Rules: parsed(t, "", "read(secret/**)", "")})
	hosttest.Must(t, a.Run(t.Context(), prompt("look")))
	if n := len(host.Asked()); n != 1 {
		t.Errorf("got %d questions, want the first alone", n)
	}
	for i := 1; i <= 3; i++ {
		if got := results(m.request(i))[0].Text; got != "secret/key\n" {
			t.Errorf("search %d: got %q, want the file", i, got)
		}
	}
}
