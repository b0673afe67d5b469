package agent

import (
	"strings"
	"testing"
)

func TestSpecsThatNameNoAgentAreRefused(t *testing.T) {
	for _, tt := range []struct{ spec, want string }{
		{"", "headless:CMD"},
		{"bash", "shell, script:FILE, conformance, headless:CMD, acp:CMD, heddle:CMD, chord:CMD or llm:PROVIDER/MODEL"},
		{"shell:x", "headless:CMD"},
		{"script", "headless:CMD"},
		{"script:", "headless:CMD"},
		{"headless", "headless:CMD"},
		{"headless:", "Command must contain an executable to run"},
		{"headless:'a", "Command contains unterminated quotes"},
		{"acp:", "Command must contain an executable to run"},
		{"acp:'a", "Command contains unterminated quotes"},
		{"heddle:", "Command must contain an executable to run"},
		{"heddle:model=m", "there is no command"},
		{"heddle:max_iterations=0 agent", "want a number above 0"},
		{"chord:'a", "Command contains unterminated quotes"},
		{"llm:model", "want llm:PROVIDER/MODEL"},
		{"llm:provider/model", "unknown provider"},
		{"script: ", "headless:CMD"},
	} {
		if _, err := Open(tt.spec, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open(%q): got error %v, want one with %q", tt.spec, err, tt.want)
		}
	}
}

func TestSpecsNameTheirAgents(t *testing.T) {
	for _, spec := range []string{"shell", "conformance", "headless:agent 'with words'", "acp:agent --acp", "heddle:model=m tools=glob,grep agent", "chord:chord headless"} {
		if a, err := Open(spec, Options{}); err != nil || a == nil {
			t.Errorf("Open(%q): got %v, %v, want an agent", spec, a, err)
		}
	}
}

func TestWhatTheTextsShowIsCheckedWithoutAnythingElse(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	for _, spec := range []string{"shell", "conformance", "script:/does/not/exist", "headless:/does/not/exist", "acp:no such", "llm:openai/any"} {
		if err := Check(spec, Options{}); err != nil {
			t.Errorf("%s: got %v, want nothing wrong", spec, err)
		}
	}
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{ModelURL: "http://127.0.0.1:1/v1", Allow: []string{"bash"}, Ask: []string{"edit(src/**)"}, Deny: []string{"read"}}, ""},
		{Options{ModelURL: "nonsense"}, "absolute http or https URL"},
		{Options{Allow: []string{"bash", "bash(("}}, `rule "bash(("`},
		{Options{Ask: []string{""}}, `rule ""`},
		{Options{Deny: []string{"bash()"}}, `rule "bash()"`},
	} {
		err := Check("llm:openai/any", tt.o)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: got %v, want %q", tt.o, err, tt.want)
		}
	}
}
