package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

var quiet = slog.New(slog.DiscardHandler)

// step does something at random to a journal, which may be refused.
func step(t *rapid.T, j *journal, n int) {
	text := fmt.Sprintf("text %d", n)
	switch rapid.IntRange(0, 8).Draw(t, "step") {
	case 0, 1:
		_ = j.add(record{Message: told(text)})
	case 2:
		_ = j.add(record{Message: said(text)})
	case 3:
		msg := said(text)
		for i := range rapid.IntRange(1, 3).Draw(t, "calls") {
			id := fmt.Sprintf("id_%d_%d", n, i)
			msg.Parts = append(msg.Parts, model.Part{Call: &model.Call{ID: id, Tool: "bash", Args: json.RawMessage("{}"), Shown: "call_" + id}})
		}
		_ = j.add(record{Message: msg})
	case 4, 5:
		for range min(len(j.open), rapid.IntRange(1, 3).Draw(t, "answers")) {
			id := j.open[rapid.IntRange(0, len(j.open)-1).Draw(t, "which")]
			_ = j.add(resultRecord(model.CallResult{ID: id, Text: text}))
		}
	case 6:
		_ = j.add(record{Draft: text})
	case 7:
		_ = j.add(record{Rule: &remembered{allow, fmt.Sprintf("tool%d", n%5)}})
	case 8:
		if len(j.open) > 0 || len(j.messages) == 0 {
			return
		}
		at := cutAt(j.messages, int64(rapid.IntRange(0, 200).Draw(t, "kept")))
		messages := append([]model.Message{*told("summary " + text)}, j.messages[at:]...)
		if err := j.replace(messages); err != nil {
			t.Fatalf("replace from message %d on: %v", at, err)
		}
	}
}

// repaired is a history in which what was open is closed.
func repaired(t *rapid.T, j *journal) string {
	text, err := json.Marshal(j.messages)
	if err != nil {
		t.Fatal(err)
	}
	again := &journal{log: quiet}
	for _, rec := range j.records() {
		if err := again.add(rec); err != nil {
			t.Fatal(err)
		}
	}
	if copied, err := json.Marshal(again.messages); err != nil || !bytes.Equal(copied, text) {
		t.Fatalf("got %s, %v from the records, want %s", copied, err, text)
	}
	if err := again.add(again.repairs(cutShort)...); err != nil {
		t.Fatal(err)
	}
	if err := validConversation(again.messages); err != nil {
		t.Fatalf("repaired history: %v", err)
	}
	text, err = json.Marshal(again.messages)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A history that is cut at any byte gives what it was at some moment, made
// valid; uncut it gives what it was at last.
func TestHistoryCutAtAnyByteIsAValidPrefix(t *testing.T) {
	root := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(root, fmt.Sprint(runs))
		j, err := openJournal(dir, quiet)
		if err != nil {
			t.Fatal(err)
		}
		moments := map[string]bool{"null": true} // since the file was last replaced
		for n := range rapid.IntRange(1, 25).Draw(t, "steps") {
			was := j.file
			step(t, j, n)
			if j.file != was {
				moments = map[string]bool{"null": true}
			}
			moments[repaired(t, j)] = true
		}
		whole, err := os.ReadFile(j.path)
		if err != nil {
			t.Fatal(err)
		}
		last := repaired(t, j)
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		cut := rapid.IntRange(0, len(whole)).Draw(t, "cut")
		for _, at := range []int{len(whole), cut} {
			if err := os.WriteFile(j.path, whole[:at], 0o600); err != nil {
				t.Fatal(err)
			}
			again, err := openJournal(dir, quiet)
			if err != nil {
				t.Fatalf("cut at %d of %d bytes: %v", at, len(whole), err)
			}
			if err := validConversation(again.messages); err != nil {
				t.Fatalf("cut at %d of %d bytes: %v", at, len(whole), err)
			}
			got := repaired(t, again)
			if at == len(whole) && got != last {
				t.Fatalf("got %s, want %s", got, last)
			}
			if !prefixOfMoment(got, moments) {
				t.Fatalf("cut at %d of %d bytes: got %s, which it never was", at, len(whole), got)
			}
			if err := again.add(record{Message: told("on it goes")}); err != nil {
				t.Fatal(err)
			}
			if err := again.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// prefixOfMoment reports whether a history, whose last results may be repairs,
// is one that there was or the beginning of one.
func prefixOfMoment(got string, moments map[string]bool) bool {
	if moments[got] {
		return true
	}
	var messages []model.Message
	if json.Unmarshal([]byte(got), &messages) != nil {
		return false
	}
	messages = messages[:max(0, len(messages)-1)] // the last may have been made whole
	for moment := range moments {
		var all []model.Message
		if json.Unmarshal([]byte(moment), &all) == nil && len(all) >= len(messages) {
			short, errA := json.Marshal(all[:len(messages)])
			want, errB := json.Marshal(messages)
			if errA == nil && errB == nil && bytes.Equal(short, want) {
				return true
			}
		}
	}
	return false
}

func TestInvalidStepsAreRefused(t *testing.T) {
	text, image := "x", model.Part{Image: &model.Image{}}
	call := func(id string) record {
		msg := model.Message{Role: model.RoleAssistant, Parts: []model.Part{{Call: &model.Call{ID: id, Tool: "x", Args: json.RawMessage("{}"), Shown: "call_" + id}}}}
		return record{Message: &msg}
	}
	unknown := call("a")
	unknown.Message.Parts[0].Call.Shown = ""
	begun := []record{{Message: told("hi")}, call("a")}
	answered := append(begun[:2:2], resultRecord(model.CallResult{ID: "a"}))
	tests := map[string]struct {
		before []record
		step   record
	}{
		"nothing":               {nil, record{}},
		"an answer first":       {nil, record{Message: said("x")}},
		"a draft first":         {nil, record{Draft: "x"}},
		"an empty prompt":       {nil, record{Message: &model.Message{Role: model.RoleUser}}},
		"an unknown role":       {nil, record{Message: &model.Message{Role: "system", Parts: []model.Part{{Text: &text}}}}},
		"an empty part":         {nil, record{Message: &model.Message{Role: model.RoleUser, Parts: []model.Part{{}}}}},
		"two answers":           {[]record{{Message: told("hi")}, {Message: said("x")}}, record{Message: said("y")}},
		"an answer with images": {[]record{{Message: told("hi")}}, record{Message: &model.Message{Role: model.RoleAssistant, Parts: []model.Part{image}}}},
		"a call by the user":    {nil, record{Message: &model.Message{Role: model.RoleUser, Parts: call("a").Message.Parts}}},
		"a call nobody knows":   {[]record{{Message: told("hi")}}, unknown},
		"a prompt over a call":  {begun, record{Message: told("x")}},
		"a result of another":   {begun, resultRecord(model.CallResult{ID: "b"})},
		"two results":           {answered, resultRecord(model.CallResult{ID: "a"})},
		"a call twice":          {answered, call("a")},
		"a draft over a call":   {begun, record{Draft: "x"}},
	}
	for name, tt := range tests {
		h := &history{}
		for _, rec := range tt.before {
			hosttest.Must(t, h.apply(rec))
		}
		before := fmt.Sprintf("%s %q", args(t, h.messages), h.open)
		if err := h.apply(tt.step); err == nil {
			t.Errorf("%s: got no error", name)
		}
		if after := fmt.Sprintf("%s %q", args(t, h.messages), h.open); after != before {
			t.Errorf("%s: got %s, want %s as before", name, after, before)
		}
	}
}

func TestDamageIsSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, journalFile)
	whole := `{"message":{"role":"user","parts":[{"text":"one"}]}}` + "\n"
	rest := "garbage\n" + `{"message":{"role":"assistant","parts":[{"text":"two"}]}}` + "\n"
	hosttest.Must(t, os.WriteFile(path, []byte(whole+rest), 0o600))
	j, err := openJournal(dir, quiet)
	hosttest.Must(t, err)
	hosttest.Must(t, j.close())
	if got, err := os.ReadFile(path); err != nil || string(got) != whole {
		t.Errorf("got %q, %v, want %q", got, err, whole)
	}
	if got, err := os.ReadFile(path + ".damaged"); err != nil || string(got) != rest {
		t.Errorf("set aside: got %q, %v, want %q", got, err, rest)
	}
}

func TestWhatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, quiet)
	hosttest.Must(t, err)
	hosttest.Must(t, j.add(record{Message: told("one")}))
	good := j.file
	j.file, err = os.Open(j.path) // which cannot be written
	hosttest.Must(t, err)
	if err := j.add(record{Message: said("two")}); err == nil {
		t.Error("got no error for a file that cannot be written")
	}
	hosttest.Must(t, j.add(record{Message: told("three")}))
	hosttest.Must(t, good.Close())
	hosttest.Must(t, j.close())
	again, err := openJournal(dir, quiet)
	hosttest.Must(t, err)
	if len(again.messages) != 3 || textOf(again.messages[1]) != "two" {
		t.Errorf("got %s, want all three", args(t, again.messages))
	}
	hosttest.Must(t, again.close())
}

func TestHistoryIsTheOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j, err := openJournal(dir, quiet)
	hosttest.Must(t, err)
	hosttest.Must(t, j.add(record{Message: told("one")}))
	hosttest.Must(t, j.rewrite())
	hosttest.Must(t, j.close())
	for path, want := range map[string]os.FileMode{dir: 0o700, j.path: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", path, info.Mode().Perm(), err, want)
		}
	}
}
