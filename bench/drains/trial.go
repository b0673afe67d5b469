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

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A trial moves one session once.
type trial struct {
	plan
	keep bool // questions stay open; else they are cancelled

	dir     string
	first   *runner
	second  *runner
	control *client.Client // of the runner that runs
	viewers []*viewer      // the first is there from the beginning
	wg      sync.WaitGroup // the viewers, and the reader of control
	pids    []int64        // of the commands

	final     uint64 // the cursor of the manifest
	manifest  string // its path
	took      time.Duration
	resumed   time.Duration
	delivered int
	faults    []string
}

// questions are asked before the drain, one of each kind.
var questions = []contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput, contracts.RequestClientTool}

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
	t.release()
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
	if err := t.attach(ctx, t.first); err != nil {
		return err
	}
	for i, kind := range questions {
		ask := `__maestro_conformance_server_request__:{"request_id":"q%d","request_type":%q,"tool":"ask","args":{"prompt":"?"},"reason":"why"}`
		if err := t.prompt(ctx, fmt.Sprintf(ask, i, kind)); err != nil {
			return err
		}
	}
	for i := range 2 {
		if _, err := t.control.Send(ctx, &contracts.UtilityCommandStart{CommandID: fmt.Sprintf("c%d", i), Command: "sleep 600 & sleep 600"}); err != nil {
			return err
		}
	}
	t.watch(ctx, t.first, 1)
	witness := t.viewers[0]
	if err := witness.await(ctx, "everything that is open", func(v *viewer) bool {
		return v.last != nil && len(v.last.State.PendingRequests) == len(questions) && len(v.last.State.ActiveUtilityCommands) == 2
	}); err != nil {
		return err
	}
	for _, c := range witness.last.State.ActiveUtilityCommands {
		t.pids = append(t.pids, c.PID)
	}
	if err := t.prompt(ctx, `__maestro_conformance_stream__:{"chunks":100000,"delay_ms":10}`); err != nil {
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

// prompt sends a prompt. A question outlives the run that asked it, and prompts are refused
// until that run has ended: prompt then tries again.
func (t *trial) prompt(ctx context.Context, text string) error {
	for {
		_, err := t.control.Prompt(ctx, text)
		if !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeBusy}) {
			return err
		}
		if err := sleep.For(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
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

// open is how many questions are still open after the drain.
func (t *trial) open() int {
	if t.keep {
		return len(questions)
	}
	return 0
}

// attach makes a controller on r.
func (t *trial) attach(ctx context.Context, r *runner) (err error) {
	t.release()
	t.control, err = client.Dial(ctx, r.base, client.WithoutReconnect(), client.WithSession(session, false), client.WithHello(contracts.Hello{
		Role: contracts.RoleController, ClientInfo: &contracts.ClientInfo{Name: "controller"},
		Capabilities: &contracts.Capabilities{ServerRequests: questions, UtilityOperations: []contracts.UtilityOperation{contracts.OperationCommandExec}},
	}))
	if err != nil {
		return err
	}
	updates := t.control.Updates(ctx)
	t.wg.Go(func() { // ends with the controller
		for _, err := range updates {
			_ = err // the last; calls report it too
		}
	})
	return nil
}

// release ends the controller, if there is one.
func (t *trial) release() {
	if t.control != nil {
		_ = t.control.Close(false) // an error says that the runner has ended
		t.control = nil
	}
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
	text, err := t.first.drain(ctx)
	t.took = time.Since(began)
	if err != nil {
		return err
	}
	if t.took > t.bound {
		t.fault("the drain took %v, want less than %v", t.took, t.bound)
	}
	var answer struct {
		Status   contracts.DrainStatus `json:"status"`
		Path     string                `json:"manifest_path"`
		Manifest json.RawMessage       `json:"manifest"`
	}
	var m contracts.Manifest
	if err := errors.Join(json.Unmarshal(text, &answer), json.Unmarshal(answer.Manifest, &m)); err != nil {
		return err
	}
	s, err := new(contracts.Decoder).Snapshot(m.Snapshot)
	if err != nil {
		return err
	}
	file, err := os.ReadFile(answer.Path)
	if err != nil {
		return err
	}
	if !bytes.Equal(bytes.TrimSpace(file), answer.Manifest) {
		t.fault("the manifest in the answer and in the file differ")
	}
	t.manifest, t.final = answer.Path, s.Cursor
	if answer.Status != contracts.Drained || m.Runtime.FlushStatus != contracts.FlushCompleted || t.final == 0 ||
		m.Runtime.Cursor == nil || *m.Runtime.Cursor != t.final || m.WorkContinuity.PendingRequestCount != int64(len(questions)) ||
		len(m.PendingRequests) != t.open() || len(s.State.PendingRequests) != t.open() || !s.State.IsReady || len(s.State.ActiveUtilityCommands) != 0 {
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
		if v.last == nil || v.last.Cursor != t.final || v.cursor != t.final || v.last.State.IsReady ||
			v.last.State.LastStatus == nil || *v.last.State.LastStatus != "Drained" {
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
	for _, v := range t.viewers {
		if err := v.await(ctx, "the restored state", func(v *viewer) bool { return v.reset != "" }); err != nil {
			return err
		}
		v.mu.Lock()
		got := v.last
		if v.reset != contracts.ResetRestored || got.Cursor < t.final || !got.State.IsReady || len(got.State.PendingRequests) != t.open() {
			t.fault("%s came back to %s %+v, want the restored state with %d questions", v.name, v.reset, got, t.open())
		}
		v.mu.Unlock()
	}
	t.resumed = time.Since(began)
	return nil
}

// goOn has the questions answered and one more prompt served, for all to see.
func (t *trial) goOn(ctx context.Context) error {
	if err := t.attach(ctx, t.second); err != nil {
		return err
	}
	for i, kind := range questions {
		answer := &contracts.ServerRequestResponse{RequestID: fmt.Sprintf("q%d", i), RequestType: kind}
		if kind == contracts.RequestApproval {
			answer.Approved = new(true)
		} else {
			answer.Content = []contracts.ContentBlock{{Type: "text", Text: "yes"}}
		}
		_, err := t.control.Send(ctx, answer)
		late := errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound})
		if late == t.keep || err != nil && !late {
			t.fault("answer %d: got %v, want the question there: %t", i, err, t.keep)
		}
	}
	// The run of the prompt ends with entries that viewers are not shown; init ends with
	// a status.
	if err := t.prompt(ctx, "after the move"); err != nil {
		return err
	}
	said, err := t.control.Send(ctx, &contracts.Init{})
	if err != nil {
		return err
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
		if resolved != t.open() || v.backed || !prompted {
			t.fault("%s saw %d questions end after the move and the prompt %v, want %d and the prompt", v.name, resolved, prompted, t.open())
		}
		v.mu.Unlock()
	}
	return nil
}
