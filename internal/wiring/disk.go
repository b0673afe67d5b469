package wiring

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A disk checks whether a directory can be written to, at most ten times a second.
type disk struct {
	mu   sync.Mutex
	at   time.Time // when the last attempt began
	busy bool      // the attempt has not ended
	err  error     // of the last attempt
}

const (
	tryBytes    = 64 << 10 // more than a session writes as it is opened
	tryInterval = 100 * time.Millisecond
	tryPatience = 5 * time.Second // for an attempt to end
)

var errNoAnswer = errors.New("the file system does not answer")

// check returns why dir cannot be written to. dir is the same in every call. check
// waits for its own attempt only; otherwise it returns the last result.
func (d *disk) check(dir string, log *slog.Logger) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch since := time.Since(d.at); {
	case d.busy && since > tryPatience:
		return errNoAnswer
	case d.busy || since < tryInterval:
		return d.err
	}
	d.busy, d.at = true, time.Now()
	d.mu.Unlock()
	err := TryWrite(dir)
	d.mu.Lock()
	switch {
	case err != nil && d.err == nil:
		log.Error("the state directory cannot be written to", "err", err)
	case err == nil && d.err != nil:
		log.Info("the state directory can be written to again")
	}
	d.busy, d.err = false, err
	return err
}

// TryWrite writes a file to dir and removes it.
func TryWrite(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, ".try")
	return errors.Join(os.WriteFile(path, make([]byte, tryBytes), 0o600), os.Remove(path))
}
