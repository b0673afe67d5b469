// Package agent provides the runtimes that a hub can put behind a session: a
// shell, a script, the scenarios of the conformance suite, the built-in model
// loop, and child processes that speak the headless protocol, the Agent Client
// Protocol, Heddle or Chord.
//
// A run publishes well-formed responses and tool calls in the order of R36 and
// R46. No credential of the server reaches a process that an agent starts
// unless the operator passed it by name (D10). Every process of a run has ended
// when the run has ended; see package proc for the exceptions. The hub decides
// who may prompt or answer.
//
// The package is a part of the server. Its API may change in any version; programs that
// embed a server use package server.
package agent
