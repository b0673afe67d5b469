package hecate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
)

// in returns the header of a principal of a scope.
func in(scope string) []string {
	return []string{"X-Principal", fmt.Sprintf(`{"ID":"x","Scope":%q}`, scope)}
}

func TestScopesDoNotWaitForEachOther(t *testing.T) {
	opening, open := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(o *hecate.Options) {
		o.Stored = func(scope string) ([]string, error) {
			if scope == "slow" {
				close(opening)
				<-open
			}
			return nil, nil
		}
	})
	answered := make(chan int, 1)
	go func() { answered <- w.request("GET", "/tasks", "", in("slow")...).status }()
	<-opening
	w.prompt("a", "hello")
	w.run("a", 1, "completed")
	close(open)
	if got := <-answered; got != http.StatusOK {
		t.Errorf("got %d, want 200", got)
	}
}

// TestLogWithoutUsersIsClosed looks at the lock of the log, which another process could take.
func TestLogWithoutUsersIsClosed(t *testing.T) {
	w := newWorld(t, nil)
	w.promptIn("s0", "a", "hello")
	var tasks []byte
	for late := time.Now().Add(patience); !bytes.Contains(tasks, []byte(`"run_count":1`)); {
		if tasks = w.get("/tasks", nil, in("s0")...); time.Now().After(late) {
			t.Fatalf("got %s, want a run", tasks)
		}
	}
	for i := range 12 {
		w.get("/tasks", nil, in(fmt.Sprint("t", i))...)
	}
	lock := func(scope string) error {
		store, err := journal.Open(filepath.Join(w.dir, scope, "hecate"), journal.FileOptions{})
		if err == nil {
			err = store.Close()
		}
		return err
	}
	if err := lock("s0"); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("got %v, want a log that is open while its session is", err)
	}
	unlocked := func(scope string, meanwhile func()) {
		t.Helper()
		for late := time.Now().Add(patience); ; {
			err := lock(scope)
			if err == nil {
				return
			}
			if !errors.Is(err, journal.ErrLocked) || time.Now().After(late) {
				t.Fatalf("%s: got %v, want a log that is closed", scope, err)
			}
			meanwhile()
		}
	}
	unlocked("t0", func() {})
	if err := lock("t11"); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("got %v, want the log open that was used last", err)
	}
	h := w.hubs.List()[hub.Key{Scope: "s0", ID: "a"}]
	if err := h.Suspend(context.Background()); err != nil {
		t.Fatal(err)
	}
	unlocked("s0", func() { // its follower may end after others have used their logs
		for i := range 12 {
			w.get("/tasks", nil, in(fmt.Sprint("u", i))...)
		}
	})
	if again := w.get("/tasks", nil, in("s0")...); !bytes.Equal(again, tasks) {
		t.Errorf("got %s from the log that was opened again, want %s", again, tasks)
	}
}

type taskInfo struct {
	ID      string
	Session string `json:"maestro_session_id"`
	Unread  bool
}

type taskList struct {
	Data []taskInfo
	More bool   `json:"has_more"`
	Next string `json:"next_after"`
}

func (l taskList) sessions() (ids []string) {
	for _, task := range l.Data {
		ids = append(ids, task.Session)
	}
	slices.Sort(ids)
	return ids
}

func TestTasksComeInPages(t *testing.T) {
	w := newWorld(t, func(o *hecate.Options) {
		o.Stored = func(string) (ids []string, err error) { return strings.Fields("a b c d e"), nil }
	})
	var all, page taskList
	w.get("/tasks", &all)
	if got := all.sessions(); !slices.Equal(got, strings.Fields("a b c d e")) || all.More || !all.Data[0].Unread {
		t.Fatalf("got %+v, want the stored sessions, which nobody has read", all)
	}
	for i := 0; i < 5; i += 2 {
		next := page.Next
		page = taskList{}
		w.get("/tasks?limit=2&after="+next, &page)
		if want := all.Data[i:min(i+2, 5)]; !slices.Equal(page.Data, want) || page.More != (i < 4) || page.Next != want[len(want)-1].ID {
			t.Errorf("got %+v after %s, want %v", page, next, want)
		}
	}
	w.refuses("GET", "/tasks?after=x", "", http.StatusBadRequest, "invalid_request")
	w.refuses("GET", "/tasks?limit=0", "", http.StatusBadRequest, "invalid_request")
	w.restart()
	var again taskList
	if w.get("/tasks", &again); !slices.Equal(again.Data, all.Data) {
		t.Errorf("got %+v after a restart, want %+v", again, all)
	}
	w.prompt("c", "hello")
	_, info := w.run("c", 1, "completed")
	if !slices.Contains(all.Data, taskInfo{info.Task, "c", true}) {
		t.Errorf("got task %s, want the one that was listed before", info.Task)
	}
}

func TestOldestSessionsLeaveTheLog(t *testing.T) {
	w := newWorld(t, func(o *hecate.Options) { o.MaxSessions = 3 })
	w.task0()
	for _, id := range []string{"a", "b", "c"} {
		w.prompt(id, "hello")
		w.run(id, 1, "completed")
	}
	old := w.task("a")
	w.restart()
	w.prompt("d", "hello")
	w.run("d", 1, "completed")
	var tasks taskList
	if w.get("/tasks", &tasks); !slices.Equal(tasks.sessions(), []string{"b", "c", "d"}) {
		t.Errorf("got %q, want the three that moved last", tasks.sessions())
	}
	w.refuses("GET", "/tasks/"+old+"/runs", "", http.StatusNotFound, "not_found")
	w.open("", "a")
	path, info := w.run("a", 1, "completed")
	if info.Task == old {
		t.Error("got the task that has left the log")
	}
	events := w.get(path+"/events?limit=500", nil)
	w.restart()
	if again := w.get(path+"/events?limit=500", nil); !bytes.Equal(again, events) {
		t.Errorf("got %s after a restart, want %s", again, events)
	}
	if w.get("/tasks", &tasks); len(tasks.Data) > 5 {
		t.Errorf("got %d tasks", len(tasks.Data))
	}
}
