// Package session folds a session's messages into the state that snapshots contain.
// Servers and clients use the same fold. web/client/fold.ts is the same fold in TypeScript;
// a test of package web compares both.
//
// A snapshot and the messages after it give the same state as all messages
// together, for any messages (R79). The state is bounded, and the cost of appending
// to a text is proportional to the appended length. The package validates nothing:
// other packages decide who may send a message, which answer is valid and where
// snapshots are stored.
package session
