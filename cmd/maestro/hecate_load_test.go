package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// planted are secrets in the prompts, the answers, the arguments and the output of tools.
var planted = []string{"ghp_" + strings.Repeat("pR0mpt", 6), "ghp_" + strings.Repeat("aN5wer", 6), "ghp_" + strings.Repeat("Arg5xx", 6), "AKIA" + strings.Repeat("OUTPUTOK", 2)}

var hecateLoadScript = `{"default": [
	{"repeat": {"times": 6, "steps": [
		{"say": {"text": "Some words of an answer, in a few pieces. ", "chunk": 10, "delay_ms": 5}},
		{"say": {"text": "With ` + planted[1] + ` in it. ", "chunk": 10, "delay_ms": 5}},
		{"tool": {"name": "bash", "args": {"command": "login ` + planted[2] + `"}, "output": "ok  some/package\nkey ` + planted[3] + `\n"}},
		{"delay_ms": 40}
	]}},
	{"usage": {"input_tokens": 10, "output_tokens": 5}}
]}`

// A hecateLoad is a server that is killed again and again while runs go on.
type hecateLoad struct {
	t       *testing.T
	addr    string
	args    []string
	kills   int
	mu      sync.Mutex
	process *exec.Cmd

	events atomic.Int64 // that followers have got
	breaks atomic.Int64 // of their streams
}

// loadSize returns how many runs, followers and kills a test has: those in
// MAESTRO_HECATE_LOAD, as in 1000,200,10.
func loadSize(t *testing.T) (runs, followers, kills int) {
	runs, followers, kills = 50, 20, 3
	if text := os.Getenv("MAESTRO_HECATE_LOAD"); text != "" {
		if _, err := fmt.Sscanf(text, "%d,%d,%d", &runs, &followers, &kills); err != nil {
			t.Fatal(err)
		}
	}
	return runs, followers, kills
}

func newHecateLoad(t *testing.T, kills int) *hecateLoad {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // for a port that stays the same
	if err != nil {
		t.Fatal(err)
	}
	l := &hecateLoad{t: t, addr: ln.Addr().String(), kills: kills}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(file, []byte(hecateLoadScript), 0o600); err != nil {
		t.Fatal(err)
	}
	l.args = []string{"serve", "--agent", "script:" + file, "--auth", "off", "--listen", l.addr, "--state-dir", t.TempDir(),
		"--workspace", t.TempDir(), "--request-rate", "-1", "--attach-rate", "-1", "--max-sessions", "4096", "--log-level", "error"}
	return l
}

// TestHecateLoad kills the server while runs go on and followers read. No follower may
// miss an event, get one twice, or get other bytes than the list has.
func TestHecateLoad(t *testing.T) { // E4, E5, E6, E12, E14, E17, E18, E20, E44
	t.Parallel()
	runs, followers, kills := loadSize(t)
	l := newHecateLoad(t, kills)
	l.start()
	l.get("/tasks", nil) // from now on the server keeps the log
	began := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var reading, producing sync.WaitGroup
	readers := make([]*loadReader, followers)
	for i := range readers {
		readers[i] = newLoadReader(l, nil)
		reading.Go(func() { readers[i].follow(ctx) })
	}
	verdict := l.node(ctx, runs)
	const perSession = 5
	for i := range (runs + perSession - 1) / perSession {
		producing.Go(func() { l.produce(ctx, fmt.Sprint("load-", i), min(perSession, runs-i*perSession)) })
	}
	l.killAndStart(&producing)
	produced := time.Since(began)
	want, size := l.settle()
	for _, r := range readers {
		r.want.Store(want.last.Load())
	}
	reading.Wait()
	for i, r := range readers {
		if r.last.Load() != want.last.Load() || r.sum != want.sum {
			t.Errorf("follower %d got %d events with sum %x, want %d with %x", i, r.last.Load(), r.sum, want.last.Load(), want.sum)
		}
	}
	l.checkRuns(want)
	verdict()
	took := time.Since(began)
	t.Logf("%d runs, %d followers, %d kills: %d events of %d bytes, %d delivered, %d streams broken, runs took %s, all %s",
		len(want.ended), followers, kills, want.last.Load(), size, l.events.Load(), l.breaks.Load(), produced.Round(time.Millisecond), took.Round(time.Millisecond))
}

func (l *hecateLoad) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	cmd := program(l.t, l.args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.process = cmd
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for late := time.Now().Add(time.Minute); ; pause(l.t.Context()) {
		res, err := http.Get("http://" + l.addr + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			return
		}
		if time.Now().After(late) {
			l.t.Fatal(err)
		}
	}
}

// killAndStart kills the server while the producers work, and starts it again.
func (l *hecateLoad) killAndStart(producing *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { // ends with the producers
		producing.Wait()
		close(done)
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		case <-time.After(700 * time.Millisecond): // of work between two kills
			if i < l.kills {
				_ = l.process.Process.Kill() // SIGKILL
				_ = l.process.Wait()
				l.start()
			}
		}
	}
}

// produce has n runs in a session, each with its end, which may be that the server was
// killed.
func (l *hecateLoad) produce(ctx context.Context, session string, n int) {
	for n > 0 {
		c, err := client.Dial(ctx, "http://"+l.addr, client.WithSession(session, true), client.WithRole(contracts.RoleController), client.WithTakeover(contracts.TakeoverForce), client.WithoutReconnect())
		if err != nil {
			if ctx.Err() != nil {
				l.t.Errorf("session %s: %v", session, err)
				return
			}
			pause(ctx)
			continue
		}
		for n > 0 {
			if _, err = c.Prompt(ctx, "go on with "+planted[0]); err != nil {
				break
			}
			n--
			if err = l.awaitRun(ctx, c); err != nil {
				break
			}
		}
		_ = c.Close(false) // the server may be gone
	}
}

// pause waits between two tries to reach a server that was killed.
func pause(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// awaitRun waits for the end of a run.
func (l *hecateLoad) awaitRun(ctx context.Context, c *client.Client) error {
	for {
		u, err := c.Next(ctx)
		if err != nil {
			return err
		}
		if _, ok := u.Event.(*contracts.ResponseEnd); ok && !c.State().IsResponding {
			return nil
		}
	}
}

func (l *hecateLoad) get(path string, into any) {
	l.t.Helper()
	res, err := http.Get("http://" + l.addr + "/hecate/v1" + path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		l.t.Fatalf("%s: got %d %s, %v", path, res.StatusCode, text, err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			l.t.Fatal(err)
		}
	}
}

type loadPage struct {
	Data []json.RawMessage
	Next uint64 `json:"next_after_sequence"`
	More bool   `json:"has_more"`
}

// settle waits until no run is open, and returns what the lists of all runs have.
func (l *hecateLoad) settle() (want *loadReader, size int) {
	for late := time.Now().Add(2 * time.Minute); ; {
		want, size = newLoadReader(l, map[string]bool{}), 0
		for more := true; more; {
			var p loadPage
			l.get(fmt.Sprintf("/events?limit=500&after_sequence=%d", want.last.Load()), &p)
			for _, line := range p.Data {
				want.take(want.last.Load()+1, line)
				size += len(line)
			}
			more = p.More
		}
		if len(want.next) > 0 && len(want.ended) == len(want.next) {
			return want, size
		}
		if time.Now().After(late) {
			l.t.Fatalf("got the end of %d of %d runs", len(want.ended), len(want.next))
		}
	}
}

// checkRuns compares the list of each run with what all runs together have.
func (l *hecateLoad) checkRuns(want *loadReader) {
	var tasks struct{ Data []struct{ ID string } }
	l.get("/tasks", &tasks)
	found := 0
	for _, task := range tasks.Data {
		var runs struct{ Data []struct{ ID string } }
		l.get("/tasks/"+task.ID+"/runs", &runs)
		for _, run := range runs.Data {
			var p loadPage
			l.get("/tasks/"+task.ID+"/runs/"+run.ID+"/events?limit=500", &p)
			if uint64(len(p.Data)) != want.next[run.ID] {
				l.t.Errorf("run %s: got %d events, want %d", run.ID, len(p.Data), want.next[run.ID])
			}
			found++
		}
	}
	if found != len(want.next) {
		l.t.Errorf("got %d runs in the tasks, want %d", found, len(want.next))
	}
}

// node starts a consumer in another language, which follows until that many runs have
// ended. The function that it returns waits for its verdict.
func (l *hecateLoad) node(ctx context.Context, runs int) (verdict func()) {
	file, err := filepath.Abs("../../internal/transport/hecate/testdata/consumer.mjs")
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := exec.LookPath("node"); err != nil {
		return func() {}
	}
	cmd := exec.CommandContext(ctx, "node", append([]string{file, "http://" + l.addr, strconv.Itoa(runs)}, planted...)...)
	cmd.Env = append(os.Environ(), "HECATE_SECONDS=600")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			l.t.Errorf("the consumer says: %v\n%s", err, &out)
		}
		l.t.Logf("the consumer says: %s", &out)
	}
}

// A loadReader checks the events of all runs.
type loadReader struct {
	load  *hecateLoad
	want  atomic.Uint64 // number of the last event; 0: not known yet
	last  atomic.Uint64
	sum   uint64          // of all bytes
	seen  map[string]bool // ids of events; nil for a reader whose sum is compared
	next  map[string]uint64
	ended map[string]bool
}

func newLoadReader(l *hecateLoad, seen map[string]bool) *loadReader {
	return &loadReader{load: l, seen: seen, next: map[string]uint64{}, ended: map[string]bool{}}
}

// done reports whether the reader has the last event.
func (r *loadReader) done() bool {
	want := r.want.Load()
	return want > 0 && r.last.Load() >= want
}

// follow reads the stream of all runs, and reconnects when it breaks.
func (r *loadReader) follow(ctx context.Context) {
	for ctx.Err() == nil && !r.done() {
		if err := r.read(ctx); err != nil {
			r.load.breaks.Add(1)
			pause(ctx)
		}
	}
}

func (r *loadReader) read(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with the stream, which gets nothing after the last event
		for ctx.Err() == nil && !r.done() {
			pause(ctx)
		}
		stop()
	}()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.load.addr+"/hecate/v1/events/stream", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", strconv.FormatUint(r.last.Load(), 10))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	text := bufio.NewReaderSize(res.Body, 64<<10)
	id := uint64(0)
	for {
		line, err := text.ReadBytes('\n')
		if err != nil {
			return err // also of a broken line, which is read again
		}
		if rest, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
			id, _ = strconv.ParseUint(strings.TrimSpace(string(rest)), 10, 64)
		}
		if rest, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			r.take(id, bytes.TrimSuffix(rest, []byte{'\n'}))
			r.load.events.Add(1)
			if r.done() {
				return nil
			}
		}
	}
}

// take checks one event.
func (r *loadReader) take(id uint64, line []byte) {
	event, run, seq, kind := member(line, "event_id"), member(line, "run_id"), member(line, "sequence"), member(line, "type")
	n, _ := strconv.ParseUint(seq, 10, 64)
	switch {
	case id != r.last.Load()+1:
		r.load.t.Errorf("got number %d after %d", id, r.last.Load())
	case r.seen[event]:
		r.load.t.Errorf("got %s twice", event)
	case n != r.next[run]:
		r.load.t.Errorf("got sequence %d of run %s, want %d", n, run, r.next[run])
	case slices.ContainsFunc(planted, func(secret string) bool { return bytes.Contains(line, []byte(secret)) }):
		r.load.t.Errorf("got a secret in %s", line)
	case r.ended[run]:
		r.load.t.Errorf("got %s after the end of run %s", kind, run)
	}
	if r.seen != nil {
		r.seen[event] = true
	}
	r.last.Store(id)
	r.next[run] = n + 1
	for _, c := range line {
		r.sum = r.sum*31 + uint64(c)
	}
	if kind == "run.finished" || kind == "run.failed" || kind == "run.cancelled" {
		r.ended[run] = true
	}
}

// member returns the value of a member of an envelope, as text.
func member(line []byte, name string) string {
	_, rest, _ := bytes.Cut(line, []byte(`"`+name+`":`))
	value, _, _ := bytes.Cut(rest, []byte{','})
	return string(bytes.Trim(value, `"`))
}
