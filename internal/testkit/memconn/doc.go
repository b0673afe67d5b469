// Package memconn is a connection in memory, for tests of whatever serves
// connections: one end is what a transport gives to a hub, the other is the
// client, driven by the test.
//
// It promises what matters about a real connection: order, bounded buffers in
// both directions, a peer that can stop reading, a write timeout, liveness that
// pings keep up. It waits on channels alone, so that a synctest bubble sees
// when everybody sleeps; make both ends inside the bubble. It promises nothing
// about framing: a frame is a line.
package memconn
