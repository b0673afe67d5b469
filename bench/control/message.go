package control

import (
	"strconv"
	"time"
)

// MessageSize is the size of a peer's message in bytes. Our own server's
// messages have the same text in the same envelope, so they differ only by the
// width of the cursor.
const MessageSize = 200

// A mark opens the text of every message: its number and when it was sent, both
// of fixed width, behind a character that occurs nowhere else in a message.
// Viewers look for marks only. That keeps them cheap, indifferent to what
// surrounds the text, and able to count messages that a server has merged.
const (
	Mark        = '#'
	numberWidth = 10
	timeWidth   = 16 // microseconds since 1970
	MarkWidth   = 1 + numberWidth + timeWidth
)

// The envelope of a message as our server writes it.
const (
	envelopeHead = `{"type":"message","cursor":`
	envelopeBody = `,"message":{"type":"response_chunk","response_id":"` + ResponseID + `","content":"`
	envelopeTail = `","is_thinking":false}}`
)

// ResponseID is the id of the response whose text is published.
const ResponseID = "resp_bench"

// filler pads a text to size. It contains no Mark and needs no JSON escape.
const filler = "the quick brown fox jumps over the lazy dog and runs off into the wide green field, where it sleeps. "

// Text returns the text of message number n, sent at now. In its envelope with
// a one-digit cursor it makes MessageSize bytes.
func Text(n uint64, now time.Time) []byte {
	size := MessageSize - len(envelopeHead) - 1 - len(envelopeBody) - len(envelopeTail)
	b := make([]byte, 0, size)
	b = append(b, Mark)
	b = appendPadded(b, n, numberWidth)
	b = appendPadded(b, uint64(now.UnixMicro()), timeWidth)
	return append(b, filler[:size-len(b)]...)
}

// Envelope returns text as a whole message of exactly MessageSize bytes, which
// is what the peers publish.
func Envelope(text []byte) []byte {
	b := make([]byte, 0, MessageSize)
	b = append(b, envelopeHead...)
	b = append(b, '1')
	b = append(b, envelopeBody...)
	b = append(b, text...)
	return append(b, envelopeTail...)
}

// ParseMark reads a mark from the first MarkWidth bytes of b. It reports false
// if they are not one.
func ParseMark(b []byte) (n uint64, sentMicros int64, ok bool) {
	if len(b) < MarkWidth || b[0] != Mark {
		return 0, 0, false
	}
	n, ok1 := parsePadded(b[1 : 1+numberWidth])
	micros, ok2 := parsePadded(b[1+numberWidth : MarkWidth])
	return n, int64(micros), ok1 && ok2
}

func appendPadded(b []byte, n uint64, width int) []byte {
	digits := strconv.AppendUint(make([]byte, 0, 20), n, 10)
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

func parsePadded(b []byte) (n uint64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
