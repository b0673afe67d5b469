// Package hecate judges any server of the Hecate agent event protocol, version 1, and logs
// of that protocol in files. It tells the author of the server what is wrong.
//
// It is a list of scenarios and a runner, as package conformance is. Scenarios of the group
// log hold every run that the server lists against the rules about logs. The other scenarios
// read lists and streams, and decide approvals. For these the suite starts runs of its own,
// with a command that the caller names or over the Maestro protocol, see [Config].
//
// The server is a black box. A scenario that finds nothing to judge is skipped with the
// reason; it never passes.
package hecate
