// Package stdio is the transport of a local client: one JSON text per line on
// a pair of streams.
//
// A bad line costs a bounded amount of memory, whole frames are written at
// once, and Close unblocks both directions although a blocking pipe cannot be
// interrupted. The package does not interpret lines. A peer that does not read
// is waited for without a limit, because the local client is the only one that
// cannot be reset.
//
// Go ends a process that writes to a broken standard output, unless the process
// has called signal.Notify for SIGPIPE. A program that serves its standard
// streams must call it to get an error from Write instead.
package stdio
