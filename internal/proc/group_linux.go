package proc

import "golang.org/x/sys/unix"

// fionread is the ioctl for the number of bytes that can be read.
const fionread = unix.TIOCINQ
