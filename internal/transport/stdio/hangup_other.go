//go:build !unix

package stdio

// HungUp returns false: on this system only the next write shows that nothing can read
// standard output.
func HungUp() bool { return false }
