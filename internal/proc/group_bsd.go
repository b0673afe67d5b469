//go:build unix && !linux

package proc

// fionread is the ioctl for the number of bytes that can be read. BSDs share it.
const fionread = 0x4004667f
