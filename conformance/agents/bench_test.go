package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/conformance/judge"
)

func TestEveryKindOfAgentIsJudged(t *testing.T) {
	b := &bench{acp: "agent", model: "http://127.0.0.1:1"}
	if got := b.candidates(regexp.MustCompile("")); len(got) != 5 {
		t.Errorf("got %d agents, want 5", len(got))
	}
	got := b.candidates(regexp.MustCompile("^acp$"))
	if len(got) != 1 || got[0].agent != "acp:agent" {
		t.Errorf("got %+v, want the one that is called so", got)
	}
	if got := b.candidates(regexp.MustCompile("nobody")); len(got) != 0 {
		t.Errorf("got %+v, want none", got)
	}
}

func TestTheModelIsFound(t *testing.T) {
	for said, want := range map[string]string{
		"listening on http://127.0.0.1:4711\nmore\n": "http://127.0.0.1:4711",
		"I cannot listen\n":                          "",
		"http://127.0.0.1:47":                        "", // cut off
	} {
		output, input, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := input.WriteString(said); err != nil {
			t.Fatal(err)
		}
		if err := input.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := firstURL(output)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("of %q: got %q, %v, want %q", said, got, err, want)
		}
		if err := output.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWordsSurviveTheCommandLine(t *testing.T) {
	const odd = `it's "odd"; $HOME`
	out, err := exec.CommandContext(t.Context(), "sh", "-c", quoted([]string{"printf", "%s", odd})).Output()
	if err != nil || string(out) != odd {
		t.Errorf("got %q, %v, want %q", out, err, odd)
	}
}

func TestWrongUsageIsTold(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"-run", "(", "a"}, {"-nonsense", "a"}} {
		var out, errs bytes.Buffer
		if got := program.Run(t.Context(), args, &out, &errs); got != judge.Usage || !strings.Contains(errs.String(), "-run") {
			t.Errorf("%q: got status %d and %q, want %d and how to call it", args, got, errs.String(), judge.Usage)
		}
	}
}
