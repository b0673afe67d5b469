package journal

import (
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
)

// newEpoch mints an epoch: the letter e and 128 random bits in hex.
func newEpoch() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return "e" + hex.EncodeToString(b[:])
}

// epochStart returns where an epoch begins that follows one whose cursors were
// all at most used, or copies of it that went on elsewhere. The distance is
// random, so that the cursors of one epoch lie where no other has any, and a
// client that presents one without its epoch is recognized. JavaScript counts
// exactly up to 2^53, which leaves room for 8,000 epochs.
func epochStart(used uint64) uint64 {
	return used + 1<<20 + mathrand.Uint64N(1<<40)
}
