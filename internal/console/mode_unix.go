//go:build unix

package console

import (
	"os"
	"syscall"
	"time"
)

// Signals report that the terminal's size changed, and that the stopped program
// continues: see [Mode.Enter].
var Signals = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT}

// Continued reports whether a signal says that the stopped program continues.
func Continued(s os.Signal) bool { return s == syscall.SIGCONT }

// stopPatience is how long Stop waits for the stop. If no shell could continue
// the program, the system does not stop it.
const stopPatience = 200 * time.Millisecond

// Stop restores the terminal and stops the program, as Ctrl-Z does. It returns
// in raw mode when the program continues. If another signal ends the wait, Stop
// returns it.
func (m *Mode) Stop(signals <-chan os.Signal) (other os.Signal, err error) {
	m.Restore()
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return nil, err
	}
	patience := time.After(stopPatience)
	for waiting := true; waiting; {
		select {
		case s := <-signals:
			if waiting = s == syscall.SIGWINCH; !waiting && s != syscall.SIGCONT {
				other = s
			}
		case <-patience:
			waiting = false
		}
	}
	return other, m.Enter()
}
