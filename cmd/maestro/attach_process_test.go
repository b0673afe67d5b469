//go:build unix

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// A piping is what is piped into attach, and what is expected of it.
type piping struct {
	lines string
	code  int
	want  []string
	never string
}

// pipes has attach take lines, one piping after the other, in one session.
func (r *running) pipes(all ...piping) {
	r.t.Helper()
	for _, p := range all {
		cmd := program(r.t, "attach", "--no-history", "--token-file", r.ready.TokenFile, r.ready.WSURL)
		cmd.Stdin = strings.NewReader(p.lines)
		out, err := cmd.CombinedOutput()
		if got := exitCode(r.t, err); got != p.code {
			r.t.Errorf("%q: got exit code %d, want %d; output:\n%s", p.lines, got, p.code, out)
		}
		for _, want := range p.want {
			if !strings.Contains(string(out), want) {
				r.t.Errorf("%q: got\n%s\nwant %q in it", p.lines, out, want)
			}
		}
		if p.never != "" && strings.Contains(string(out), p.never) {
			r.t.Errorf("%q: got\n%s\nwant no %q in it", p.lines, out, p.never)
		}
	}
}

func TestApprovalsOfOurLoopShowAllAndMayBeRemembered(t *testing.T) {
	t.Parallel()
	_, url := modelServer(t, localmodel.Options{})
	r := serving(t, "--agent", "llm:openai-chat/local", "--model-url", url)
	long := strings.Repeat("echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa && ", 20) + "echo the end"
	r.pipes(
		piping{`call bash {"command":"` + long + `"}` + "\nn\n", 0, []string{"\n  $ " + long + "\n", "-- denied by you\n"}, "…\n  y"},
		piping{"call bash {\"command\":\"echo 1\\necho 2\"}\ny remember\n", exitFailure,
			[]string{"* bash $ echo 1⏎echo 2\n", "  $ echo 1\n    echo 2\n", "! not sent: y alone approves. "}, "done"},
		piping{"/interrupt\ncall bash {\"command\":\"echo once\"}\na\ncall bash {\"command\":\"echo once\"}\n", 0,
			[]string{"a = approve, always in this session", "-- approved by you, always in this session\n"}, "no more lines"},
		piping{"fault unauthorized\n", exitRunFailed, []string{"! error"}, ""},
	)
}

func TestOptionsOfAnAgentAreChosenByNumber(t *testing.T) {
	t.Parallel()
	spec, _ := exampleAgent(t)
	r := serving(t, "--agent", spec)
	r.pipes(
		piping{"improve\n2\n", 0, []string{"  at /home/user/project/config.json\n", "    2. Skip this change (reject once, reject)\n",
			"  a number, y = 1, n [reason] = 2\n", "-- denied by you: 2. Skip this change", "I'll skip"}, "_acp"},
		piping{"improve\n3\n", exitFailure, []string{"! there is no option 3"}, ""},
		piping{"/interrupt\nimprove\n1\n", 0, []string{"-- approved by you: 1. Allow this change", "successfully updated"}, "_acp"},
	)
}

func TestFormIsFilledInThroughAPipe(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "form.json")
	text := `{"default":[{"ask":{"type":"mcp_elicitation","tool":"elicit","timeout_ms":-1,"args":` + someForm + `,
		"on":{"answered":[{"say":"thank you"}]}}}]}`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := serving(t, "--agent", "script:"+script)
	r.pipes(
		piping{"go\naccept {\"name\":\"Ada\",\"ok\":true}\n", 0, []string{"  name: text, 2 to 5 characters, required - Full name\n", "thank you"}, "requestedSchema"},
		piping{"go\nAda\n7\nred\na\na@b.c\nyes\n", 0, []string{"thank you"}, ""},
		piping{"go\n{\"name\":7}\n", exitFailure, []string{"! name: want text, 2 to 5 characters"}, "thank you"},
		piping{"/interrupt\ngo\ndecline\n", 0, []string{"thank you"}, ""},
	)
}

func TestAttachSaysThatAServerSpeaksHTTP(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(webServer(t, http.NotFoundHandler()), "http://")
	for _, scheme := range []string{"https", "wss"} {
		out, err := program(t, "attach", scheme+"://"+address).CombinedOutput()
		if want := address + " speaks http, not https: want http://" + address; exitCode(t, err) != exitFailure || !strings.Contains(string(out), want) {
			t.Errorf("got %s, %v; want %q", out, err, want)
		}
	}
}

func TestAttachSaysWhatAnswersInPlaceOfAServer(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(webServer(t, http.NotFoundHandler()), "http://")
	out, err := program(t, "attach", address).CombinedOutput()
	if want := address + " is no maestro server: it answers 404 Not Found"; exitCode(t, err) != exitFailure || !strings.Contains(string(out), want) {
		t.Errorf("got %s, %v; want %q", out, err, want)
	}
}
