// Package hub runs sessions. A [Hub] is one session: one agent and any number of
// clients. It puts the handshake, the lease, the table of server requests, the
// session's state and the journal under one lock. Connections follow the journal.
//
// The hub guarantees that all clients see one order of events, that no event is
// lost while the journal retains it, that at most one connection has control, and
// that each question is answered once. The package imports no transport, agent or
// utility; it declares the interfaces that these implement.
//
// A [Directory] holds the hubs of a process and opens each session at most once. It
// is in this package because it needs two states that the hub does not export:
// suspended and ended. Package overview lists the sessions; a hub keeps a [Record] for
// it.
//
// The package is a part of the server. Its API may change in any version; programs that
// embed a server use package server.
package hub
