//go:build unix

package console

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Signals say that the terminal has another size, and that the program goes on
// after it was stopped: see [Mode.Enter].
var Signals = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT}

// stopPatience is how long Stop waits for the program to be stopped. Where no
// shell could continue it, it is not.
const stopPatience = 200 * time.Millisecond

// Stop restores the terminal and stops the program, as Ctrl-Z does. It returns in
// raw mode, once the program is continued.
func (m *Mode) Stop() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	m.Restore()
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return err
	}
	select {
	case <-continued:
	case <-time.After(stopPatience):
	}
	return m.Enter()
}
