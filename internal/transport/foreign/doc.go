// Package foreign serves clients of other protocols. It runs a [dialect.Translator] for
// each client and attaches the client to sessions as a controller.
//
// A client that reads slowly is sent less at a time, as any client of a session is. The
// package keeps at most 256 KiB of unread lines, plus the lines of one frame, and stops
// reading a client that sends commands and reads no answers.
package foreign
