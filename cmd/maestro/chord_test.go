//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// A chordLine is one envelope.
type chordLine struct {
	Type    string
	Payload map[string]any
	raw     string
}

// text returns a member of the payload as text.
func (l chordLine) text(name string) string { return fmt.Sprint(l.Payload[name]) }

// A chordPeer is a Chord client.
type chordPeer struct {
	t    *testing.T
	cmd  *exec.Cmd // nil on a socket
	in   io.WriteCloser
	out  *bufio.Reader
	read interface{ SetReadDeadline(time.Time) error }
	log  *strings.Builder
}

// chordProcess starts headless --protocol chord.
func chordProcess(t *testing.T, args ...string) *chordPeer {
	t.Helper()
	return chordStart(t, program(t, append([]string{"headless", "--protocol", "chord"}, args...)...))
}

func chordStart(t *testing.T, cmd *exec.Cmd) *chordPeer {
	t.Helper()
	p := &chordPeer{t: t, cmd: cmd, log: &strings.Builder{}}
	cmd.Stderr = p.log
	cmd.WaitDelay = patience
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.in, p.out, p.read = in, bufio.NewReaderSize(out, 1<<20), out.(*os.File)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return p
}

// chordSocket connects to a Unix socket.
func chordSocket(t *testing.T, path string) *chordPeer {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &chordPeer{t: t, in: conn, out: bufio.NewReaderSize(conn, 1<<20), read: conn, log: &strings.Builder{}}
}

// send writes lines.
func (p *chordPeer) send(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			p.t.Fatalf("write %s: %v; log:\n%s", l, err, p.log)
		}
	}
}

// do sends a command with members.
func (p *chordPeer) do(kind string, members ...any) {
	p.t.Helper()
	cmd := map[string]any{"type": kind}
	for i := 0; i < len(members); i += 2 {
		cmd[members[i].(string)] = members[i+1]
	}
	text, err := json.Marshal(cmd)
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(string(text))
}

// next reads one envelope, and checks what all have (C2, C46).
func (p *chordPeer) next() chordLine {
	p.t.Helper()
	if err := p.read.SetReadDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	raw, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("got %v after %q, want a line; log:\n%s", err, raw, p.log)
	}
	if len(raw) >= 1<<20 {
		p.t.Fatalf("got a line of %d bytes, want less than 1 MiB (C46)", len(raw))
	}
	var l chordLine
	if err := json.Unmarshal([]byte(raw), &l); err != nil || l.Type == "" || l.Payload == nil {
		p.t.Fatalf("got %s, want an object with type and payload (C2): %v", raw, err)
	}
	if l.Type == "activity" && l.Payload["type"] == "idle" {
		p.t.Errorf("got %s, want no activity idle (C20)", raw)
	}
	l.raw = raw
	return l
}

// until reads up to an envelope of a type, and returns it and those before.
func (p *chordPeer) until(kind string) (l chordLine, before []chordLine) {
	p.t.Helper()
	for {
		if l = p.next(); l.Type == kind {
			return l, before
		}
		before = append(before, l)
	}
}

// find returns the envelopes of a type.
func find(all []chordLine, kind string) (found []chordLine) {
	for _, l := range all {
		if l.Type == kind {
			found = append(found, l)
		}
	}
	return found
}

// chordKinds returns the types of envelopes.
func chordKinds(all []chordLine) (names []string) {
	for _, l := range all {
		names = append(names, l.Type)
	}
	return names
}

// status asks for the status and returns it and what came before.
func (p *chordPeer) status() (chordLine, []chordLine) {
	p.t.Helper()
	p.do("status")
	return p.until("status_response")
}

// fails reads the next envelope, which is an error about a command.
func (p *chordPeer) fails(code, message string) {
	p.t.Helper()
	l := p.next()
	got, _ := l.Payload["code"].(string)
	if _, runtime := l.Payload["agent_id"]; l.Type != "error" || runtime || got != code || !strings.Contains(l.text("message"), message) {
		p.t.Errorf("got %s, want a command error %q with %q", l.raw, code, message)
	}
}

// ends waits for the end of the process and its exit code.
func (p *chordPeer) ends(code int) {
	p.t.Helper()
	if got := codeAtEnd(p.t, p.cmd); got != code {
		p.t.Errorf("got exit code %d, want %d; log:\n%s", got, code, p.log)
	}
}

// chordModel serves a model that plays the prompts, and returns the flags for it.
func chordModel(t *testing.T, pause time.Duration) (*localmodel.Server, []string) {
	t.Helper()
	m, url := modelServer(t, localmodel.Options{Pause: pause})
	return m, []string{"--agent", "llm:openai-chat/some", "--model-url", url, "--ask", "bash"}
}

// scripted writes a script for the script agent.
func scripted(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "script:" + path
}

// A recording is the lines of one recorded connection.
type recording []struct {
	Dir, Raw, Event string
	Code            int
}

func chordRecording(t *testing.T, name string) (r recording) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "chord", name))
	if err != nil {
		t.Fatal(err)
	}
	_, text2, _ := strings.Cut(string(text), "\n") // the first line is about the recording
	for line := range strings.Lines(text2) {
		r = append(r, struct {
			Dir, Raw, Event string
			Code            int
		}{})
		if err := json.Unmarshal([]byte(line), &r[len(r)-1]); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// A comparison compares lines with those of a recording.
type comparison struct {
	ids  map[string]string // by recorded id
	last string            // last activity
}

// matters reports whether a line is compared: of the waiting phases any may be left out,
// equal activities count once, and so do errors with codes of our own not.
func (c *comparison) matters(l chordLine) bool {
	switch l.Type {
	case "activity":
		phase := l.text("type") + l.text("detail")
		again := phase == c.last || strings.HasPrefix(phase, "waiting")
		if !again {
			c.last = phase
		}
		return !again
	case "error":
		return l.Payload["code"] == nil
	}
	c.last = ""
	return true
}

// same reports whether got has all that want has.
func (c *comparison) same(name string, got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		for key, value := range want {
			ok = ok && (want["busy"] == true && strings.HasPrefix(key, "phase") || c.same(key, object[key], value))
		}
		return ok
	case string:
		text, _ := got.(string)
		switch name {
		case "updated_at":
			return text != ""
		case "session_id", "request_id":
			if c.ids[want] == "" {
				c.ids[want] = text
			}
			return text != "" && c.ids[want] == text
		case "args_json":
			var a, b any
			return json.Unmarshal([]byte(text), &a) == nil && json.Unmarshal([]byte(want), &b) == nil && reflect.DeepEqual(a, b)
		}
	}
	return reflect.DeepEqual(got, want)
}

// replay plays a recording.
func (p *chordPeer) replay(r recording, ready *chordLine) {
	p.t.Helper()
	c, ours := comparison{ids: map[string]string{}}, comparison{}
	for _, step := range r {
		switch {
		case step.Dir == "c2s" && step.Event == "eof":
			_ = p.in.Close()
		case step.Dir == "c2s":
			for recorded, id := range c.ids {
				step.Raw = strings.ReplaceAll(step.Raw, recorded, id)
			}
			p.send(step.Raw)
		case step.Event == "exit" && p.cmd != nil:
			p.ends(step.Code)
		case step.Event == "exit":
		default:
			want := chordLine{raw: step.Raw}
			if err := json.Unmarshal([]byte(step.Raw), &want); err != nil {
				p.t.Fatal(err)
			}
			if !c.matters(want) {
				continue
			}
			var got chordLine
			if got = p.nextThat(&ours, ready); got.Type != want.Type || !c.same("", got.Payload, want.Payload) {
				p.t.Fatalf("got  %s\nwant %s", got.raw, want.raw)
			}
			ready = nil
		}
	}
}

// nextThat returns the next line that is compared: ready if that was read before.
func (p *chordPeer) nextThat(c *comparison, ready *chordLine) chordLine {
	p.t.Helper()
	if ready != nil {
		return *ready
	}
	for {
		if l := p.next(); c.matters(l) {
			return l
		}
	}
}

// recordedScript makes the script agent say what the recorded model said.
const recordedScript = `{"prompts":[
{"match":"say hello","steps":[{"say":"Hello from the stub."}]},
{"match":"Run some","steps":[
 {"say":"Running a command."},{"end":true},
 {"tool":{"name":"shell","args":{"command":"echo one","description":"say one","timeout":5},"gated":true}},
 {"think":"."},{"end":true},
 {"tool":{"name":"shell","args":{"command":"echo two","description":"say two","timeout":5},"gated":true}},
 {"think":"."},{"end":true},
 {"tool":{"name":"shell","args":{"command":"git --version","description":"git version","timeout":5},"gated":true}},
 {"think":"."},{"end":true},
 {"tool":{"name":"shell","args":{"command":"git --version","description":"git version","timeout":5},"gated":true}},
 {"say":"All done."}]}]}`

var recordings = []string{"basic-lifecycle.jsonl", "confirm-rules.jsonl"}

func TestChordRecordingsPlayOnStandardInput(t *testing.T) {
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chordProcess(t, "--agent", scripted(t, recordedScript)).replay(chordRecording(t, name), nil)
		})
	}
}

// TestChordRecordingsPlayOnASharedSession has a native controller, ten native viewers and
// a Chord client that takes control.
func TestChordRecordingsPlayOnASharedSession(t *testing.T) {
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(shortDir(t), "s")
			r := serving(t, "--agent", scripted(t, recordedScript), "--listen-chord", "unix:"+path)
			driver := r.attend("controller", contracts.RoleController, []contracts.RequestType{contracts.RequestApproval})
			if !connected(t, driver.Client).ControllerLeaseGranted {
				t.Fatal("the native controller did not get the lease")
			}
			others := []*attendee{driver}
			for i := range 10 {
				others = append(others, r.attend(fmt.Sprint("viewer ", i), contracts.RoleViewer, nil))
			}
			p := chordSocket(t, path)
			ready := p.next()
			p.do("send", "content", "/take")
			if l, before := p.until("info"); !strings.Contains(l.raw, "you are in control") || len(before) > 0 {
				t.Fatalf("got %s, want the answer to /take", l.raw)
			}
			p.replay(chordRecording(t, name), &ready)
			last := map[string]string{recordings[0]: "Hello from the stub.", recordings[1]: "All done."}[name]
			for _, o := range others {
				if !strings.Contains(o.said.String(), last) {
					o.says(last)
				}
			}
		})
	}
}

// shortDir returns a folder whose path fits into the address of a Unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}
