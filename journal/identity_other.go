//go:build !linux && !darwin && !windows

package journal

import "os"

// identity returns "": copies are not told from what they were made of.
func identity(*os.File) string { return "" }
