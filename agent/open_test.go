package agent

import (
	"strings"
	"testing"
)

func TestSpecsThatNameNoAgentAreRefused(t *testing.T) {
	for _, tt := range []struct{ spec, want string }{
		{"", "headless:CMD"},
		{"bash", "shell, script:FILE, conformance, headless:CMD, acp:CMD or llm:PROVIDER/MODEL"},
		{"shell:x", "headless:CMD"},
		{"script", "headless:CMD"},
		{"script:", "headless:CMD"},
		{"headless", "headless:CMD"},
		{"headless:", "Command must contain an executable to run"},
		{"headless:'a", "Command contains unterminated quotes"},
		{"acp:", "Command must contain an executable to run"},
		{"acp:'a", "Command contains unterminated quotes"},
		{"llm:model", "want llm:PROVIDER/MODEL"},
		{"llm:provider/model", "unknown provider"},
	} {
		if _, err := Open(tt.spec, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open(%q): got error %v, want one with %q", tt.spec, err, tt.want)
		}
	}
}

func TestSpecsNameTheirAgents(t *testing.T) {
	for _, spec := range []string{"shell", "conformance", "headless:agent 'with words'", "acp:agent --acp"} {
		if a, err := Open(spec, Options{}); err != nil || a == nil {
			t.Errorf("Open(%q): got %v, %v, want an agent", spec, a, err)
		}
	}
}
