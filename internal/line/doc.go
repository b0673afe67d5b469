// Package line cuts a stream that nobody vouches for into lines. It promises that
// a line that is too long costs no more than the bound, and that those after it
// are read all the same. It does not know what lines say: whether blank ones count,
// and what becomes of white space around the others, is up to its users.
package line
