package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestScriptErrorsNameThePlace(t *testing.T) {
	deep := strings.Repeat(`{"repeat":{"times":1,"steps":[`, maxScriptDepth) + `{"say":"x"}` + strings.Repeat(`]}}`, maxScriptDepth)
	for _, c := range []struct{ script, want string }{
		{`[]`, `$: must be an object`},
		{`{"modle":"m"}`, `$.modle: unknown key`},
		{`{"model":""}`, `$.model: must not be empty`},
		{`{"provider":null}`, `$.provider: must be a string`},
		{`{"default":{}}`, `$.default: must be a list`},
		{`{"default":null}`, `$.default: must be a list`},
		{`{"prompts":[{"match":"x"}]}`, `$.prompts[0].steps: is missing`},
		{`{"prompts":[{"match":1,"steps":[]}]}`, `$.prompts[0].match: must be a string`},
		{`{"prompts":[{"steps":[]},{"steps":[],"then":1}]}`, `$.prompts[1].then: unknown key`},
		{`{"default":[{}]}`, `$.default[0]: a step has exactly one key, this one has 0`},
		{`{"default":[{"say":"a","status":"b"}]}`, `$.default[0]: a step has exactly one key, this one has 2`},
		{`{"default":[{"shout":"a"}]}`, `$.default[0].shout: unknown key`},
		{`{"default":[{"say":7}]}`, `$.default[0].say: must be an object`},
		{`{"default":[{"say":{"chunk":4}}]}`, `$.default[0].say.text: is missing`},
		{`{"default":[{"say":{"text":"a","chunk":0}}]}`, `$.default[0].say.chunk: must be a whole number from 1 to 65536`},
		{`{"default":[{"think":{"text":"a","delay_ms":-1}}]}`, `$.default[0].think.delay_ms: must be a whole number from 0 to`},
		{`{"default":[{"delay_ms":0.5}]}`, `$.default[0].delay_ms: must be a whole number`},
		{`{"default":[{"delay_ms":3600001}]}`, `$.default[0].delay_ms: must be a whole number`},
		{`{"default":[{"tool":{}}]}`, `$.default[0].tool.name: is missing`},
		{`{"default":[{"tool":{"name":"t","gated":"yes"}}]}`, `$.default[0].tool.gated: must be true or false`},
		{`{"default":[{"tool":{"name":"t","success":null}}]}`, `$.default[0].tool.success: must be true or false`},
		{`{"default":[{"tool":{"name":"t","chunk":0}}]}`, `$.default[0].tool.chunk: must be`},
		{`{"default":[{"ask":{"type":"riddle","tool":"t"}}]}`, `$.default[0].ask.type: must be one of`},
		{`{"default":[{"ask":{"type":"approval","tool":"t","timeout_ms":-2}}]}`, `$.default[0].ask.timeout_ms: must be`},
		{`{"default":[{"ask":{"type":"approval","tool":"t","on":{"answered":[]}}}]}`, `$.default[0].ask.on.answered: unknown key`},
		{`{"default":[{"ask":{"type":"approval","tool":"t","on":{"denied":[{"say":1}]}}}]}`, `$.default[0].ask.on.denied[0].say: must be`},
		{`{"default":[{"error":{"message":"m","type":"fatal"}}]}`, `$.default[0].error.type: must be one of`},
		{`{"default":[{"usage":{"total_tokens":1}}]}`, `$.default[0].usage.total_tokens: unknown key`},
		{`{"default":[{"usage":{"input_tokens":-1}}]}`, `$.default[0].usage.input_tokens: must be`},
		{`{"default":[{"compaction":{}}]}`, `$.default[0].compaction.summary: is missing`},
		{`{"default":[{"raw":{"type":"t"}}]}`, `$.default[0].raw.event: is missing`},
		{`{"default":[{"end":false}]}`, `$.default[0].end: must be true`},
		{`{"default":[{"repeat":{"times":0,"steps":[]}}]}`, `$.default[0].repeat.times: must be a whole number from 1`},
		{`{"default":[{"repeat":{"times":2,"steps":[],"rate":0}}]}`, `$.default[0].repeat.rate: must be a number`},
		{`{"default":[{"repeat":{"times":5000001,"steps":[{"end":true},{"end":true}]}}]}`, `$.default: comes to more than 10000000 steps`},
		{`{"default":[{"repeat":{"times":10000000,"steps":[{"repeat":{"times":10000000,"steps":[]}}]}}]}`, `$.default: comes to more than`},
		{`{"default":[{"repeat":{"times":10000000,"steps":[{"say":{"text":"ab","chunk":1}}]}}]}`, `$.default: comes to more than`},
		{`{"default":[` + deep + `]}`, `steps are nested more than 8 deep`},
		{`{"default":[{"raw":{"type":"t","event":"` + strings.Repeat("x", contracts.MaxValueBytes) + `"}}]}`, `$.default[0].raw.event: longer than`},
		{`{"model":"m"`, `line 1: unexpected end`},
		{"{\n\"model\": m}", `line 2: invalid character`},
		{"{\"model\":\"\xff\"}", `not UTF-8`},
		{strings.Repeat(" ", maxScriptBytes+1), `longer than 8388608 bytes`},
	} {
		_, err := parseScript([]byte(c.script))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("script %.120s: got error %v, want one with %q", c.script, err, c.want)
		}
	}
}

func TestScriptIsReadAsWritten(t *testing.T) {
	sc, err := parseScript([]byte("\ufeff" + `{"model":"m","provider":"p","prompts":[{"match":"go","steps":[
		{"ask":{"type":"tool_retry","tool":"bash","timeout_ms":-1,"on":{"retried":[{"end":true}]}}},
		{"repeat":{"times":3,"rate":0.5,"steps":[{"tool":{"name":"t","args":{"n":"{{n}}"}}}]}}]}]}`))
	if err != nil {
		t.Fatalf("parse: got %v, want no error", err)
	}
	if sc.model != "m" || sc.provider != "p" {
		t.Errorf("got model %q of %q, want m of p", sc.model, sc.provider)
	}
	if _, ok := sc.stepsFor("stop"); ok {
		t.Error("a prompt without a match found steps, want none")
	}
	steps, ok := sc.stepsFor("let's go")
	if !ok || len(steps) != 2 {
		t.Fatalf("got %d steps, want 2", len(steps))
	}
	if got := []int64{steps[0].size, steps[1].size}; !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("got steps of sizes %d, want a question with one branch and three calls", got)
	}
	synctest.Test(t, func(t *testing.T) {
		host := &patientHost{Host: hosttest.New(t)}
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: contracts.VerdictRetried, By: contracts.ResolvedByUser}
		}
		began := time.Now()
		s := &Script{scenario: sc, log: slog.New(slog.DiscardHandler), host: host}
		hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: "let's go"}))
		if req := host.Asked()[0]; req.RequestType != contracts.RequestToolRetry || host.timeout >= 0 {
			t.Errorf("got %+v with a timeout of %v, want a retry that never expires", req, host.timeout)
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("got a run of %v, want 4s: a period of 2s between three calls", took)
		}
		if calls := hosttest.As[*contracts.ToolCall](host.Host); len(calls) != 3 || string(calls[2].Args) != `{"n":"3"}` {
			t.Errorf("got calls %+v, want three with their numbers in place", calls)
		}
	})
}

// A patientHost notes how long it may take to answer a question.
type patientHost struct {
	*hosttest.Host
	timeout time.Duration
}

func (h *patientHost) Ask(ctx context.Context, req *contracts.ServerRequest, opts contracts.AskOptions) (contracts.Outcome, error) {
	h.timeout = opts.Timeout
	return h.Host.Ask(ctx, req, opts)
}

func TestFirstMatchingCueIsPlayed(t *testing.T) {
	sc, err := parseScript([]byte(`{"prompts":[{"match":"b","steps":[{"end":true}]},{"match":"","steps":[]},{"match":"a","steps":[{"end":true}]}],"default":[{"end":true},{"end":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for prompt, want := range map[string]int{"abc": 1, "a": 0, "": 0} {
		if steps, ok := sc.stepsFor(prompt); !ok || len(steps) != want {
			t.Errorf("prompt %q: got %d steps, %t, want %d", prompt, len(steps), ok, want)
		}
	}
}

func TestExampleScriptsLoad(t *testing.T) {
	paths, err := filepath.Glob("../examples/scripts/*.json")
	if err != nil || len(paths) < 2 {
		t.Fatalf("got %d scripts, %v, want at least 2", len(paths), err)
	}
	for _, path := range paths {
		if _, err := newScript(path, Options{}); err != nil {
			t.Errorf("%s: got %v, want no error", path, err)
		}
	}
}

func TestUnreadableScriptIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := newScript(filepath.Join(dir, "absent.json"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: got %v, want that it does not exist", err)
	}
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte(`{"x":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newScript(bad, Options{}); err == nil || !strings.Contains(err.Error(), "bad.json: $.x: unknown key") {
		t.Errorf("bad file: got %v, want the file and the place", err)
	}
}

// Whatever is accepted is within the bounds and makes events that the wire
// allows.
func FuzzParseScript(f *testing.F) {
	for _, name := range []string{"demo.json", "stream.json"} {
		data, err := os.ReadFile(filepath.Join("../examples/scripts", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"default":[{"raw":{"type":"t","event":{"{{n}}":["{{n}}{{n}}",1e400]}}},{"delay_ms":1}]}`))
	f.Add([]byte(`{"default":[{"repeat":{"times":9,"rate":1e-3,"steps":[{"say":{"text":"{{n","chunk":1}}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sc, err := parseScript(data)
		if err != nil {
			return
		}
		for _, c := range sc.prompts {
			steps := c.steps
			switch n := sizeOf(steps); {
			case n > maxScriptSteps:
				t.Fatalf("got %d steps, want at most %d", n, maxScriptSteps)
			case n > 10_000: // too many to be played here
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				// The host checks each event. It takes one verdict after the other, and
				// enough events.
				host, n := hosttest.New(t), 0
				ctx, enough := context.WithCancel(t.Context())
				defer enough()
				time.AfterFunc(maxScriptDelay, enough)
				host.Answer = func(req *contracts.ServerRequest) contracts.Outcome {
					if n++; n > 100 {
						enough()
					}
					possible := verdicts[req.RequestType]
					return contracts.Outcome{Verdict: possible[n%len(possible)], By: contracts.ResolvedByUser}
				}
				p := newPlayer(&Script{scenario: sc, host: &boundedHost{Host: host, left: 500, enough: enough}})
				p.n = 10
				_ = p.play(ctx, steps) // it ends early if there are many
			})
		}
	})
}

// A boundedHost takes some events, and then has had enough.
type boundedHost struct {
	*hosttest.Host
	left   int
	enough context.CancelFunc
}

func (h *boundedHost) Publish(ctx context.Context, events ...contracts.Event) error {
	if h.left -= len(events); h.left < 0 {
		h.enough()
	}
	return h.Host.Publish(ctx, events...)
}
