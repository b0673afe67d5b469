// Package hecate serves the runs of sessions as logs of Hecate events, over HTTP and
// server-sent events.
//
// A [Server] has one log for each scope, which it makes at the first request of the scope.
// It follows the sessions of the scope from then on, translates their events, stores the
// bytes of each Hecate event once, and sends these bytes to every reader. A reader that is
// slow, or comes back, reads from the log. Nothing waits for a reader.
//
// The package does not know the hub: a [Source] is a session as it needs it.
package hecate
