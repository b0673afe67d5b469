// Package line splits an untrusted stream into lines. A line that is too long
// costs no more memory than the bound, and the lines after it are still read.
// The caller decides whether blank lines count and what happens to white space.
package line
