package provider

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The streams of testdata are as services and gateways send them; beside each lies
// what becomes of it.
func TestStreamsAreUnderstood(t *testing.T) {
	streams, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(streams) == 0 {
		t.Fatalf("got %q and %v, want streams", streams, err)
	}
	for _, path := range streams {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			provider, _, _ := strings.Cut(filepath.Base(path), ".")
			m := open(t, provider, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write(data)
			}))
			h, err := stream(t.Context(), m, prompt("hello"))
			got := struct {
				Reply          model.Reply
				Text, Thinking string
				Error          *model.Error `json:",omitempty"`
			}{Reply: h.Reply, Text: h.text, Thinking: h.thinking}
			if err != nil {
				got.Error = failed(t, err)
			}
			compare(t, strings.TrimSuffix(path, ".sse")+".json", got)
		})
	}
}

// compare holds a value to what a golden file has.
func compare(t *testing.T, path string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
