//go:build unix

package child

// stubborn returns a function that kills what there is, and reports whether
// somebody may be left. It wants to find nobody twice, because a process that is
// just becoming another program has no environment for a moment.
func (t *tree) stubborn() func() bool {
	nobody := 0
	return func() bool {
		if nobody++; t.kill() {
			nobody = 0
		}
		return nobody < 2
	}
}
