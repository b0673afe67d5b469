// Package stdio is the transport of a local client: one JSON text per line on
// a pair of streams.
//
// It promises that bad lines cost a bounded amount of memory and nothing else,
// that whole frames are written at once, and that Close unblocks both
// directions although a blocking pipe cannot be interrupted. It does not know
// what lines say. The peer that does not read is waited for, without a limit:
// it is the one client that cannot be reset.
//
// Go ends a process that writes to a broken standard output, unless it asked
// for SIGPIPE with signal.Notify. A program that serves its standard streams
// has to ask, to get an error from Write instead.
package stdio
