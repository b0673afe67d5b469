package journal

import "golang.org/x/sys/unix"

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
