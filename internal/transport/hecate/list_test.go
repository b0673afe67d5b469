package hecate_test

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
)

func TestRunIsAListFromZero(t *testing.T) { // E2, E4, E8, E10, E20, E21
	w := newWorld(t, nil)
	w.prompt("a", "hello")
	path, info := w.run("a", 1, "completed")
	var p page
	w.get(path+"/events?limit=500", &p)
	all := p.events(t)
	if len(all) == 0 || p.Object != "list" || p.More || p.First != 0 {
		t.Fatalf("got %d events in %+v, want all of a run", len(all), p)
	}
	for i, ev := range all {
		if ev.Sequence != uint64(i) || ev.RunID != info.ID || ev.TaskID != info.Task || !wire.ValidID("evt", ev.EventID) || !wire.ValidID("chat", ev.SessionID) {
			t.Errorf("E4: got event %d %+v, want sequence %d of the run", i, ev, i)
		}
		if i > 0 && all[i-1].EventID >= ev.EventID {
			t.Errorf("E3: got id %s after %s, want increasing ids", ev.EventID, all[i-1].EventID)
		}
	}
	names := kinds(all)
	if names[0] != "run.queued" || names[len(names)-1] != "run.finished" || slices.Index(names, "run.started") < 1 {
		t.Errorf("E21: got %v, want queued, started and finished", names)
	}
	t.Run("E8", func(t *testing.T) {
		var rest, whole page
		w.get(path+"/events?limit=500&after_sequence=3", &rest)
		w.get(path+"/events?limit=500&after_sequence=-1", &whole)
		if got := rest.events(t); len(got) != len(all)-4 || got[0].Sequence != 4 || !bytes.Equal(lines(whole), lines(p)) {
			t.Errorf("got %d events after 3, %d after -1, want %d and %d", len(got), len(whole.Data), len(all)-4, len(all))
		}
	})
	t.Run("E7", func(t *testing.T) { w.pagesJoin(path, p) })
	t.Run("E10", func(t *testing.T) {
		body := w.get(path+"/events?limit=5&after_sequence=999", nil)
		if !bytes.Contains(body, []byte(`"object":"list","data":[]`)) || bytes.Contains(body, []byte("next_after_sequence")) {
			t.Errorf("got %s, want an empty list", body)
		}
	})
	t.Run("E5", func(t *testing.T) { w.bytesStay(path, info) })
}

// pagesJoin checks that pages of a run are the run.
func (w *world) pagesJoin(path string, p page) {
	var joined []byte
	for after := "-1"; ; {
		var part page
		w.get(path+"/events?limit=2&after_sequence="+after, &part)
		if len(part.Data) > 2 {
			w.t.Fatalf("got %d events, want at most 2", len(part.Data))
		}
		if joined != nil {
			joined = append(joined, '\n')
		}
		joined = append(joined, lines(part)...)
		if !part.More {
			break
		}
		after = fmt.Sprint(*part.Next)
	}
	if !bytes.Equal(joined, lines(p)) {
		w.t.Errorf("got pages that differ from the list:\n%s\n%s", joined, lines(p))
	}
}

// bytesStay checks that a run is the same on every fetch, also after a restart.
func (w *world) bytesStay(path string, info runInfo) {
	first := w.get(path+"/events?limit=500", nil)
	if again := w.get(path+"/events?limit=500", nil); !bytes.Equal(first, again) {
		w.t.Errorf("got other bytes the second time:\n%s\n%s", first, again)
	}
	feed := w.get("/events?limit=500", nil)
	w.restart()
	w.open("", "a")
	if again := w.get(path+"/events?limit=500", nil); !bytes.Equal(first, again) {
		w.t.Errorf("got other bytes after a restart:\n%s\n%s", first, again)
	}
	if again := w.get("/events?limit=500", nil); !bytes.Equal(feed, again) {
		w.t.Errorf("got another feed after a restart:\n%s\n%s", feed, again)
	}
	w.prompt("a", "hello")
	if _, next := w.run("a", 2, "completed"); next.ID == info.ID {
		w.t.Error("got the same run for another prompt")
	}
}

func TestBadCursorsAndLimits(t *testing.T) { // E9
	w := newWorld(t, nil)
	w.prompt("a", "hello")
	path, _ := w.run("a", 1, "completed")
	for _, query := range []string{
		"limit=0", "limit=x", "limit=-4", "limit=", "limit=5&after_sequence=x", "limit=5&after_sequence=-2",
		"limit=5&after_sequence=1.5", "limit=5&after_sequence=9223372036854775808",
	} {
		w.refuses("GET", path+"/events?"+query, "", http.StatusBadRequest, "invalid_request")
		w.refuses("GET", "/events?"+query, "", http.StatusBadRequest, "invalid_request")
	}
	w.refuses("GET", path+"/events?after_sequence=x", "", http.StatusBadRequest, "invalid_request")
	w.refuses("GET", "/events/stream", "", http.StatusBadRequest, "invalid_request", "Last-Event-ID", "x")
	for _, limit := range []string{"100000", "99999999999999999999999"} {
		var p page
		w.get(path+"/events?limit="+limit, &p)
		if len(p.Data) == 0 || len(p.Data) > 500 {
			t.Errorf("limit %s: got %d events", limit, len(p.Data))
		}
	}
	w.get(path+"/events?limit=5&after_sequence=9223372036854775807", nil)
}

func TestUnknownThingsAreNotFound(t *testing.T) { // E16
	w := newWorld(t, nil)
	w.prompt("a", "hello")
	w.prompt("b", "hello")
	path, info := w.run("a", 1, "completed")
	other := w.task("b")
	for _, query := range []string{"", "?limit=5"} {
		w.refuses("GET", "/tasks/"+other+"/runs/"+info.ID+"/events"+query, "", http.StatusNotFound, "not_found")
		w.refuses("GET", "/tasks/task_x/runs/"+info.ID+"/events"+query, "", http.StatusNotFound, "not_found")
		w.refuses("GET", "/tasks/"+other+"/runs/run_x/events"+query, "", http.StatusNotFound, "not_found")
	}
	w.refuses("GET", "/tasks/task_x/approvals", "", http.StatusNotFound, "not_found")
	w.refuses("GET", "/nothing", "", http.StatusNotFound, "not_found")
	w.refuses("GET", "", "", http.StatusNotFound, "not_found")
	w.refuses("DELETE", "/tasks", "", http.StatusMethodNotAllowed, "invalid_request")
	w.refuses("PUT", path+"/cancel", "", http.StatusMethodNotAllowed, "invalid_request")
	w.refuses("POST", "/tasks/"+other+"/runs/"+info.ID+"/cancel", "", http.StatusNotFound, "not_found")
	w.refuses("POST", path+"/cancel", "", http.StatusConflict, "conflict")
}

func TestListOrStream(t *testing.T) {
	w := newWorld(t, nil)
	w.prompt("a", "hello")
	path, _ := w.run("a", 1, "completed")
	for accept, stream := range map[string]bool{
		"": true, "*/*": true, "application/json": false, "application/json, text/event-stream": true, "text/event-stream": true,
	} {
		a := w.request("GET", path+"/events", "", "Accept", accept)
		if got := strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream"); got != stream {
			t.Errorf("Accept %q: got %s, want a stream: %t", accept, a.header.Get("Content-Type"), stream)
		}
	}
}

func TestParallelRunsHaveNoGaps(t *testing.T) { // E4, E18
	w := newWorld(t, nil)
	const sessions = 100
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() { w.prompt(fmt.Sprint("s", i), "many") })
	}
	wg.Wait()
	w.task("s0")
	seen := map[string]bool{}
	for i := range sessions {
		path, info := w.run(fmt.Sprint("s", i), 1, "completed")
		var p page
		w.get(path+"/events?limit=500", &p)
		for i, ev := range p.events(t) {
			if ev.Sequence != uint64(i) || seen[ev.EventID] {
				t.Fatalf("run %s: got %+v at %d, want the next sequence and a new id", info.ID, ev, i)
			}
			seen[ev.EventID] = true
		}
		if uint64(len(p.Data)) != info.Last+1 {
			t.Errorf("run %s: got %d events, want %d", info.ID, len(p.Data), info.Last+1)
		}
	}
	number, count := uint64(0), 0
	for more := true; more; {
		var p page
		w.get(fmt.Sprintf("/events?limit=500&after_sequence=%d", number), &p)
		if more = p.More; p.Next != nil {
			if *p.Next != number+uint64(len(p.Data)) {
				t.Fatalf("got number %d after %d events from %d, want numbers without gaps", *p.Next, len(p.Data), number)
			}
			number = *p.Next
		}
		count += len(p.Data)
	}
	if count != len(seen) {
		t.Errorf("got %d events in all runs, want %d", count, len(seen))
	}
}

func TestScopesAndConfinedPrincipals(t *testing.T) {
	w := newWorld(t, nil)
	w.prompt("a", "hello")
	w.prompt("b", "hello")
	w.promptIn("other", "c", "hello")
	path, _ := w.run("a", 1, "completed")
	w.run("b", 1, "completed")
	who := func(text string) []string { return []string{"X-Principal", text} }
	guest := who(`{"ID":"guest","SessionID":"b"}`)
	w.refuses("GET", path+"/events?limit=5", "", http.StatusNotFound, "not_found", guest...)
	w.refuses("GET", path+"/events?limit=5", "", http.StatusNotFound, "not_found", who(`{"ID":"x","Scope":"other"}`)...)
	w.refuses("GET", "/tasks", "", http.StatusUnauthorized, "unauthorized", who(`{"ID":""}`)...)
	var all, own page
	w.get("/events?limit=500", &all)
	w.get("/events?limit=500", &own, guest...)
	chat := ""
	for _, ev := range own.events(t) {
		if chat == "" {
			chat = ev.SessionID
		}
		if ev.SessionID != chat {
			t.Errorf("got an event of session %s, want only those of %s", ev.SessionID, chat)
		}
	}
	if len(own.Data) == 0 || len(own.Data) >= len(all.Data) {
		t.Errorf("got %d of %d events, want those of one of two sessions", len(own.Data), len(all.Data))
	}
	if text := w.get("/events?limit=500", nil); bytes.Contains(text, []byte(w.task("c", who(`{"ID":"x","Scope":"other"}`)...))) {
		t.Error("got the task of another scope")
	}
}

func TestSessionsFollowFromTheFirstRequest(t *testing.T) {
	w := newWorld(t, func(o *hecate.Options) { o.Translate.Vocabulary = wire.VocabularyModelCall })
	w.prompt("a", "hello")
	w.prompt("a", "hello") // waits for the end of the first
	for h := w.open("", "a"); h.Summary().Responding; {
		runtime.Gosched()
	}
	w.restart()
	w.open("", "a") // before any request: the session is not followed yet
	path, _ := w.run("a", 2, "completed")
	if names := kinds(w.until(path, "run.finished")); !slices.Contains(names, "model.call.started") {
		t.Errorf("E39: got %v, want the other vocabulary", names)
	}
}
