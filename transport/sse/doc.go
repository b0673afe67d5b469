// Package sse streams a session's events as server-sent events.
//
// A stream lies below net/http: its socket is hijacked, and the events that the
// journal keeps ready go to it as they lie, any number in one write (D2). Where
// a socket cannot be hijacked, as with HTTP/2, they go through the
// ResponseWriter. The package knows bytes, deadlines and how a stream ends, and
// nothing of what events say or who may see them.
package sse
