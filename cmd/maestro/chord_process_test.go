//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// Commands that come before the session is ready wait for it.
func TestChordC1ReadyIsFirst(t *testing.T) {
	t.Parallel()
	p := chordProcess(t, "--agent", scripted(t, recordedScript))
	for i := range 50 {
		p.send(fmt.Sprintf(`{"type":"x%d"}`, i))
	}
	if l := p.next(); l.Type != "ready" || l.text("session_id") == "" {
		t.Fatalf("got %s, want ready", l.raw)
	}
	for i := range 50 {
		p.fails("", fmt.Sprintf("unknown command type: x%d", i))
	}
}

// The end of the input, or a signal, ends the process and all that it started.
func TestChordEndsWithItsInput(t *testing.T) {
	for _, how := range []string{"C42 idle", "C42 running", "C42 signal"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newChordWorld(t, 0)
			pids := filepath.Join(w.cmd.Dir, "pid")
			if how != "C42 idle" {
				w.says(runs("echo $$ > pid.new; mv pid.new pid; sleep 600 & sleep 600"))
				w.do("confirm", "request_id", w.confirms(), "action", "allow")
				eventually(t, "the tool to run", func() bool { return exists(pids) })
			}
			if how == "C42 signal" {
				if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			} else if err := w.in.Close(); err != nil {
				t.Fatal(err)
			}
			w.ends(0)
			if how == "C42 idle" {
				return
			}
			pid, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the group of the tool to end", func() bool { return !groupLives(string(pid)) })
		})
	}
}

// groupLives reports whether a process group has processes.
func groupLives(leader string) bool {
	pid, err := strconv.Atoi(strings.TrimSpace(leader))
	return err != nil || syscall.Kill(-pid, 0) == nil
}

// A start that fails says so on standard error only.
func TestChordStartFails(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"C43 agent": {"--agent", "script:/missing.json"}, "C43 workspace": {"-d", "/missing"}, "C45 unknown session": {"--resume", "sess_unknown"},
		"C45 bad id": {"-r", "../x"}, "C43 both": {"-c", "-r", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, append([]string{"headless", "--protocol", "chord"}, args...)...)
			var log strings.Builder
			cmd.Stderr = &log
			out, err := cmd.Output()
			if exitCode(t, err) == 0 || len(out) > 0 || log.Len() == 0 {
				t.Errorf("got %v, %q and %q, want a failure with a reason", err, out, &log)
			}
		})
	}
}

// A session is resumed by its id, or because it was the last one.
func TestChordC45Resumes(t *testing.T) {
	t.Parallel()
	w := newChordWorld(t, 0)
	w.says("say a")
	w.idle("completed")
	w.says("/new")
	l, _ := w.until("info")
	s, _ := w.status()
	second := s.text("session_id")
	if !strings.HasSuffix(l.text("message"), second) {
		t.Errorf("got %s and %s, want the id of the new session", l.raw, s.raw)
	}
	w.says("say b")
	w.idle("completed")

	again := func(args ...string) *chordPeer {
		cmd := program(t, append(append([]string{"headless", "--protocol", "chord"}, w.flags...), args...)...)
		cmd.Dir, cmd.Env = w.cmd.Dir, w.cmd.Env
		return chordStart(t, cmd)
	}
	locked := again("--resume", second)
	if err := locked.cmd.Wait(); exitCode(t, err) == 0 || !strings.Contains(locked.log.String(), "acquire session lock") {
		t.Errorf("got %v and %s, want that the session is locked", err, locked.log)
	}
	_ = w.in.Close()
	w.ends(0)
	for _, args := range [][]string{{"-c"}, {"--resume", second}} {
		p := again(args...)
		if l := p.next(); l.text("session_id") != second {
			t.Errorf("%q: got %s, want %s", args, l.raw, second)
		}
		_ = p.in.Close()
		p.ends(0)
	}
	p := &chordWorld{again("-r", second), w.model, nil}
	p.says("say c")
	p.idle("completed")
	if body := lastBody(t, w.model); !strings.Contains(body, "say b") {
		t.Errorf("the model does not know what was said before: %s", body)
	}
}

func TestChordWorksInAWorktree(t *testing.T) {
	t.Parallel()
	repo, state := t.TempDir(), t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "first"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	enter := func(args ...string) map[string]any {
		p := chordProcess(t, append([]string{"-d", repo, "--state-dir", state, "--agent", "shell"}, args...)...)
		tree, _ := p.next().Payload["worktree"].(map[string]any)
		_ = p.in.Close()
		p.ends(0)
		return tree
	}
	first := enter("--worktree=mine")
	path, _ := first["path"].(string)
	if first["name"] != "mine" || first["branch"] != "mine" || first["repo_root"] == "" || !exists(filepath.Join(path, ".git")) || !strings.HasPrefix(path, state) {
		t.Errorf("got %v, want a worktree below %s", first, state)
	}
	if again := enter("-w=mine"); !maps.Equal(first, again) {
		t.Errorf("got %v, want the same worktree %v", again, first)
	}
	if other := enter("-w"); other["name"] == "mine" || !exists(fmt.Sprint(other["path"])) {
		t.Errorf("got %v, want a worktree of its own", other)
	}
	p := chordProcess(t, "-d", t.TempDir(), "--state-dir", state, "--agent", "shell", "-w")
	if err := p.cmd.Wait(); exitCode(t, err) == 0 || !strings.Contains(p.log.String(), "not a git repository") {
		t.Errorf("got %v and %s, want that there is no repository", err, p.log)
	}
}

func TestChordSocketThatIsFullSaysSo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	serving(t, "--agent", "shell", "--listen-chord", "unix:"+path)
	for range maxSocketClients {
		if l := chordSocket(t, path).next(); l.Type != "ready" {
			t.Fatalf("got %s, want ready", l.raw)
		}
	}
	if l := chordSocket(t, path).next(); l.Type != "error" || l.text("code") != "too_many_clients" {
		t.Errorf("got %s, want that there are too many clients", l.raw)
	}
}

// TestChordBesideOthers has a Chord client and a native controller on one session.
func TestChordBesideOthers(t *testing.T) {
	t.Parallel()
	_, flags := chordModel(t, 0)
	path := filepath.Join(shortDir(t), "s")
	r := serving(t, append(flags, "--listen-chord", "unix:"+path)...)
	native := r.attend("native", contracts.RoleController, []contracts.RequestType{contracts.RequestApproval})
	connected(t, native.Client)
	w := &chordWorld{chordSocket(t, path), nil, nil}
	w.until("ready")

	native.prompts(runs("echo one"))
	id := w.confirms()
	for _, cmd := range []string{"send", "confirm", "cancel"} {
		w.do(cmd, "content", "say x", "request_id", id, "action", "allow")
		if l, _ := w.until("error"); l.text("code") != "not_in_control" || !strings.Contains(l.raw, "/take") {
			t.Errorf("%s: got %s, want not_in_control", cmd, l.raw)
		}
	}
	native.asked()
	if _, err := native.Approve(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	if l, _ := w.until("info"); !strings.Contains(l.raw, "resolved by user") {
		t.Errorf("got %s, want that another client has answered", l.raw)
	}
	w.idle("completed")
	w.says("/release")
	w.fails("not_in_control", "")
	w.says("/take")
	w.until("info")
	w.says("/new")
	w.fails("unsupported", "/new")
	w.says("say mine")
	if m := texts(w.idle("completed")); !slices.Equal(m, []string{"mine"}) {
		t.Errorf("got %q", m)
	}
	native.takes()
	if l, _ := w.until("info"); !strings.Contains(l.raw, "taken control") {
		t.Errorf("got %s, want that control was taken", l.raw)
	}
	native.prompts(runs("echo two"))
	late := &chordWorld{chordSocket(t, path), nil, nil}
	late.until("ready")
	w.confirms()
	late.confirms() // a client that comes later is asked too
	native.takes()
	w.says("/take")
	w.until("info")
	w.says("/release")
	w.until("info")
	w.says("say free") // a free lease is taken by a command
	w.idle("completed")
}
