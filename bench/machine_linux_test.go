package main

import (
	"os"
	"testing"
)

func TestCommandCanBeRepeatedFromAShell(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "bin/bench"},
		{[]string{"-reps", "7", "-write", "docs/benchmarks.md"}, "bin/bench -reps 7 -write docs/benchmarks.md"},
		{[]string{"-only", "burst|paced"}, "bin/bench -only 'burst|paced'"},
		{[]string{"-designs", "it's"}, `bin/bench -designs 'it'\''s'`},
	} {
		if got := command(tt.args); got != tt.want {
			t.Errorf("command(%q): got %s, want %s", tt.args, got, tt.want)
		}
	}
}

func TestVersionsOfAProgramWithoutPeers(t *testing.T) {
	if got := versions(os.Args[0]); got != "" {
		t.Errorf("peers of this test: got %q, want none", got)
	}
}
