//go:build unix

package proc

// stubborn returns a function that kills what there is, and reports whether
// somebody may be left. It wants to find nobody twice, because a process that is
// just becoming another program has no environment for a moment; and four times
// while processes are being started, because one that starts another and ends is
// easily missed.
func (t *tree) stubborn() func() bool {
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
