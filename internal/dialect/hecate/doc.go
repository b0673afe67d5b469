// Package hecate translates the events of a session into the events of the Hecate agent
// event protocol, version 1: an append-only log of typed events for each run of an agent.
//
// A [Session] turns native events into drafts. A server gives each [Draft] its sequence
// in its run and its id, and stores the bytes of the [Event]. [Parse] reads such bytes.
// The package does no I/O and has no clock and no goroutine. Its types are not safe for
// concurrent use.
package hecate
