// Package chord translates between sessions and clients of Chord's headless protocol,
// and has the types of that protocol.
//
// A client is a controller of its session, beside others. Each of its lines is a command
// (command.go; texts that begin with a slash are in slash.go). The session's events
// become envelopes (event.go). Questions of the agent wait in request.go until the
// client or another one answers them, or a rule of the client does (rule.go).
package chord
