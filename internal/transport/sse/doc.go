// Package sse streams a session's events as server-sent events.
//
// A stream works below net/http: the package hijacks its socket and writes the
// events as the journal has encoded them, any number in one write (D2). If the
// socket cannot be hijacked, as with HTTP/2, events go through the
// ResponseWriter. The package handles bytes, deadlines and the end of a stream.
// It does not interpret events or check who may see them.
package sse
