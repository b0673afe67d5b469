// Package ws is the WebSocket transport.
//
// A refusal is plain HTTP before the upgrade. Frames are encoded once and
// written as they are (D2, D3). A peer that stalls, sends wrong frame lengths
// or falls silent costs a bounded amount of memory and time. The package does
// not interpret frames or decide who may attach; the functions in [Options] do.
//
// github.com/coder/websocket does the handshake, reads frames and answers close
// frames. This package writes whole frames below it, through a tap around the
// socket. The tap's lock keeps the writes of both apart.
package ws
