// Package rpc is a connection that exchanges JSON-RPC 2.0 messages, one a line,
// with an untrusted peer.
//
// One goroutine processes all messages in the order in which they arrive,
// answers included. It reads nothing while it processes a message, so the
// peer's own pipe bounds a flood. It keeps no line above the bound, and a call
// whose answer was in such a line gets an error. Every call ends, at the latest
// with the connection.
//
// The caller decides what messages mean, which of them it serves in a separate
// goroutine, and what to do about a misbehaving peer.
package rpc
