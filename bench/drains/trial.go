package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A trial moves one session once.
type trial struct {
	plan
	keep bool // questions stay open; else they are cancelled

	dir     string
	first   *runner
	second  *runner
	headers map[string]string // that name the controller
	viewers []*viewer         // the first is there from the beginning
	wg      sync.WaitGroup
	pids    []int // of the commands

	final     uint64 // the cursor of the manifest
	manifest  string // its path
	took      time.Duration
	resumed   time.Duration
	delivered int
	faults    []string
}

// questions are asked before the drain, one of each kind.
var questions = []string{"approval", "user_input", "client_tool"}

func (t *trial) mode() string {
	if t.keep {
		return "questions kept"
	}
	return "questions cancelled"
}

func (t *trial) fault(format string, args ...any) {
	if len(t.faults) < 20 {
		t.faults = append(t.faults, fmt.Sprintf(format, args...))
	}
}

func (t *trial) close() error {
	err := errors.Join(t.first.end(), t.second.end())
	t.wg.Wait()
	return errors.Join(err, os.RemoveAll(t.dir))
}

// patience bounds all that one trial waits for.
const patience = time.Minute

func (t *trial) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	for _, part := range []func(context.Context) error{t.load, t.drain, t.compare, t.move, t.comeBack, t.goOn} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// load starts the first runner and gives it everything at once.
func (t *trial) load(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "maestro-drains-")
	if err != nil {
		return err
	}
	t.dir = dir
	home := filepath.Join(dir, "here")
	if err := errors.Join(os.Mkdir(home, 0o755), os.WriteFile(filepath.Join(home, "notes.md"), []byte("alpha\n"), 0o644)); err != nil {
		return err
	}
	if t.first, err = start(t.binary, home, "first", "", t.requests()...); err != nil {
		return err
	}
	if err := t.control(ctx, t.first); err != nil {
		return err
	}
	for i, kind := range questions {
		if err := t.say(ctx, t.first, prompt(fmt.Sprintf(`__maestro_conformance_server_request__:{"request_id":"q%d","request_type":%q,"tool":"ask","args":{"prompt":"?"},"reason":"why"}`, i, kind))); err != nil {
			return err
		}
	}
	for i := range 2 {
		if err := t.say(ctx, t.first, fmt.Sprintf(`{"type":"utility_command_start","command_id":"c%d","command":"sleep 600 & sleep 600"}`, i)); err != nil {
			return err
		}
	}
	t.watch(ctx, t.first, 1)
	witness := t.viewers[0]
	if err := witness.await(ctx, "everything that is open", func(v *viewer) bool {
		return v.last != nil && len(v.last.State.Pending) == len(questions) && len(v.last.State.Commands) == 2
	}); err != nil {
		return err
	}
	for _, c := range witness.last.State.Commands {
		t.pids = append(t.pids, c.PID)
	}
	if err := t.say(ctx, t.first, prompt(`__maestro_conformance_stream__:{"chunks":100000,"delay_ms":10}`)); err != nil {
		return err
	}
	t.watch(ctx, t.first, t.plan.viewers-1)
	at := witness.position()
	for _, v := range t.viewers {
		if err := v.await(ctx, "the stream", func(v *viewer) bool { return v.cursor > at+20 }); err != nil {
			return err
		}
	}
	return nil
}

func (v *viewer) position() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cursor
}

func (t *trial) requests() []string {
	if t.keep {
		return []string{"--drain-requests", "keep"}
	}
	return []string{"--drain-requests", "cancel"}
}

// control makes a controller on r.
func (t *trial) control(ctx context.Context, r *runner) error {
	var sub struct {
		Connection   string `json:"connection_id"`
		Subscription string `json:"subscription_id"`
		Granted      bool   `json:"controller_lease_granted"`
	}
	err := r.must(ctx, "/api/headless/sessions/"+session+"/subscribe", nil, `{"role":"controller","takeControl":false,"clientInfo":{"name":"controller"},`+
		`"capabilities":{"serverRequests":["approval","client_tool","user_input"],"utilityOperations":["command_exec"]}}`, &sub)
	if err == nil && !sub.Granted {
		err = errors.New("the controller did not get the lease")
	}
	t.headers = map[string]string{
		"X-Maestro-Headless-Connection-Id": sub.Connection, "X-Maestro-Headless-Subscriber-Id": sub.Subscription,
	}
	return err
}

func prompt(content string) string {
	text, err := json.Marshal(map[string]string{"type": "prompt", "content": content})
	if err != nil {
		panic(err) // two strings
	}
	return string(text)
}

func (t *trial) say(ctx context.Context, r *runner, message string) error {
	return r.must(ctx, "/api/headless/sessions/"+session+"/messages", t.headers, message, &struct{}{})
}

// watch adds viewers.
func (t *trial) watch(ctx context.Context, r *runner, count int) {
	for range count {
		v := newViewer(fmt.Sprintf("viewer %d", len(t.viewers)), len(t.viewers)%2 == 1)
		t.viewers = append(t.viewers, v)
		t.wg.Go(func() { v.follow(ctx, r.base) }) // ends with the runner
	}
}

// drain drains the first runner and holds its answer against the contract.
func (t *trial) drain(ctx context.Context) error {
	began := time.Now()
	status, text, err := t.first.post(ctx, "/.well-known/evalops/remote-runner/drain", nil, `{"reason":"moving","requested_by":"drains","export_paths":["notes.md"]}`)
	t.took = time.Since(began)
	if err != nil {
		return err
	}
	if status != 200 {
		return fmt.Errorf("drain: %d %s", status, text)
	}
	if t.took > t.bound {
		t.fault("the drain took %v, want less than %v", t.took, t.bound)
	}
	var answer struct {
		Status   string          `json:"status"`
		Path     string          `json:"manifest_path"`
		Manifest json.RawMessage `json:"manifest"`
	}
	var manifest struct {
		Runtime struct {
			Flush  string `json:"flush_status"`
			Cursor uint64 `json:"cursor"`
		} `json:"runtime"`
		Snapshot state `json:"snapshot"`
		Requests []struct {
			Request struct {
				ID string `json:"request_id"`
			} `json:"request"`
		} `json:"pending_requests"`
		Work struct {
			Pending int `json:"pending_request_count"`
		} `json:"work_continuity"`
	}
	if err := errors.Join(json.Unmarshal(text, &answer), json.Unmarshal(answer.Manifest, &manifest)); err != nil {
		return err
	}
	file, err := os.ReadFile(answer.Path)
	if err != nil {
		return err
	}
	if !bytes.Equal(bytes.TrimSpace(file), answer.Manifest) {
		t.fault("the manifest in the answer and in the file differ")
	}
	t.manifest, t.final = answer.Path, manifest.Runtime.Cursor
	open := 0
	if t.keep {
		open = len(questions)
	}
	if answer.Status != "drained" || manifest.Runtime.Flush != "completed" || t.final == 0 || manifest.Snapshot.Cursor != t.final ||
		manifest.Work.Pending != len(questions) || len(manifest.Requests) != open || len(manifest.Snapshot.State.Pending) != open ||
		!manifest.Snapshot.State.Ready || len(manifest.Snapshot.State.Commands) != 0 {
		t.fault("the manifest is not whole: %s", answer.Manifest)
	}
	for _, pid := range t.pids {
		if alive(pid) {
			t.fault("command %d was left behind", pid)
		}
	}
	return nil
}

// compare waits for the end of every stream and holds what was shown against
// what the first viewer was shown.
func (t *trial) compare(ctx context.Context) error {
	for _, v := range t.viewers {
		err := v.await(ctx, "the final state", func(v *viewer) bool { return v.cursor >= t.final })
		if err != nil {
			return err
		}
	}
	if err := t.first.end(); err != nil {
		return err
	}
	t.first = nil
	t.wg.Wait()
	witness := t.viewers[0]
	for _, v := range t.viewers {
		t.delivered += v.counted
		if !errors.Is(v.ended, io.EOF) {
			t.fault("%s: the stream ended with %v", v.name, v.ended)
		}
		if v.last == nil || v.last.Cursor != t.final || v.cursor != t.final || v.last.State.Ready || v.last.State.Status != "Drained" {
			t.fault("%s was last shown %+v at %d, want the drained state at %d", v.name, v.last, v.cursor, t.final)
		}
		if v.backed {
			t.fault("%s was shown a cursor twice", v.name)
		}
		if v.text != witness.text {
			t.fault("%s has %d bytes of the answer, the first viewer %d", v.name, len(v.text), len(witness.text))
		}
		if got, want := v.seen(v.start, t.final), witness.seen(v.start, t.final); !slices.Equal(got, want) {
			t.fault("%s was shown %d messages since %d, the first viewer %d", v.name, len(got), v.start, len(want))
		}
	}
	return nil
}

// move takes the workspace to another place, and restores the session there.
func (t *trial) move(context.Context) error {
	there := filepath.Join(t.dir, "there")
	if err := os.Rename(filepath.Join(t.dir, "here"), there); err != nil {
		return err
	}
	rest, err := filepath.Rel(filepath.Join(t.dir, "here"), t.manifest)
	if err != nil {
		return err
	}
	t.second, err = start(t.binary, there, "second", filepath.Join(there, rest), t.requests()...)
	return err
}

// comeBack has every viewer go on where it was.
func (t *trial) comeBack(ctx context.Context) error {
	began := time.Now()
	for _, v := range t.viewers {
		v.mu.Lock()
		v.ended = nil
		v.mu.Unlock()
		t.wg.Go(func() { v.follow(ctx, t.second.base) }) // ends with the runner
	}
	open := 0
	if t.keep {
		open = len(questions)
	}
	for _, v := range t.viewers {
		if err := v.await(ctx, "the restored state", func(v *viewer) bool { return v.reset != "" }); err != nil {
			return err
		}
		v.mu.Lock()
		got := v.last
		if v.reset != "restored_from_snapshot" || got.Cursor < t.final || !got.State.Ready || len(got.State.Pending) != open {
			t.fault("%s came back to %s %+v, want the restored state with %d questions", v.name, v.reset, got, open)
		}
		v.mu.Unlock()
	}
	t.resumed = time.Since(began)
	return nil
}

// goOn has the questions answered and one more prompt served, for all to see.
func (t *trial) goOn(ctx context.Context) error {
	if err := t.control(ctx, t.second); err != nil {
		return err
	}
	answers := []string{
		`"request_type":"approval","approved":true`,
		`"request_type":"user_input","content":[{"type":"text","text":"yes"}]`,
		`"request_type":"client_tool","content":[{"type":"text","text":"done"}]`,
	}
	for i, a := range answers {
		status, text, err := t.second.post(ctx, "/api/headless/sessions/"+session+"/messages", t.headers, fmt.Sprintf(`{"type":"server_request_response","request_id":"q%d",%s}`, i, a))
		if err != nil {
			return err
		}
		if want := map[bool]int{true: 200, false: 404}[t.keep]; status != want {
			t.fault("answer %d: got %d %s, want %d", i, status, text, want)
		}
	}
	var said struct {
		Cursor uint64 `json:"cursor"`
	}
	// The run of the prompt ends with entries that viewers are not shown; init ends with
	// a status.
	for _, text := range []string{prompt("after the move"), `{"type":"init"}`} {
		if err := t.second.must(ctx, "/api/headless/sessions/"+session+"/messages", t.headers, text, &said); err != nil {
			return err
		}
	}
	want := 0
	if t.keep {
		want = len(questions)
	}
	for _, v := range t.viewers {
		err := v.await(ctx, "the prompt", func(v *viewer) bool { return v.cursor >= said.Cursor })
		if err != nil {
			return err
		}
		v.mu.Lock()
		resolved := 0
		for _, s := range v.seen(t.final, v.cursor) {
			if s.kind == "server_request_resolved" {
				resolved++
			}
		}
		prompted := slices.ContainsFunc(v.steps, func(s step) bool { return s.cursor > t.final && s.kind == "status" })
		if resolved != want || v.backed || !prompted {
			t.fault("%s saw %d questions end after the move and the prompt %v, want %d and the prompt", v.name, resolved, prompted, want)
		}
		v.mu.Unlock()
	}
	return nil
}
