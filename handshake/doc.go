// Package handshake negotiates a hello: the client's role, the requests it can
// answer, the operations it may use and the notifications it opts out of.
//
// The same hello with the same offer gives the same terms. A refused hello has no
// effect. The package reads no socket, grants no lease and has no state: the caller
// stores the terms and passes the established role in the next offer.
//
// The package is a part of the server. Its API may change in any version; programs that
// embed a server use package server.
package handshake
