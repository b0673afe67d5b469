// Package session folds a session's messages into the state a snapshot shows.
// Servers and clients use the same fold.
//
// It promises that a snapshot and the messages after it give the state that
// all the messages give, whatever the messages are (R79), that the state is
// bounded, and that adding to a text costs in proportion to what is added. It
// judges nothing: messages are taken as they come, and who may send one, which
// answer is valid and where snapshots are kept is decided elsewhere.
package session
