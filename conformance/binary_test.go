package conformance_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/contracts"
)

// aboutMessages are the scenarios on stdio and sockets for which it matters how
// strict a server is. aboutBodies, aboutRuns and aboutWho are those over HTTP for
// which that matters, which profile it has, and whom it lets in. aboutRunners are those
// for which it matters that a server is a hosted runner.
var (
	aboutMessages = regexp.MustCompile("^(framing|handshake|run|request|interrupt|shutdown|state|lease|handover|viewer|stream|resume|answer|socket|utility|offer)/")

	aboutBodies  = regexp.MustCompile("^(route|header|refusal|connection|session|subscription|unsubscribe|heartbeat/[acu]|disconnect|post|tool)")
	aboutRunners = regexp.MustCompile("^(hosted|drain|restore|audience|owner|startup|signal|session|connection|subscription|return|parity)/")
	aboutRuns    = regexp.MustCompile("^(refusal|session|subscription|return|post|parity)/")
	aboutWho     = regexp.MustCompile("^(route|header|session|connection|subscription|unsubscribe|disconnect|claim/[^e]|watcher|return|post|token|parity)/?")
)

// TestBuiltBinary holds the real server against the whole suite, as its users
// start it.
func TestBuiltBinary(t *testing.T) {
	t.Parallel()
	alone := func(n string) []string { return []string{"--max-kept-sessions", n} } // no other test shares the server
	sideBySide(3, []struct {
		name    string
		subject subject
		filter  *regexp.Regexp
	}{
		{"http", subject{on: onHTTP, flags: alone("8003")}, nil},
		{"ws", subject{on: onSocket, flags: alone("8004")}, nil},
		{"hosted", subject{on: onHosted}, nil},
		{"hosted public", subject{on: onHosted, public: true}, nil},
		{"stdio", subject{on: onStdio}, nil},
		{"stdio strict", subject{on: onStdio, strict: true}, aboutMessages},
		{"stdio public", subject{on: onStdio, public: true}, aboutMessages},
		{"ws strict", subject{on: onSocket, strict: true}, aboutMessages},
		{"http strict", subject{on: onHTTP, strict: true}, aboutBodies},
		{"http public", subject{on: onHTTP, public: true}, aboutRuns},
		{"http with authentication", subject{on: onHTTP, auth: true}, aboutWho},
	}, func(row struct {
		name    string
		subject subject
		filter  *regexp.Regexp
	}) {
		c := row.subject.config(t)
		c.Filter = row.filter
		report := judgeAsUsersDo(t, c)
		passes(t, report)
		if report.Left != 0 {
			t.Errorf("%s: got %d sessions that could not be ended, want none", row.name, report.Left)
		}
		for _, r := range report.Results {
			if len(r.Advice) > 0 {
				t.Errorf("%s: %s: got advice %+v, want none", row.name, r.Name, r.Advice)
			}
		}
	})
}

// judgeAsUsersDo judges with the built program. The race detector, which is in this one,
// would make that several times as slow; the other tests judge with it.
func judgeAsUsersDo(t *testing.T, c conformance.Config) (report conformance.Report) {
	t.Helper()
	args := []string{"conformance", "--format", "json", "--patience", "1m", "--timeout", "4m",
		"--target", c.Target, "--spawn", c.Spawn, "--protocol-profile", string(cmp.Or(c.Profile, contracts.ProfileSeed))}
	if c.Strict {
		args = append(args, "--strict")
	}
	if c.Filter != nil {
		args = append(args, "--run", c.Filter.String())
	}
	if c.Token != "" {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(c.Token), 0o600); err != nil {
			t.Error(err)
		}
		args = append(args, "--token-file", file)
	}
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), built(t), args...)
	cmd.Stderr = &said
	text, err := cmd.Output()
	got := struct {
		*conformance.Report
		Left int `json:"sessions_left"`
	}{Report: &report}
	if wrong := json.Unmarshal(text, &got); wrong != nil {
		t.Errorf("run against %s: got %v, %v and %s", c.Target, err, wrong, said.String())
	}
	report.Left = got.Left
	return report
}

// anyAgent is a server with an agent that is not the conformance agent.
func anyAgent(on conformance.Transport) subject {
	return subject{on: on, agent: []string{"--agent", "shell"}}
}
