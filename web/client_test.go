package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
	"github.com/seed-028515a8/maestro/internal/testkit/built"
)

// TestClient runs the tests of web/client in Node against the built server.
func TestClient(t *testing.T) {
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); err != nil {
		t.Fatalf("%v: run make others", err)
	}
	t.Run("types", func(t *testing.T) {
		t.Parallel()
		for _, project := range []string{".", "client/test", "app/test"} {
			run(t, exec.Command("node", filepath.Join(modules, "typescript", "bin", "tsc"), "--noEmit", "-p", project))
		}
	})
	t.Run("behaviour", func(t *testing.T) {
		t.Parallel()
		binary := filepath.Join(t.TempDir(), "maestro")
		if err := built.Maestro(binary); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("node", "client/test/run.mjs")
		cmd.Env = append(os.Environ(), "MAESTRO="+binary, "FOLDS="+writeFolds(t))
		run(t, cmd)
	})
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// writeFolds writes a file of random histories, each with the state that package session
// makes of it. The client has a fold of its own, which must make the same.
func writeFolds(t *testing.T) (path string) {
	t.Helper()
	text, err := os.ReadFile("../contracts/testdata/examples.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var examples []map[string]any
	for line := range bytes.Lines(text) {
		var example map[string]any
		if err := json.Unmarshal(line, &example); err != nil {
			t.Fatal(err)
		}
		if _, err := new(contracts.Decoder).Event(line); err == nil {
			examples = append(examples, example)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var file bytes.Buffer
	for range 100 {
		var events []json.RawMessage
		state := session.New()
		for range 80 {
			text := vary(t, rnd, examples[rnd.IntN(len(examples))])
			event, err := new(contracts.Decoder).Event(text)
			if err != nil {
				continue // the varied kind of question has other arguments
			}
			if event.EventType() == "prompt_accepted" && !state.Snapshot(0).State.IsResponding {
				state.ApplyCommand(&contracts.Prompt{}) // other clients see the command as this event
			}
			state.Apply(event)
			events = append(events, text)
		}
		snapshot, err := contracts.EncodeSnapshot(state.Snapshot(1), 0)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(map[string]any{"events": events, "snapshot": json.RawMessage(snapshot)})
		if err != nil {
			t.Fatal(err)
		}
		file.Write(append(line, '\n'))
	}
	path = filepath.Join(t.TempDir(), "folds.jsonl")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// vary returns an example with ids from a small pool, so that examples concern each other, and with
// other kinds, verdicts and lengths of text.
func vary(t *testing.T, rnd *rand.Rand, example map[string]any) []byte {
	t.Helper()
	varied := map[string]any{}
	for key, value := range example {
		_, isText := value.(string)
		switch {
		case !isText:
		case strings.HasSuffix(key, "_id") && key != "session_id":
			value = fmt.Sprint("id", rnd.IntN(3))
		case key == "request_type":
			value = contracts.RequestTypes()[rnd.IntN(len(contracts.RequestTypes()))]
		case key == "resolution":
			value = []contracts.Verdict{"approved", "denied", "answered", "cancelled", "retried"}[rnd.IntN(5)]
		case slices.Contains([]string{"content", "display"}, key) && rnd.IntN(3) == 0:
			value = strings.Repeat("aé€😀", rnd.IntN(6000))
		}
		varied[key] = value
	}
	text, err := json.Marshal(varied)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
