// Package workspace is the directory tree that a session works in: the root
// that no path given by a client may leave.
//
// It promises that containment is decided by what was opened, not by what a
// path looked like a moment before: everything goes through [os.Root], so a
// symbolic link swapped in between check and use cannot escape. Absolute
// symbolic links are refused even where they point back inside. It promises
// nothing about what children of the session do with the file system.
package workspace
