package journal

import (
	"errors"
	"fmt"
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

// identity returns a text that differs for a copy of f: its number in the volume,
// which stays when f or its directory is renamed. It is "" if the system does not
// provide it.
func identity(f *os.File) string {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return ""
	}
	return fmt.Sprint(uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow))
}

// bootID returns "", which counts as a new boot: see system_other.go.
func bootID() string { return "" }
