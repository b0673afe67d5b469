package hecate

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
)

// alphabet has the digits of base 32 in ULIDs.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ulidLen is the length of a ULID in characters.
const ulidLen = 26

// ULID returns an id: the prefix, an underscore and a ULID, which has 48 bits of
// milliseconds since 1970 and 80 bits of entropy. A time before 1970 counts as 1970.
func ULID(prefix string, at time.Time, entropy [10]byte) string {
	var bits [16]byte
	ms := uint64(max(at.UnixMilli(), 0))
	binary.BigEndian.PutUint64(bits[:8], ms<<16)
	copy(bits[6:], entropy[:])
	high, low := binary.BigEndian.Uint64(bits[:8]), binary.BigEndian.Uint64(bits[8:])
	var text [ulidLen]byte
	for i := ulidLen - 1; i >= 0; i-- {
		text[i] = alphabet[low&31]
		low = low>>5 | high<<59
		high >>= 5
	}
	return prefix + "_" + string(text[:])
}

// ValidID reports whether id is the prefix, an underscore and a ULID in upper case.
func ValidID(prefix, id string) bool {
	text, ok := strings.CutPrefix(id, prefix+"_")
	return ok && len(text) == ulidLen && text[0] <= '7' &&
		strings.Trim(text, alphabet) == "" && !strings.ContainsAny(text, "ILOU")
}

// EventID returns the id of an event: 48 bits of milliseconds, 32 bits of its sequence,
// and 48 bits of a hash of its run's id. The ids of a run increase as long as the time of
// its events does not decrease.
func EventID(at time.Time, runID string, sequence uint64) string {
	hash := sha256.Sum256([]byte(runID))
	var entropy [10]byte
	binary.BigEndian.PutUint32(entropy[:4], uint32(sequence))
	copy(entropy[4:], hash[:])
	return ULID("evt", at, entropy)
}

// derive returns the entropy of the n-th id that a session makes from its seed.
func derive(seed []byte, n uint64) (entropy [10]byte) {
	hash := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(string(seed)), n))
	copy(entropy[:], hash[:])
	return entropy
}
