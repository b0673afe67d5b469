// Package agent provides the runtimes that a hub can put behind a session: a
// shell, a deterministic script, the scenarios of the conformance suite, and
// any child process that speaks the headless protocol on its standard streams.
//
// It promises that a run publishes well-formed responses and tool calls in the
// order of R36 and R46, that no credential of the server reaches a process it
// starts unless the operator passed it by name (D10), and that every process of
// a run has ended when the run has. It promises no protocol towards clients:
// who may prompt or answer is the hub's business.
//
// That last promise reaches as far as process groups do. A process that leaves
// its group, as a daemon does, is not found again. Windows has no groups that a
// signal reaches, so there the command itself is killed and its descendants are
// not. Only Linux ends a command when the server dies without a chance to do it.
package agent
