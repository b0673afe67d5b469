package wiring

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-028515a8/maestro/hub"
)

func TestSummariesAreInTheFoldersOfTheirSessions(t *testing.T) {
	s := summaries{newTestServer(t).Sessions}
	keys := map[hub.Key]bool{}
	for _, key := range []hub.Key{{ID: "a"}, {ID: "a:b.c"}, {Scope: "org_acme__user_ada", ID: "a"}} {
		keys[key] = true
		if _, _, err := s.Load(key); !os.IsNotExist(err) {
			t.Errorf("load: got %v, want no session", err)
		}
		if err := s.Save(key, []byte("x"), true); !os.IsNotExist(err) {
			t.Errorf("save: got %v, want no session", err)
		}
		if err := os.MkdirAll(s.SessionDir(key), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.Save(key, []byte(key.Scope), true); err != nil {
			t.Errorf("save: got %v", err)
		}
		if text, written, err := s.Load(key); string(text) != key.Scope || written.IsZero() || err != nil {
			t.Errorf("load: got %q, %v, %v", text, written, err)
		}
	}
	half := filepath.Join(s.Dir, RemovedPrefix+"s-gone", "agent")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	list := func() map[hub.Key]bool {
		found := map[hub.Key]bool{}
		for key := range s.Keys() {
			found[key] = true
		}
		return found
	}
	if got := list(); !maps.Equal(got, keys) {
		t.Errorf("got %v, want %v", got, keys)
	}
	if _, err := os.Stat(filepath.Dir(half)); !os.IsNotExist(err) {
		t.Errorf("got %v, want the rest of a removed session gone", err)
	}
	gone := hub.Key{Scope: "org_acme__user_ada", ID: "a"}
	for range 2 { // again, as after an operator has removed it
		if err := s.Remove(gone); err != nil {
			t.Errorf("remove: got %v", err)
		}
	}
	if delete(keys, gone); !maps.Equal(list(), keys) {
		t.Errorf("got %v, want %v", list(), keys)
	}
}
