// Package hub is one session: one agent, any number of clients. It joins the
// handshake, the lease, the table of server requests, the session's state and
// the journal under one lock, and lets connections follow the journal.
//
// It promises that every client sees one order of events, that nothing shown is
// lost while it is retained, that one connection at a time drives, and that a
// question is answered once. It knows no transport, agent or utility: those
// satisfy the interfaces it declares.
package hub
