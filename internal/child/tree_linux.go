package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A tree is groups with everything that their processes started: what is in the
// group or the session of a leader, and what was started with the mark in its
// environment, as a daemon is that has left both. The sessions of those belong
// to the tree, too. What leaves its session and its environment at once is not
// found.
type tree struct {
	mark string // how the mark is found in an environment, which has a NUL before it here

	mu      sync.Mutex
	leaders map[int]bool
}

// each calls act with every process of the tree that has not ended. It reports
// whether there was one. In many containers nobody waits for processes whose
// parents are gone, or does so late, so those that ended are still to be seen.
func (t *tree) each(act func(*os.Process)) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	found := false
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil || id == os.Getpid() || !t.has(e.Name()) {
			continue
		}
		p, err := os.FindProcess(id)
		if err != nil {
			continue
		}
		if t.has(e.Name()) { // still, so that p is no other that got its id
			found = true
			act(p)
		}
		_ = p.Release()
	}
	return found
}

// lives reports whether a process of the tree has not ended.
func (t *tree) lives() bool { return t.each(func(*os.Process) {}) }

// has reports whether a process is in the tree and has not ended.
func (t *tree) has(id string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", id, "stat"))
	if err != nil {
		return false // it is gone by now
	}
	// 17 (name, which may hold anything) S 1 17 17 ...: state, parent, group, session.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 4 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return false
	}
	group, err1 := strconv.Atoi(string(fields[2]))
	session, err2 := strconv.Atoi(string(fields[3]))
	if err1 != nil || err2 != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaders[group] || t.leaders[session] {
		return true
	}
	env, err := os.ReadFile(filepath.Join("/proc", id, "environ"))
	if err != nil || len(env) == 0 || !strings.Contains("\x00"+string(env), t.mark) {
		return false
	}
	t.leaders[session] = true
	return true
}

// signal sends a signal to every process of the tree. It reports whether there
// was one.
func (t *tree) signal(sig unix.Signal) bool {
	return t.each(func(p *os.Process) {
		_ = p.Signal(sig) // it fails if the process has ended, which is the aim
	})
}

// terminate asks every process of the tree to end. It reports whether there was
// one.
func (t *tree) terminate() bool { return t.signal(unix.SIGTERM) }

// kill does not ask.
func (t *tree) kill() bool { return t.signal(unix.SIGKILL) }
