package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestServeSaysWhatItIsPromptedFor(t *testing.T) {
	var out strings.Builder
	in := `{"id":0,"method":"initialize"}{"id":1,"method":"session/new"}{"method":"session/cancel"}` +
		`{"id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"text":"3 1000"}]}}`
	if err := serve(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 6 {
		t.Fatalf("got %q, want three answers and three messages", lines)
	}
	for n := range 3 {
		if want := fmt.Sprintf(`"text":"%d:`, n); !strings.Contains(lines[2+n], want) || !strings.Contains(lines[2+n], `"sessionId":"s"`) {
			t.Errorf("got %s, want %s in it", lines[2+n], want)
		}
	}
	if !strings.Contains(lines[5], `"id":2`) || !strings.Contains(lines[5], "end_turn") {
		t.Errorf("got %s, want the end of the prompt", lines[5])
	}
}

func TestServeRefusesWhatItIsNotMadeFor(t *testing.T) {
	for _, in := range []string{
		`{"id":2,"method":"session/prompt"}`, `{"id":2,"method":"session/prompt","params":{"prompt":[{"text":"3"}]}}`,
		`{"id":2,"method":"session/prompt","params":{"prompt":[{"text":"3 0"}]}}`, `{`,
	} {
		if err := serve(strings.NewReader(in), &strings.Builder{}); err == nil {
			t.Errorf("%s: got no error", in)
		}
	}
}
