package console

import (
	"os"
	"sync"

	"golang.org/x/term"
)

// A Mode is a terminal in raw mode: the program gets every key and shows the
// typed text itself.
type Mode struct {
	in, out *os.File

	mu     sync.Mutex  // guards the following
	before *term.State // the state in which Open found the terminal
	raw    bool
}

// Open switches the terminal of in and out to raw mode. The caller must call
// [Mode.Restore] before the program ends in any way.
func Open(in, out *os.File) (*Mode, error) {
	m := &Mode{in: in, out: out}
	if err := m.Enter(); err != nil {
		m.Restore()
		return nil, err
	}
	return m, nil
}

// Enter switches to raw mode, also if another program has changed the mode
// meanwhile.
func (m *Mode) Enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, err := term.MakeRaw(int(m.in.Fd()))
	if err != nil {
		return err
	}
	if m.before == nil {
		m.before = state
	}
	m.raw = true
	_, err = m.out.WriteString(pasteOn)
	return err
}

// Restore restores the original mode. It may be called from any goroutine and
// any number of times.
func (m *Mode) Restore() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.raw {
		return
	}
	m.raw = false
	_, _ = m.out.WriteString(pasteOff)         // fails if the terminal is gone
	_ = term.Restore(int(m.in.Fd()), m.before) // likewise
}

// Size returns the size of the terminal.
func (m *Mode) Size() (width, height int) {
	width, height, err := term.GetSize(int(m.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
