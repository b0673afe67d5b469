package hecate

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	maxWord    = 4 << 10 // bytes of a word that is held until its end
	maxContext = 256     // bytes of shown text that a redaction sees before a word
)

// A flow is a text that arrives in pieces. It holds the end of the text until the word
// is complete, because a secret may be cut between pieces.
type flow struct {
	Held    []byte `json:"held,omitempty"`    // not yet shown; base64 in the state
	Context string `json:"context,omitempty"` // the end of what was shown
}

// take removes the first n bytes of what is held and returns them without secrets.
func (f *flow) take(n int, redact func(string) (string, bool)) clean {
	raw := string(f.Held[:n])
	f.Held = append([]byte(nil), f.Held[n:]...)
	shown := clean{Text: raw}
	if redact != nil && raw != "" {
		shown = f.redacted(raw, redact)
	}
	f.Context = contracts.TailText(f.Context+shown.Text, maxContext)
	return shown
}

// redacted redacts raw with the text before it as context.
func (f *flow) redacted(raw string, redact func(string) (string, bool)) clean {
	whole, changed := redact(f.Context + raw)
	if rest, ok := strings.CutPrefix(whole, f.Context); ok {
		return clean{rest, changed}
	}
	text, changed := redact(raw)
	return clean{text, changed}
}

// words returns the length of the held text that may be shown: up to the end of its
// last complete word, and not the beginning of a private key. Words are ASCII, because
// texts of other scripts may have no spaces, and secrets are ASCII. A word or a key of
// more than limit bytes is cut.
func (f *flow) words(limit int) int {
	n := len(f.Held)
	for n > 0 && f.Held[n-1] > ' ' && f.Held[n-1] < utf8.RuneSelf {
		n--
	}
	if from, to := privateKey(f.Held); from < n && n < to {
		n = from
	}
	if len(f.Held)-n > limit {
		return len(f.Held)
	}
	return n
}

// privateKey returns where the last private key of a text begins and ends. A key that
// has not ended ends after the text.
func privateKey(text []byte) (from, to int) {
	const begin, end, dashes = "-----BEGIN ", "-----END ", "-----"
	if from = bytes.LastIndex(text, []byte(begin)); from < 0 {
		return 0, 0
	}
	if at := bytes.Index(text[from:], []byte(end)); at >= 0 {
		to = from + at + len(end)
		if at = bytes.Index(text[to:], []byte(dashes)); at >= 0 {
			return from, to + at + len(dashes)
		}
	}
	return from, len(text) + 1
}
