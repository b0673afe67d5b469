package journal

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// bootID returns the kernel's random id of this boot, or "" if it cannot be read,
// which counts as a new boot. The boot time is not used, because it changes when
// the clock is set.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// identity returns a text that differs for a copy of f: the number of its inode and
// its creation time, which some copies keep. Both stay when f or its directory is
// renamed. It is "" if the system does not provide them.
func identity(f *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%d@%d.%09d", st.Ino, st.Btim.Sec, st.Btim.Nsec)
}
