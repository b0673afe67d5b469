package journal

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// bootID returns the kernel's random id of this boot, or "" if it cannot be read,
// which counts as a new boot.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// identity returns a text that differs for a copy of f: the number of its inode
// and, if the file system has it, its creation time. Both stay when f or its
// directory is renamed. It is "" if the system does not provide them.
func identity(f *os.File) string {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return ""
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprint(st.Ino)
	}
	return fmt.Sprintf("%d@%d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec)
}
