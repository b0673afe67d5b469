package conformance

import (
	"bufio"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDiagnosticsKeepTheirEnd(t *testing.T) {
	var d Tail
	for range 10 {
		if _, err := d.Write([]byte(strings.Repeat("x", maxDiagnostics/4))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if got := d.String(); len(got) > maxDiagnostics || !strings.HasSuffix(got, "the end") {
		t.Errorf("got %d bytes ending in %q, want at most %d ending in the end", len(got), got[len(got)-10:], maxDiagnostics)
	}
}

func TestExchangeIsBounded(t *testing.T) {
	var tr trace
	const n = 10_000
	for i := range n {
		tr.add(time.Duration(i), "alice", ">", []byte(strings.Repeat("y", 10*maxTraceText)))
	}
	lines := tr.lines()
	if len(lines) != traceHead+1+traceTail {
		t.Errorf("got %d lines, want %d, one of them about the rest", len(lines), traceHead+1+traceTail)
	}
	if !strings.Contains(lines[traceHead], "9840 texts left out") {
		t.Errorf("got %q, want the number of texts left out", lines[traceHead])
	}
	for _, line := range lines {
		if len(line) > maxTraceText+100 {
			t.Fatalf("got a line of %d bytes, want about %d", len(line), maxTraceText)
		}
	}
}

func TestEventsAreReadWhole(t *testing.T) {
	link := func(text string) *events {
		return &events{body: io.NopCloser(strings.NewReader("")), lines: bufio.NewReaderSize(strings.NewReader(text), 16), end: func() {}}
	}
	e := link("retry: 2000\n\n\n: ka\r\n\r\nid: e.1\ndata: {\"a\":1}\n\n")
	for _, want := range []string{"retry: 2000", ": ka", "id: e.1\ndata: {\"a\":1}"} {
		if got, err := e.Recv(t.Context()); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	if got, err := e.Recv(t.Context()); err != io.EOF {
		t.Errorf("got %q, %v, want the end of the stream", got, err)
	}
	if got, err := link("data: {}\n").Recv(t.Context()); err == nil || err == io.EOF {
		t.Errorf("got %q, %v, want an error for an event that was cut off", got, err)
	}
}

func TestEventsAreTakenApart(t *testing.T) {
	got := parseEvent([]byte(": a\nid: e.7\nretry:5\nevent: x\ndate: {}\ndata: {\ndata:}\r"))
	want := &Event{ID: "e.7", Retry: "5", Name: "x", Comments: []string{"a"}, Data: []string{"{", "}"}, Unknown: []string{"date: {}"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTokensStayOutOfReports(t *testing.T) {
	h := http.Header{}
	h.Set("Authorization", "Bearer secret-one")
	h.Set(tokenHeader, "secret-two")
	h.Set("X-Maestro-Headless-Connection-Id", "conn_1")
	h.Set("Retry-After", "3")
	got := summary(h)
	if strings.Contains(got, "secret") || !strings.Contains(got, "conn_1") || !strings.Contains(got, "retry-after: 3") {
		t.Errorf("got %q, want what identifies a client, and no secret", got)
	}
}

func TestRunnersDoNotInheritARunnersEnvironment(t *testing.T) {
	for _, name := range []string{"MAESTRO_PROFILE", "REMOTE_RUNNER_SESSION_ID", "PORT", "WORKSPACE_ROOT"} {
		t.Setenv(name, "leaked")
	}
	t.Setenv("KEPT_VARIABLE", "kept")
	o := start{workspace: "/w", manifest: "/m.json", env: map[string]string{"MAESTRO_AGENT_RUN_ID": "", "EXTRA": "yes"}}
	got := o.environment("127.0.0.1:8080")
	for _, want := range []string{"KEPT_VARIABLE=kept", "EXTRA=yes", "MAESTRO_WORKSPACE_ROOT=/w",
		"MAESTRO_RUNNER_SESSION_ID=" + restoredRunnerID, "MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST=/m.json"} {
		if !slices.Contains(got, want) {
			t.Errorf("got no %s in %q", want, got)
		}
	}
	for _, v := range got {
		if strings.Contains(v, "leaked") || strings.HasPrefix(v, "MAESTRO_AGENT_RUN_ID=") || strings.HasPrefix(v, "MAESTRO_SESSION_ID=") {
			t.Errorf("got %s, want it taken away", v)
		}
	}
}
