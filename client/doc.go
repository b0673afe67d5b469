// Package client is the Go client of the Maestro headless protocol: it
// attaches to a session over a WebSocket, follows it and acts in it.
//
// It promises that a caller who reads [Client.Next] sees every entry of the
// session once and in order, from the place it asked for, however often the
// network or the server goes away meanwhile; where that is impossible, it sees
// a reset with a snapshot to start over from. It promises that a command whose
// answer was lost is never executed twice. It does not render anything, and it
// decides nothing for the user: a lease is only asked for, taken or given when
// the caller says so, and a reconnect never takes it from anybody.
//
// [Raw] and [Lines] are the layers below, for programs that want to see exact
// frames, and for targets that speak on their standard streams.
package client
