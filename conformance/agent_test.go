package conformance_test

import (
	"errors"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// shellPrompts are what the shell agent answers, takes its time for, and asks about.
var shellPrompts = conformance.Prompts{Say: "echo hello", Long: "sleep 30", Ask: "echo asked"}

// aboutAgents are the scenarios about any agent, and some that most of them cannot
// take part in.
var aboutAgents = regexp.MustCompile("^(agent|run|request|state|interrupt|post)/")

// TestServerPassesWithAnyAgent judges the server with agents that need neither a key
// nor a network, on every transport.
func TestServerPassesWithAnyAgent(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(localmodel.New(localmodel.Options{}))
	t.Cleanup(model.Close)
	example := filepath.Join(t.TempDir(), "acp-agent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", example, "github.com/coder/acp-go-sdk/example/agent").CombinedOutput(); err != nil {
		t.Fatalf("build the example agent: %v\n%s", err, out)
	}
	same := conformance.Prompts{Say: "hello", Long: "hello", Ask: "hello"} // whatever is said, it does the same
	only := regexp.MustCompile("^agent/")
	type row struct {
		agent   []string
		prompts conformance.Prompts
		filter  *regexp.Regexp
		on      conformance.Transport
	}
	var rows []row
	for _, on := range []conformance.Transport{onStdio, onSocket, onHTTP} {
		rows = append(rows,
			row{[]string{"--agent", "acp:" + example}, same, only, on},
			row{[]string{"--agent", "llm:anthropic/local", "--model-url", model.URL}, conformance.DefaultPrompts(), aboutAgents, on},
			row{[]string{"--agent", "llm:openai/local", "--model-url", model.URL + "/v1"}, conformance.DefaultPrompts(), only, on},
			row{[]string{"--agent", "llm:openai-chat/local", "--model-url", model.URL + "/v1"}, conformance.DefaultPrompts(), only, on},
			row{[]string{"--agent", "shell"}, shellPrompts, only, on})
	}
	sideBySide(3, rows, func(row row) {
		c := subject{on: row.on, agent: row.agent}.config(t)
		c.Runtime, c.Prompts, c.Filter = conformance.RuntimeAny, row.prompts, row.filter
		report := judgeTwice(t, c) // scenarios cannot tell what an interrupted agent says late from what the next run says
		passes(t, report)
		for _, r := range report.Results {
			if strings.HasPrefix(r.Name, "agent/") && r.Outcome == conformance.Skipped && !strings.HasSuffix(r.Reason, " target") {
				t.Errorf("%v on %s: %s: got skipped, %s, want it judged", row.agent, row.on, r.Name, r.Reason)
			}
		}
	})
}

func TestOtherAgentEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, on := range []conformance.Transport{onStdio, onSocket, onHTTP, onHosted} {
		_, err := conformance.Maestro().Run(t.Context(), anyAgent(on).config(t))
		if !errors.Is(err, conformance.ErrOtherAgent) || !strings.Contains(err.Error(), "--agent conformance") || !strings.Contains(err.Error(), "--runtime any") {
			t.Errorf("%s: got error %v, want ErrOtherAgent and what to do", on, err)
		}
	}
}

func TestWhatNeedsAnotherAgentIsSkipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, run, reason string
		config            conformance.Config
	}{
		{"triggers", "^(run/busy|stream/same-for-all|resume/missed-items)$", "needs the conformance agent", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: shellPrompts}},
		{"status", "^(framing/line-separators|answer/idempotent)$", "needs the conformance agent", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: shellPrompts}},
		{"say", "^agent/(answers|fold)$", "needs a prompt that is answered", conformance.Config{Runtime: conformance.RuntimeAny}},
		{"long", "^agent/interrupt$", "needs a prompt that takes a while to answer", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: conformance.Prompts{Say: "echo hello"}}},
		{"ask", "^agent/denied$", "needs a prompt that leads to an approval", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: conformance.Prompts{Say: "echo hello"}}},
		{"tools", "^agent/(denied|tools|summary)$", "needs an agent that runs tools", conformance.Config{}},
	} {
		c.config.Target, c.config.Filter = anyAgent(onSocket).config(t).Target, regexp.MustCompile(c.run)
		if c.config.Runtime == "" {
			c.config.Target = subject{on: onSocket}.config(t).Target
		}
		for _, r := range judge(t, c.config).Results {
			if r.Outcome != conformance.Skipped || r.Reason != c.reason {
				t.Errorf("%s: %s: got %s %q %+v, want it skipped: %s", c.name, r.Name, r.Outcome, r.Reason, r.Failure, c.reason)
			}
		}
	}
}
