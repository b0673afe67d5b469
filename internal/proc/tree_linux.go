package proc

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A tree is a set of groups with all processes that theirs started: those in the
// group or session of a leader, those with the mark in their environment, such as
// daemons, and those in the sessions of marked ones. A process that leaves both its
// session and its environment at once is not found.
type tree struct {
	mark   string // searched for in an environment; begins with NUL
	leader string // the process that os/exec waits for; the guard has none
	born   int64  // start time of the oldest process of the tree, in ticks; older ones are skipped

	mu      sync.Mutex
	leaders map[int]bool
}

// newTree returns the tree of a group by its leader, whose environment has the
// mark.
func newTree(leader *os.Process, mark string) *tree {
	t := &tree{mark: "\x00" + mark + "\x00", leader: strconv.Itoa(leader.Pid), leaders: map[int]bool{leader.Pid: true}}
	if s, err := statOf(t.leader, make([]byte, maxStat)); err == nil && !s.ended { // otherwise all processes are checked
		t.born = s.born
	}
	return t
}

// signal sends a signal to every process of the tree that has not ended. It reports
// whether there was one, or may have been: without file descriptors it cannot look.
func (t *tree) signal(sig unix.Signal) bool {
	if sig == unix.SIGKILL { // another signal would arrive twice, which may mean something else
		t.mu.Lock()
		leaders := slices.Collect(maps.Keys(t.leaders))
		t.mu.Unlock()
		for _, leader := range leaders {
			_ = unix.Kill(-leader, sig) // needs no descriptors; an empty group is no error
		}
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // as many as could be read, the oldest first
	// A parent that is asked to end before its children ends because of that, and not
	// because its children have gone. The youngest is the most likely to start others
	// meanwhile, and is killed first.
	if sig == unix.SIGKILL {
		slices.Reverse(names)
	}
	buf, found := make([]byte, maxEnviron), false
	has := func(name string) bool {
		has, err := t.has(name, buf)
		found = found || has || err != nil
		return has
	}
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil || id == os.Getpid() || !has(name) {
			continue
		}
		p, _ := os.FindProcess(id) // on Unix it always succeeds
		if has(name) {             // again, so that p is no other process with its id
			_ = p.Signal(sig) // an error says that the process has ended
		}
		_ = p.Release()
	}
	return found
}

// has reports whether a process is in the tree and has not ended. buf is a read
// buffer. The error says that it could not look. If this process is the first of a
// container, it must wait for orphans, and does so here.
func (t *tree) has(id string, buf []byte) (bool, error) {
	s, err := statOf(id, buf)
	if err != nil || s.born < t.born {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch ours := t.leaders[s.group] || t.leaders[s.session]; {
	case s.ended:
		if ours && s.parent == os.Getpid() && id != t.leader {
			pid, _ := strconv.Atoi(id)                     // the name of a folder that was a number
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // a zombie child: it cannot fail
		}
		return false, nil
	case ours:
		return true, nil
	}
	buf[0] = 0 // so that the first entry begins with NUL like the others
	n, err := readProc(id, "environ", buf[1:])
	if err != nil || !bytes.Contains(buf[:1+n], []byte(t.mark)) {
		return false, err
	}
	t.leaders[s.session] = true
	return true, nil
}

// Bounds of the data read about a process. A process that puts more than maxEnviron
// bytes before the mark in its environment is not found.
const (
	maxStat    = 4 << 10
	maxEnviron = 256 << 10
)

// A stat is the content of a process's stat file.
type stat struct {
	ended                  bool
	parent, group, session int
	born                   int64 // in ticks since the system was started
}

// statOf returns the stat of a process; one that is gone counts as ended.
func statOf(id string, buf []byte) (s stat, err error) {
	n, err := readProc(id, "stat", buf[:maxStat])
	if err != nil {
		return s, err
	}
	text := buf[:n]
	// 17 (name, which may hold anything) S 1 17 17 ...: state, parent, group,
	// session.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{ended: true}, nil
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(string(fields[i]), 10, 64); return n } // the kernel writes numbers
	return stat{
		ended:  fields[0][0] == 'Z' || fields[0][0] == 'X',
		parent: int(number(1)), group: int(number(2)), session: int(number(3)), born: number(19),
	}, nil
}

// readProc reads the beginning of a file about a process, or nothing if the process
// is gone or not readable. The error says that it could not look. Package os would be
// slower, for every process of the system.
func readProc(id, file string, buf []byte) (n int, err error) {
	fd, err := unix.Open("/proc/"+id+"/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		return 0, err
	default:
		return 0, nil
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
	return n, nil
}

// lastStarted returns the id of the process that was started last, or "".
func lastStarted() string {
	text, err := os.ReadFile("/proc/loadavg") // 0.00 0.00 0.00 1/17 4711
	if err != nil {
		return ""
	}
	return string(text[bytes.LastIndexByte(text, ' ')+1:])
}

// fionread is the ioctl for the number of bytes that can be read.
const fionread = unix.TIOCINQ

// Hide keeps the memory of this process, including its environment and keys, from
// other processes of the same user, such as those that it starts, but not from root.
// Started programs are not hidden.
func Hide() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
