package hecate

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fake is a small server of the protocol that is right, but for one fault.
type fake struct {
	*httptest.Server
	fault string
	slow  bool // it shows its events late on the cross-run stream

	mu        sync.Mutex
	log       []*entry
	runs      map[string]*fakeRun
	changed   chan struct{} // closed and replaced at every change
	fetches   int
	closed    chan struct{}
	producers sync.WaitGroup
}

// An entry is one event of the log.
type entry struct {
	number int // server-wide, from 1
	run    *fakeRun
	seq    int64
	kind   string
	raw    []byte
}

type fakeRun struct {
	id, task  string
	next      int64
	entries   []*entry
	ended     bool
	cancelled chan struct{}
	approval  *fakeApproval
}

type fakeApproval struct {
	id, status string
	decided    chan string // with one place
}

const (
	fakeSecret    = "hunter2-not-for-logs"
	fakeHeartbeat = 150 * time.Millisecond
	fakeTimeout   = 400 * time.Millisecond

	// otherWays is no fault: the server does what it may do otherwise. It wraps cross-run events,
	// gives no cursor in lists, and leaves out and renames what readers do without.
	otherWays = "other-ways"
)

func newFake(t *testing.T, fault string) *fake {
	f := &fake{fault: fault, runs: map[string]*fakeRun{}, changed: make(chan struct{}), closed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drive", f.drive)
	mux.HandleFunc("GET /hecate/v1/tasks/{task}/runs/{run}/events", f.events)
	mux.HandleFunc("POST /hecate/v1/tasks/{task}/runs/{run}/cancel", f.cancel)
	mux.HandleFunc("GET /hecate/v1/events", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, nil) })
	mux.HandleFunc("GET /hecate/v1/events/stream", func(w http.ResponseWriter, r *http.Request) { f.stream(w, r, nil) })
	mux.HandleFunc("GET /hecate/v1/tasks/{task}/approvals", f.approvals)
	mux.HandleFunc("GET /hecate/v1/tasks/{task}/approvals/{approval}", f.approvals)
	mux.HandleFunc("POST /hecate/v1/tasks/{task}/approvals/{approval}/resolve", f.resolve)
	f.Server = httptest.NewServer(mux)
	f.history()
	t.Cleanup(func() {
		close(f.closed)
		f.producers.Wait()
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// history makes runs that were there before: one of many events, one without its beginning,
// and one that resumes it.
func (f *fake) history() {
	f.mu.Lock()
	defer f.mu.Unlock()
	long := f.newRun()
	f.begin(long)
	for i := range 600 {
		f.append(long, "assistant.text_delta", map[string]any{"turn_index": 1, "block_index": 0, "delta": strconv.Itoa(i)})
	}
	f.append(long, "run.finished", map[string]any{"final_status": "completed", "duration_ms": 1})
	old := f.newRun()
	f.begin(old)
	f.append(old, "run.failed", map[string]any{"code": "lost", "message": "the worker is gone", "retriable": true})
	marker := map[string]any{"first_pruned_sequence": 0, "last_pruned_sequence": 1, "pruned_at": "2026-01-01T00:00:00Z", "reason": "retention_window"}
	if f.fault == "wrong-range" {
		marker["last_pruned_sequence"] = 2
	}
	if f.fault != "no-marker" {
		f.append(old, "gap.events_pruned", marker)
	}
	old.entries = old.entries[2:]
	f.log = slices.DeleteFunc(f.log, func(e *entry) bool { return e.run == old && e.seq < 2 })
	resumed := f.newRun()
	from := old.id
	if f.fault == "resumes-itself" {
		from = resumed.id
	}
	f.append(resumed, "run.resumed_from_event", map[string]any{"from_run_id": from, "from_sequence": 2})
	f.begin(resumed)
	f.append(resumed, "run.finished", map[string]any{"final_status": "completed", "duration_ms": 1})
}

func ulidOf(prefix string, n int) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	id := []byte("01HX0000000000000000000000")
	for at := len(id) - 1; n > 0; at, n = at-1, n/32 {
		id[at] = digits[n%32]
	}
	return prefix + "_" + string(id)
}

// newRun needs mu.
func (f *fake) newRun() *fakeRun {
	n := len(f.runs) + 1
	r := &fakeRun{id: ulidOf("run", n), task: ulidOf("task", n), cancelled: make(chan struct{})}
	f.runs[r.id] = r
	return r
}

// begin needs mu.
func (f *fake) begin(r *fakeRun) {
	kinds := []string{"run.queued", "run.started"}
	if f.fault == "started-first" {
		slices.Reverse(kinds)
	}
	if f.fault == otherWays {
		kinds = kinds[1:]
	}
	for _, kind := range kinds {
		data := map[string]any{"kind": "agent_loop", "model": "m", "provider": "p"}
		if kind == "run.started" {
			data = map[string]any{"worker_id": "w", "lease_until": "2026-01-01T00:00:00Z"}
		}
		if f.fault == "no-worker" {
			delete(data, "worker_id")
		}
		f.append(r, kind, data)
	}
	f.append(r, f.round("started"), map[string]any{"turn_index": 1, "model": "m", "provider": "p"})
}

func (f *fake) round(what string) string {
	if f.fault == otherWays {
		return "model.call." + what
	}
	if f.fault == "both-vocabularies" && what == "completed" {
		return "model.call." + what
	}
	return "turn." + what
}

// append needs mu.
func (f *fake) append(r *fakeRun, kind string, data map[string]any) {
	n := 1
	if len(f.log) > 0 {
		n = f.log[len(f.log)-1].number + 1
	}
	e := &entry{number: n, run: r, seq: r.next, kind: kind}
	r.next++
	id := ulidOf("evt", n)
	switch f.fault {
	case "same-ids":
		id = ulidOf("evt", n/2)
	case "lower-ids":
		id = strings.ToLower(id)
	case "numbers-skip":
		if kind == "run.started" {
			r.next++
		}
	}
	fields := []any{"schema_version", "1", "event_id", id, "run_id", r.id, "task_id", r.task, "sequence", e.seq,
		"occurred_at", "2026-01-01T00:00:00.000000001Z", "type", kind, "data", data}
	if f.fault == "extra-member" {
		fields = append(fields, "extra", true)
	}
	if f.fault == "version-2" {
		fields[1] = "2"
	}
	if f.fault == "null-data" && len(data) == 0 {
		fields[len(fields)-1] = nil
	}
	for i := 0; i < len(fields); i += 2 {
		value, err := json.Marshal(fields[i+1])
		if err != nil {
			panic(err)
		}
		e.raw = fmt.Appendf(e.raw, ",%q:%s", fields[i], value)
	}
	e.raw[0] = '{'
	e.raw = append(e.raw, '}')
	f.log, r.entries = append(f.log, e), append(r.entries, e)
	close(f.changed)
	f.changed = make(chan struct{})
}

// says appends an event.
func (f *fake) says(r *fakeRun, kind string, data map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.ended && f.fault != "after-the-end" {
		return
	}
	f.append(r, kind, data)
	r.ended = r.ended || strings.HasPrefix(kind, "run.f") || kind == "run.cancelled"
}

// drive starts a run.
func (f *fake) drive(w http.ResponseWriter, q *http.Request) {
	kind := q.FormValue("kind")
	f.mu.Lock()
	r := f.newRun()
	f.begin(r)
	f.mu.Unlock()
	play := map[string]func(*fakeRun){"say": f.say, "long": f.long, "ask": f.ask, "burst": f.burst, "secret": f.secret}[kind]
	f.producers.Go(func() { play(r) })
	w.WriteHeader(http.StatusNoContent)
}

func (f *fake) say(r *fakeRun) {
	block := func(more map[string]any) map[string]any {
		all := map[string]any{"turn_index": 1, "block_index": 0}
		maps.Copy(all, more)
		return all
	}
	f.says(r, "assistant.text_delta", block(map[string]any{"delta": "Grüße, "}))
	f.says(r, "assistant.text_delta", block(map[string]any{"delta": "<world> 🙂"}))
	text := "Grüße, <world> 🙂"
	if f.fault == "other-text" {
		text = "Hello"
	}
	f.says(r, "assistant.text_complete", block(map[string]any{"text": text}))
	if f.fault == "thinks" {
		f.says(r, "assistant.thinking_delta", block(map[string]any{"delta": "hm"}))
	}
	f.says(r, "maestro.note", map[string]any{})
	f.tool(r, "call-1", [][]byte{[]byte("eins zwei "), []byte("drei 🙂"), []byte(" vier")})
	f.finish(r)
}

func (f *fake) finish(r *fakeRun) {
	tokens := 5
	if f.fault == "wrong-total" {
		tokens = 6
	}
	f.says(r, f.round("completed"), map[string]any{"turn_index": 1, "input_tokens": 5, "output_tokens": 7, "cost_micros_usd": 9})
	f.says(r, "cost.tick", map[string]any{"cumulative_input_tokens": tokens, "cumulative_output_tokens": 7, "cumulative_cost_micros_usd": 9})
	kind := "run.finished"
	if f.fault == "retired" {
		f.says(r, "run.completed", map[string]any{})
	}
	f.says(r, kind, map[string]any{"final_status": "completed", "duration_ms": 3})
	if f.fault == "after-the-end" {
		f.says(r, "cost.tick", map[string]any{})
	}
}

// tool is one call of a shell tool, from its start on.
func (f *fake) tool(r *fakeRun, call string, chunks [][]byte) {
	id := func(more map[string]any) map[string]any {
		all := map[string]any{"tool_call_id": call, "tool_name": "bash", "kind": "shell"}
		maps.Copy(all, more)
		return all
	}
	f.says(r, "tool.invoked", id(nil))
	keys := []string{"PATH"}
	if f.fault == "env-values" {
		keys = []string{"PATH=/bin"}
	}
	f.says(r, "tool.shell.command", id(map[string]any{"argv": []string{"x"}, "env_keys": keys}))
	if f.fault == "early-exit" {
		f.says(r, "tool.shell.exited", id(map[string]any{"exit_code": 0}))
	}
	offset := 0
	for i, chunk := range chunks {
		text := string(chunk)
		if f.fault == "cut-characters" && i == 0 {
			text = strings.ToValidUTF8(text+"\xf0\x9f", "\uFFFD")
		} else if f.fault == "cut-characters" && i == 1 {
			text = strings.ToValidUTF8("\x99\x82"+text, "\uFFFD")
		}
		f.says(r, "tool.shell.output_chunk", id(map[string]any{"stream": "stdout", "data": text, "byte_offset": offset}))
		if offset += len(text); f.fault == "offsets-in-characters" {
			offset += len([]rune(text)) - len(text)
		}
	}
	if f.fault != "early-exit" {
		f.says(r, "tool.shell.exited", id(map[string]any{"exit_code": 0}))
	}
	if f.fault != "tool-without-end" {
		f.says(r, "tool.completed", id(map[string]any{"duration_ms": 1, "summary": "done"}))
	}
	if f.fault == "tool-ends-twice" {
		f.says(r, "tool.failed", id(map[string]any{"duration_ms": 1, "summary": "done", "error": "no"}))
	}
}

func (f *fake) long(r *fakeRun) {
	for i := 0; ; i++ {
		f.says(r, "assistant.text_delta", map[string]any{"turn_index": 1, "block_index": 0, "delta": fmt.Sprint(i, " ")})
		select {
		case <-r.cancelled:
			f.says(r, "run.cancelled", map[string]any{"by": "operator", "reason": "conformance"})
			return
		case <-f.closed:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (f *fake) burst(r *fakeRun) {
	n := 300
	if f.fault == "many-chunks" {
		n = 2100
	}
	f.tool(r, "call-1", slices.Repeat([][]byte{[]byte(strings.Repeat("y\n", 4096))}, n))
	f.finish(r)
}

func (f *fake) secret(r *fakeRun) {
	text := "[redacted]"
	if f.fault == "leak" {
		text = fakeSecret
	}
	data := map[string]any{"turn_index": 1, "block_index": 0, "text": text, "redacted_paths": []string{"text"}}
	if f.fault == "unnamed" {
		delete(data, "redacted_paths")
	}
	f.says(r, "assistant.text_complete", data)
	f.finish(r)
}
