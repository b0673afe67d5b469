// Package wiring joins hubs, agents, utilities and transports into the server of one
// workspace. The commands of cmd/maestro and package server use it.
//
// [Sessions] opens sessions from their journals. [Network] checks credentials and limits
// and has the routes of all transports. [Server] is both, with the lists of sessions and
// the logs of Hecate events. None of them listens, reads flags or handles signals.
package wiring
