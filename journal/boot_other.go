//go:build !linux && !darwin

package journal

// bootID returns "", because these systems have no id of a boot that never repeats
// and never changes while the machine runs. Each Open then counts as a new boot.
// This is safe, and costs a new epoch after a crash of the process.
func bootID() string { return "" }
