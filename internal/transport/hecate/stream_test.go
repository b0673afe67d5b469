package hecate_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
)

func TestStreamOfARun(t *testing.T) { // E6, E12
	w := newWorld(t, nil)
	w.prompt("a", "hello")
	path, info := w.run("a", 1, "completed")
	var p page
	w.get(path+"/events?limit=500", &p)
	s := w.stream(path + "/events")
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := s.res.Header.Get(name); s.res.StatusCode != http.StatusOK || got != want {
			t.Errorf("E11: got %d with %s %q, want 200 with %q", s.res.StatusCode, name, got, want)
		}
	}
	if b, _ := s.next(); b.comment == "" || b.id != "" {
		t.Errorf("E11: got %+v first, want a comment", b)
	}
	for i, line := range p.Data {
		b, ok := s.next()
		if !ok || b.id != strconv.Itoa(i) || b.data != string(line) {
			t.Fatalf("E6: got %+v, want id %d with %s", b, i, line)
		}
	}
	if b, ok := s.next(); !ok || b.retry != "30000" || b.data != "" {
		t.Errorf("got %+v after the terminal event, want retry", b)
	}
	if b, ok := s.next(); ok {
		t.Errorf("got %+v, want the end of the stream", b)
	}
	t.Run("E12", func(t *testing.T) {
		if id, ev := w.stream(path+"/events", "Last-Event-ID", "2").event(); ev == nil || id != "3" {
			t.Errorf("got %s, want 3 after 2", id)
		}
	})
	t.Run("E13", func(t *testing.T) {
		for _, tt := range [][2]string{{"1", "4"}, {"4", "1"}} {
			if id, ev := w.stream(path+"/events?after_sequence="+tt[0], "Last-Event-ID", tt[1]).event(); ev == nil || id != "5" {
				t.Errorf("query %s and header %s: got %s, want 5", tt[0], tt[1], id)
			}
		}
	})
	t.Run("a cursor beyond the end", func(t *testing.T) {
		s := w.stream(path + "/events?after_sequence=" + fmt.Sprint(info.Last+50))
		if _, ev := s.event(); ev != nil {
			t.Errorf("got %+v, want nothing", ev)
		}
	})
}

func TestIdleStreamIsSilent(t *testing.T) { // E11, E15
	for _, tt := range []struct {
		name      string
		heartbeat time.Duration
		comments  int
	}{
		{"E11", time.Hour, 1}, // comes at once
		{"E15", 50 * time.Millisecond, 3},
	} {
		w := newWorld(t, func(o *hecate.Options) { o.Heartbeat = tt.heartbeat })
		w.task0()
		s := w.stream("/events/stream")
		for range tt.comments {
			if b, ok := s.next(); !ok || b.comment == "" || b.id != "" || b.data != "" {
				t.Errorf("%s: got %+v, want a comment without id", tt.name, b)
			}
		}
	}
}

func TestSubscriberInTheMiddleOfARun(t *testing.T) { // E14
	w := newWorld(t, nil)
	w.prompt("a", "slow")
	path, _ := w.run("a", 1, "")
	w.until(path, "tool.completed")
	s := w.stream(path + "/events")
	var all []wire.Event
	for {
		id, ev := s.event()
		if ev == nil {
			break
		}
		if id != fmt.Sprint(len(all)) {
			t.Fatalf("got id %s, want %d", id, len(all))
		}
		if all = append(all, *ev); ev.Type == "tool.completed" { // history ends about here
			if a := w.request("POST", path+"/cancel", `{"reason":"enough"}`); a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"cancelled"`)) {
				t.Errorf("cancel: got %d %s, want 200 with the run", a.status, a.body)
			}
		}
	}
	last := all[len(all)-1]
	if last.Type != "run.cancelled" || !strings.Contains(string(last.Data), `"enough"`) || !strings.Contains(string(last.Data), `"operator"`) {
		t.Errorf("got %s %s at the end, want run.cancelled by the operator with the reason", last.Type, last.Data)
	}
}

func TestStreamOfAllRuns(t *testing.T) { // E17, E18
	w := newWorld(t, nil)
	s := w.stream("/events/stream")
	w.prompt("a", "many")
	w.prompt("b", "many")
	next, last, finished := map[string]uint64{}, 0, 0
	follow := func(s *stream, want int) {
		for finished < want {
			id, ev := s.event()
			if ev == nil {
				t.Fatal("the stream has ended")
			}
			if n, _ := strconv.Atoi(id); n != last+1 {
				t.Fatalf("got id %s after %d, want the next", id, last)
			}
			last++
			if ev.Sequence != next[ev.RunID] {
				t.Fatalf("got sequence %d of run %s, want %d", ev.Sequence, ev.RunID, next[ev.RunID])
			}
			next[ev.RunID]++
			if ev.Type == "run.finished" {
				finished++
			}
		}
	}
	follow(s, 2)
	s.stop()
	w.prompt("a", "hello")
	follow(w.stream("/events/stream", "Last-Event-ID", fmt.Sprint(last)), 3) // E18
	if len(next) != 3 {
		t.Errorf("E17: got %d runs, want 3", len(next))
	}
}

func TestFiltersOfAllRuns(t *testing.T) { // E19
	w := newWorld(t, nil)
	w.prompt("a", "hello")
	w.prompt("b", "hello")
	_, one := w.run("a", 1, "completed")
	w.run("b", 1, "completed")
	for query, want := range map[string]struct {
		kinds []string
		n     int
	}{
		"event_type=run.queued,run.finished":                     {[]string{"run.queued", "run.finished"}, 4},
		"event_type=run.queued,run.finished&task_id=" + one.Task: {[]string{"run.queued", "run.finished"}, 2},
		"event_type=nothing.known":                               {nil, 0},
		"task_id=task_unknown":                                   {nil, 0},
	} {
		var p page
		w.get("/events?"+query, &p)
		for _, ev := range p.events(t) {
			if !slices.Contains(want.kinds, ev.Type) || strings.Contains(query, one.Task) && ev.TaskID != one.Task {
				t.Errorf("%s: got %s of %s", query, ev.Type, ev.TaskID)
			}
		}
		if len(p.Data) != want.n {
			t.Errorf("%s: got %d events, want %d", query, len(p.Data), want.n)
		}
	}
	s := w.stream("/events/stream?event_type=run.finished&task_id=" + one.Task)
	if _, ev := s.event(); ev == nil || ev.Type != "run.finished" || ev.TaskID != one.Task {
		t.Errorf("got %+v in the stream, want run.finished of the task", ev)
	}
}

func TestSlowReaderSlowsNobody(t *testing.T) { // E44
	w := newWorld(t, nil)
	w.task0()
	slow := w.stream("/events/stream")
	var path string
	var info runInfo
	for i := range 2 { // more than the buffers of a connection have room for
		w.prompt("a", "big")
		path, info = w.run("a", i+1, "completed") // although slow reads nothing
	}
	var p page
	w.get(path+"/events?limit=500", &p)
	if p.More {
		var rest page
		w.get(fmt.Sprintf("%s/events?limit=500&after_sequence=%d", path, *p.Next), &rest)
		p.Data = append(p.Data, rest.Data...)
	}
	last, done := 0, false
	read := func(s *stream) {
		for !done {
			id, ev := s.event()
			if ev == nil {
				return // it was disconnected
			}
			if n, _ := strconv.Atoi(id); n != last+1 {
				t.Fatalf("got id %s after %d, want no hole", id, last)
			}
			last++
			done = ev.RunID == info.ID && ev.Sequence == info.Last
		}
	}
	read(slow)
	read(w.stream("/events/stream", "Last-Event-ID", fmt.Sprint(last)))
	if !done {
		t.Error("the reader has not got the last event")
	}
}

func TestRevokedCredentialEndsTheStream(t *testing.T) {
	revoked := make(chan struct{})
	w := newWorld(t, func(o *hecate.Options) {
		o.Heartbeat = 20 * time.Millisecond
		o.Alive = func(p contractsPrincipal) bool {
			select {
			case <-revoked:
				return false
			default:
				return true
			}
		}
	})
	s := w.stream("/events/stream")
	s.next()
	close(revoked)
	for ok := true; ok; _, ok = s.next() {
	}
}
