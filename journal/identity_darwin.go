package journal

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// identity returns a text that a copy of f does not have: the number of its
// inode, and the time it was made, which some copies keep. Both stay when f or
// its directory is renamed. It is "" if the system does not say.
func identity(f *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%d@%d.%09d", st.Ino, st.Btim.Sec, st.Btim.Nsec)
}
