package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks f without waiting. The system releases the lock when the process
// ends.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// syncDir does nothing: directories cannot be synced, and the file system journals
// names.
func syncDir(string) error { return nil }
