// Package chord translates between sessions and clients of Chord's headless protocol,
// and has the types of that protocol.
package chord
