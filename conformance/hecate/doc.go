// Package hecate judges any server of the Hecate agent event protocol, version 1, and logs
// of that protocol in files. It tells the author of the server what is wrong.
//
// [Suite] returns its scenarios for package conformance, which runs them. Scenarios of the
// group log hold every run that the server shows against the rules about logs. The other
// scenarios read lists and streams, and decide approvals. For these the suite starts runs of
// its own, with the command in [conformance.Config] or over the Maestro protocol.
//
// The server is a black box. A scenario that finds nothing to judge is skipped with the
// reason; it never passes.
package hecate
