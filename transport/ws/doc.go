// Package ws is the WebSocket transport.
//
// It promises that a refusal is plain HTTP before the upgrade, that frames made
// once are written as they are (D2, D3), that a peer which stalls, lies about
// its frames or falls silent costs a bounded amount of memory and time, and
// that every connection it started has ended when [Handler.Close] returns. It
// does not know what frames say, nor who may attach: that is decided by the
// functions in [Options].
//
// github.com/coder/websocket does the handshake, reading and the answers to
// close frames. Whole frames enter below it, at a tap around the socket whose
// lock keeps both apart.
package ws
