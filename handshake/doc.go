// Package handshake decides what a hello means: which role the client gets,
// what it can answer, which operations it may use and which notifications it
// does not want.
//
// It promises that the same hello on the same offer gives the same terms, and
// that a refused one has no effect. It reads no socket, grants no lease and
// remembers nothing: the caller keeps the terms and offers the established
// role the next time.
package handshake
