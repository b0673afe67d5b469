package child

import "golang.org/x/sys/unix"

// reapGroup waits for members that have ended and became the server's children
// when their parents did, as happens to the first process of a container. The
// leader must have been waited for.
func reapGroup(leader int) {
	for {
		if id, err := unix.Wait4(-leader, nil, unix.WNOHANG, nil); id <= 0 || err != nil {
			return
		}
	}
}

// fionread is the ioctl for the number of bytes that can be read.
const fionread = unix.TIOCINQ
