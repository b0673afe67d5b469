// Package lease decides which connection has control of a session. It has at most
// one holder at a time, a generation that grows with every grant to a new holder and
// never otherwise (D7), and an expiry. The package has no timer, notifies nobody and
// knows no roles or connections: ids are opaque, and the caller passes the time.
//
// The package is a part of the server. Its API may change in any version; programs that
// embed a server use package server.
package lease
