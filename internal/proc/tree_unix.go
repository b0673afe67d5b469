//go:build unix

package proc

// killUntilGone returns a function that kills all processes of the tree, and
// reports whether one may be left. It must find none twice, because a process
// that is executing another program has no environment for a moment. While
// processes are being started, it must find none four times, because a process
// that starts another and ends is easily missed.
func (t *tree) killUntilGone() func() bool {
	nobody, last := 0, ""
	return func() bool {
		if nobody++; t.kill() {
			nobody = 0
		}
		before := last
		last = lastStarted()
		return nobody < 2 || nobody < 4 && last != before
	}
}
