package lines_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// play runs a story in a scenario about the rule X1, with a command as the server.
func play(t *testing.T, command string, story func(*lines.Play)) conformance.Result {
	t.Helper()
	suite := &conformance.Suite{Protocol: "x", Check: lines.CheckTarget, Scenarios: []conformance.Scenario{lines.Scenario("a/b", "X1", "", story)}}
	report, err := suite.Run(t.Context(), conformance.Config{Target: "stdio:" + command, Patience: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return report.Results[0]
}

func passes(t *testing.T, r conformance.Result) {
	t.Helper()
	if r.Outcome != conformance.Passed {
		t.Errorf("got %s %s %+v, want a pass", r.Outcome, r.Reason, r.Failure)
	}
}

// post asks the model, as an agent does.
func post(t *testing.T, m *lines.Model, body string) string {
	t.Helper()
	resp, err := http.Post(m.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestModelAnswersByPromptAndStep(t *testing.T) {
	t.Parallel()
	passes(t, play(t, "true", func(p *lines.Play) {
		p.Model.On("count", lines.Reply{Text: "one", Calls: []lines.Call{lines.Shell("ls")}}, lines.Reply{Text: "two", Usage: []int{1, 2, 3}})
		const tools = `"tools":[{"function":{"name":"bash","parameters":{"required":["command","timeout","why"],"properties":{"timeout":{"type":"integer"},"why":{"enum":["a","b"]}}}}}]`
		for _, row := range []struct {
			body, want string
			no         string
		}{
			{`{"messages":[{"role":"user","content":"count"}],` + tools + `}`, `"content":"one"`, "data:"},
			{`{"messages":[{"role":"user","content":"count"}],` + tools + `}`, `{\"command\":\"ls\",\"timeout\":30,\"why\":\"a\"}`, "data:"},
			{`{"messages":[{"role":"user","content":"count"}]}`, `"finish_reason":"stop"`, "tool_calls"},
			{`{"stream":true,"messages":[{"role":"user","content":"count"},{"role":"assistant","content":""}]}`, `"total_tokens":3`, "one"},
			{`{"messages":[{"role":"user","content":"count"},{"role":"assistant"},{"role":"assistant"}]}`, "Done.", "two"},
			{`{"messages":[{"role":"user","content":"other"}]}`, "Done.", `"one"`},
			{`not json`, "invalid", "choices"},
		} {
			got := post(t, p.Model, row.body)
			if !strings.Contains(got, row.want) || strings.Contains(got, row.no) {
				t.Errorf("%s: got %s, want %s and no %s", row.body, got, row.want, row.no)
			}
		}
		if n := len(p.Model.Requests("count")); n != 5 {
			t.Errorf("got %d requests with the prompt, want 5", n)
		}
	}))
}

func TestServerGetsTheModelAndAHomeOfItsOwn(t *testing.T) {
	t.Parallel()
	const script = `sh -c 'printf "{\"model\":\"%s\",\"key\":\"%s\",\"home\":\"%s\",\"dir\":\"%s\",\"flag\":\"%s\"}\n" "$X_BASE_URL" "$X_API_KEY" "$HOME" "$PWD" "$0"'`
	passes(t, play(t, script, func(p *lines.Play) {
		c := p.Start(lines.Setup{Env: p.Environ("X_BASE_URL", "/v1"), Flags: []string{"flag"}, Framed: "X1"})
		all, status := c.Exit(10 * time.Second)
		p.FailIf(status != 0 || len(all) != 1, "got %d lines and status %d", len(all), status)
		l := all[0]
		p.FailIf(l.Str("model") != p.Model.URL+"/v1" || l.Str("key") != "conformance" || l.Str("home") != p.Home || l.Str("dir") != p.Dir || l.Str("flag") != "flag", "got %s", l)
	}))
}

func TestBadLinesAndSilenceAreFailures(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"echo hello":           `expected one JSON object on each line of standard output, got "hello"`,
		"sh -c 'echo why >&2'": "expected a line, but the output ended (EOF); the last line before was: nothing; standard error: why",
		"sh -c 'echo {}; cat'": "expected a line within 300ms; the last line was: {}",
		"sh -c 'printf {}'":    "output ends without a line feed",
	} {
		r := play(t, command, func(p *lines.Play) {
			c := p.Start(lines.Setup{Framed: "X2"})
			c.UntilWithin(lines.Quiet, "a line", func(lines.Line) bool { return false })
		})
		if r.Failure == nil || !strings.Contains(r.Failure.Message, want) {
			t.Errorf("%s: got %+v, want %s", command, r.Failure, want)
		}
	}
}

func TestOnlyRunningProcessesAreAlive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	if _, known := lines.Alive(path, 0); known {
		t.Error("got a process from a file that is not there")
	}
	own, _ := json.Marshal(os.Getpid())
	if err := os.WriteFile(path, append(own, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if alive, known := lines.Alive(path, 0); !alive || !known {
		t.Error("got no process, want this one")
	}
}

func TestOtherTargetsAreRefused(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"", "ws://127.0.0.1:1", "stdio:", "stdio:no-such-program-here"} {
		if err := lines.CheckTarget(context.Background(), &conformance.Config{Target: target}, nil); err == nil {
			t.Errorf("%q: got no error", target)
		}
	}
}
