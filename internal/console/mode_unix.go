//go:build unix

package console

import (
	"os"
	"syscall"
	"time"
)

// Signals say that the terminal has another size, and that the program goes on
// after it was stopped: see [Mode.Enter].
var Signals = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT}

// Continued reports whether a signal says that the program was stopped and goes on.
func Continued(s os.Signal) bool { return s == syscall.SIGCONT }

// stopPatience is how long Stop waits for the program to be stopped. Where no
// shell could continue it, it is not.
const stopPatience = 200 * time.Millisecond

// Stop restores the terminal and stops the program, as Ctrl-Z does. It returns in
// raw mode, once one of the program's signals says that it is continued. Another
// one that ends the wait is returned.
func (m *Mode) Stop(signals <-chan os.Signal) (other os.Signal, err error) {
	m.Restore()
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return nil, err
	}
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	for waiting := true; waiting; {
		select {
		case s := <-signals:
			if waiting = s == syscall.SIGWINCH; !waiting && s != syscall.SIGCONT {
				other = s
			}
		case <-patience.C:
			waiting = false
		}
	}
	return other, m.Enter()
}
