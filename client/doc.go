// Package client is the Go client of the Maestro headless protocol. A [Client] attaches
// to a session over a WebSocket, follows it and sends commands. A [Server] has what
// concerns all sessions of a server: their list, the inbox and shares.
//
// A caller that reads [Client.Next] sees every entry of the session once and in
// order, from the position it asked for, however often the network or the server
// fails. If that is impossible, it gets a reset with a snapshot. A command whose
// answer was lost is never executed twice. The package renders nothing and decides
// nothing for the user: it asks for, takes or grants a lease only when the caller
// says so, and a reconnect never takes the lease from another connection.
package client
