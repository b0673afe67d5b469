// Package rpc is a connection that speaks JSON-RPC 2.0, one message a line, with a
// peer that nobody vouches for.
//
// It promises that everything is taken in by one goroutine and in the order in
// which it came, answers included; that while something is being taken in nothing
// more is read, so that the bound on a flood is the peer's own pipe; that no line
// above the bound is kept, and that nobody waits for an answer that stood in one;
// and that every call ends, at the latest with the connection.
//
// It does not say what messages mean, which of them are served in a goroutine of
// their own, or what becomes of a peer that talks nonsense.
package rpc
