package child

import (
	"bytes"
	"errors"
	"os"
	"strconv"
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
	born uint64 // when the oldest of the tree was started, in ticks; what is older is not looked at

	mu      sync.Mutex
	leaders map[int]bool
}

// newTree returns what the leader of a group, whose environment has the mark,
// will have started.
func newTree(leader *os.Process, mark string) *tree {
	t := &tree{mark: "\x00" + mark + "\x00", leaders: map[int]bool{leader.Pid: true}}
	if s, ok := statOf(strconv.Itoa(leader.Pid), make([]byte, maxStat)); ok { // else it has ended, and all are looked at
		t.born = s.born
	}
	return t
}

// each calls act with every process of the tree that has not ended. It reports
// whether there was one. In many containers nobody waits for processes whose
// parents are gone, or does so late, so those that ended are still to be seen.
func (t *tree) each(act func(*os.Process)) bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // as many as there are
	buf, found := make([]byte, maxEnviron), false
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil || id == os.Getpid() || !t.has(name, buf) {
			continue
		}
		p, err := os.FindProcess(id)
		if err != nil {
			continue
		}
		if t.has(name, buf) { // still, so that p is no other that got its id
			found = true
			act(p)
		}
		_ = p.Release()
	}
	return found
}

// lives reports whether a process of the tree has not ended.
func (t *tree) lives() bool { return t.each(func(*os.Process) {}) }

// has reports whether a process is in the tree and has not ended. buf is for
// what it reads.
func (t *tree) has(id string, buf []byte) bool {
	s, ok := statOf(id, buf)
	if !ok || s.ended || s.born < t.born {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaders[s.group] || t.leaders[s.session] {
		return true
	}
	buf[0] = 0 // so that the first entry begins like the others
	env := buf[:1+readProc(id, "environ", buf[1:])]
	if !bytes.Contains(env, []byte(t.mark)) {
		return false
	}
	t.leaders[s.session] = true
	return true
}

// Bounds of what is read of a process. An environment may be as long as the
// system allows arguments to be, two megabytes by default; our mark is the last
// of what the process was given, and mostly there are a few kilobytes.
const (
	maxStat    = 4 << 10
	maxEnviron = 256 << 10
)

// A stat is what /proc tells of a process.
type stat struct {
	ended          bool
	group, session int
	born           uint64 // in ticks since the system was started
}

// statOf reports false if there is no such process.
func statOf(id string, buf []byte) (s stat, ok bool) {
	text := buf[:readProc(id, "stat", buf[:maxStat])]
	// 17 (name, which may hold anything) S 1 17 17 ...: state, parent, group, session.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return s, false
	}
	s.ended = fields[0][0] == 'Z' || fields[0][0] == 'X'
	var errs [3]error
	s.group, errs[0] = strconv.Atoi(string(fields[2]))
	s.session, errs[1] = strconv.Atoi(string(fields[3]))
	s.born, errs[2] = strconv.ParseUint(string(fields[19]), 10, 64)
	return s, errors.Join(errs[:]...) == nil
}

// readProc reads the beginning of a file about a process, or nothing if that is
// gone. It is used for every process there is, so it does without what package os
// does for files that may block.
func readProc(id, file string, buf []byte) (n int) {
	fd, err := unix.Open("/proc/"+id+"/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if m <= 0 || err != nil {
			break
		}
		n += m
	}
	return n
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
