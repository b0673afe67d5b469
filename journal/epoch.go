package journal

import (
	"crypto/rand"
	"encoding/hex"
)

// newEpoch mints an epoch: the letter e and 128 random bits in hex.
func newEpoch() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return "e" + hex.EncodeToString(b[:])
}
