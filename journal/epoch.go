package journal

import (
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
)

// newEpoch returns a new epoch: the letter e and 128 random bits in hex.
func newEpoch() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return "e" + hex.EncodeToString(b[:])
}

// epochStart returns the cursor after which a new epoch begins. used is the newest
// cursor that may have been used in earlier epochs or in copies. The distance is
// random, so that cursors of different epochs do not overlap, and a cursor without
// its epoch is recognized as old. JavaScript counts exactly up to 2^53, which
// leaves room for 8,000 epochs.
func epochStart(used uint64) uint64 {
	return used + 1<<20 + mathrand.Uint64N(1<<40)
}
