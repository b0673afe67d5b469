package journal

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// identity returns a text that a copy of f does not have: the number of its
// inode and, where the file system keeps it, the time it was made. Both stay
// when f or its directory is renamed. It is "" if the system does not say.
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
