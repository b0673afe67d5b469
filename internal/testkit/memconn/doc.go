// Package memconn is a connection in memory, for tests of code that serves
// connections. One end is what a transport gives to a hub. The other end is the
// client, which the test drives.
// A connection has an order, bounded buffers in both directions, a peer that
// can stop reading, a write timeout, and pings. It waits only on channels, so a
// synctest bubble can tell when all goroutines wait; make both ends inside the
// bubble. There is no framing: a frame is a line.
package memconn
