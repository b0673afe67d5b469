package tool

import (
	"context"
	"strings"
	"testing"
)

func TestSearchesLeaveOutWhatTheyAreTold(t *testing.T) {
	b := on(t, map[string]string{"a": "word\n", "secret/key": "word\n", "secret/deep/key": "word\n", "secret/other.go": "x\n"})
	ctx := LeaveOut(t.Context(), func(path string) bool { return strings.HasPrefix(path, "secret/") })
	tests := []struct {
		tool    string
		args    args
		wanted  string
		leftOut string
	}{
		{"grep", args{"pattern": "word"}, "a\n", "[3 files left out, "},
		{"grep", args{"pattern": "word", "output_mode": "content", "path": "secret"}, "No matches.\n", "[3 files left out, "},
		{"grep", args{"pattern": "word", "path": "secret/key", "output_mode": "count"}, "No matches.\n", "[1 file left out, "},
		{"grep", args{"pattern": "word", "glob": "*.go"}, "No matches.\n", "[1 file left out, "},
		{"glob", args{"pattern": "**"}, "a\n", "[3 files left out, "},
		{"glob", args{"pattern": "*", "path": "secret/deep"}, "No files found.\n", "[1 file left out, "},
		{"glob", args{"pattern": "a"}, "a\n", ""},
	}
	for _, tt := range tests {
		res, err := b.tool(tt.tool).Run(ctx, tt.args.json(t), nil)
		must(t, err)
		rest, ok := strings.CutPrefix(res.Text, tt.wanted)
		if !ok || !strings.HasPrefix(rest, tt.leftOut) || tt.leftOut == "" && rest != "" || strings.Contains(rest, "key") {
			t.Errorf("%s %v: got %q, want %q and then %q", tt.tool, tt.args, res.Text, tt.wanted, tt.leftOut)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.tool("glob").Run(ended, args{"pattern": "**"}.json(t), nil); err == nil {
		t.Error("got no error from a search that was ended")
	}
}
