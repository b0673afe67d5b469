package contracts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// RequestDigest returns the digest of a request as the agent made it, before anything
// is cut: "sha256:" and the SHA-256 hash, in hex, of six texts. The texts are
// "maestro-request-1", the session id, the request type, the call id, the tool, and
// the args as JSON without white space between tokens. Each text is written as its
// length in bytes, a colon, the text and a comma.
func RequestDigest(sessionID string, req *ServerRequest) string {
	var all []byte
	args := string(appendCompact(nil, req.Args))
	for _, text := range []string{"maestro-request-1", sessionID, string(req.RequestType), req.CallID, req.Tool, args} {
		all = fmt.Appendf(all, "%d:%s,", len(text), text)
	}
	sum := sha256.Sum256(all)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A Display is a request in one line for people. Every character that is visible stands for
// itself.
type Display struct {
	Text    string // the tool, and the args as JSON; at most MaxTextBytes
	Escaped bool   // the request has characters that do not show what they are; Text has their escapes
	Cut     bool   // Text or the args in server_request are not whole
}

// DisplayRequest returns the display form of a request with valid args. Control
// characters other than newline and tab, characters that reorder text, and invisible
// ones appear as JSON escapes such as \u202e.
func DisplayRequest(req *ServerRequest) Display {
	var d Display
	var text strings.Builder
	d.escape(&text, req.Tool)
	text.WriteByte(' ')
	args := appendCompact(nil, req.Args)
	d.Cut = len(args) > MaxValueBytes
	for len(args) > 0 {
		if args[0] != '"' {
			text.WriteByte(args[0])
			args = args[1:]
			continue
		}
		_, size := appendRawString(nil, args)
		var value string
		_ = json.Unmarshal(args[:size], &value) // a string of valid JSON
		text.WriteByte('"')
		d.escape(&text, value)
		text.WriteByte('"')
		args = args[size:]
	}
	d.Text = text.String()
	if len(d.Text) > MaxTextBytes {
		d.Text, d.Cut = SplitText(d.Text, MaxTextBytes)[0], true
	}
	return d
}

// escape writes s as the inside of a JSON string.
func (d *Display) escape(out *strings.Builder, s string) {
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case visible(r):
			out.WriteRune(r)
		case r > 0xffff:
			d.Escaped = true
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		default:
			d.Escaped = true
			fmt.Fprintf(out, `\u%04x`, r)
		}
	}
}

// visible reports whether a person sees the character and sees it in its place.
// [unicode.IsPrint] counts fillers, variation selectors and the empty braille pattern
// as printable.
func visible(r rune) bool {
	const emptyBraille = '\u2800'
	return unicode.IsPrint(r) && r != emptyBraille &&
		!unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
