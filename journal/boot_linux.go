package journal

import (
	"os"
	"strings"
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
