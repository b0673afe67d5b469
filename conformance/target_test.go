package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCommandLineIsSplitLikeWords(t *testing.T) {
	for line, want := range map[string][]string{
		"maestro headless --agent conformance": {"maestro", "headless", "--agent", "conformance"},
		`  'a b'  "c d"e\ f '' `:               {"a b", "c de f", ""},
		`'\' "\""`:                             {`\`, `"`},
		"":                                     nil,
	} {
		got, err := splitWords(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("splitWords(%q): got %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`'open`, `"open`, `end\`} {
		if got, err := splitWords(line); err == nil {
			t.Errorf("splitWords(%q): got %q, want an error", line, got)
		}
	}
}

func TestDiagnosticsKeepTheirEnd(t *testing.T) {
	var d tail
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
