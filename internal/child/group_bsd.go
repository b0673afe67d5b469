//go:build unix && !linux

package child

// reapGroup does nothing: the server is never the first process of a system.
func reapGroup(int) {}

// fionread is the ioctl for the number of bytes that can be read. BSDs share it.
const fionread = 0x4004667f
