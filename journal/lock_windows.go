package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the lock on f without waiting. The system gives it up with
// the process.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// syncDir does nothing: directories cannot be synced, names are journaled by
// the file system.
func syncDir(string) error { return nil }
