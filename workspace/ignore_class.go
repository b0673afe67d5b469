package workspace

import (
	"fmt"
	"strings"
)

// namedClasses are the named sets that git knows, in the form of a regular
// expression. None has the slash, which no set matches.
var namedClasses = map[string]string{
	"alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": `\x20\x09`, "cntrl": `\x00-\x1f\x7f`, "digit": "0-9",
	"graph": `\x21-\x2e0-\x7e`, "lower": "a-z", "print": `\x20-\x2e0-\x7e`,
	"punct": `\x21-\x2e\x3a-\x40\x5b-\x60\x7b-\x7e`, "space": `\x20\x09-\x0d`, "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}

// A class is a set of characters in brackets as it is read.
type class struct {
	rest string // what is still to be read
	set  strings.Builder
}

// translateClass reads the set in brackets at the start of s and returns it as
// one of a regular expression, and its length in s. It reports false if the
// pattern can match nothing: the set does not end, names a set that does not
// exist, or is empty.
func translateClass(s string) (string, int, bool) {
	c := class{rest: s[1:]}
	negated := strings.HasPrefix(c.rest, "!") || strings.HasPrefix(c.rest, "^")
	if negated {
		c.rest = c.rest[1:]
	}
	for first := true; first || !strings.HasPrefix(c.rest, "]"); first = false {
		if !c.member() {
			return "", 0, false
		}
	}
	n := len(s) - len(c.rest) + 1
	switch {
	case negated:
		return "[^/" + c.set.String() + "]", n, true
	case c.set.Len() == 0:
		return "", 0, false
	}
	return "[" + c.set.String() + "]", n, true
}

// member reads one character, range or named set.
func (c *class) member() bool {
	if named, ok := strings.CutPrefix(c.rest, "[:"); ok {
		if name, after, ok := strings.Cut(named, "]"); ok && strings.HasSuffix(name, ":") {
			set, known := namedClasses[strings.TrimSuffix(name, ":")]
			c.set.WriteString(set)
			c.rest = after
			return known
		}
	}
	low, ok := c.char()
	if !ok {
		return false
	}
	c.add(low, low) // even at the beginning of a range that runs backwards
	if strings.HasPrefix(c.rest, "-") && len(c.rest) > 1 && c.rest[1] != ']' {
		c.rest = c.rest[1:]
		high, ok := c.char()
		c.add(low, high)
		return ok
	}
	return true
}

// char reads one character, which a backslash may precede.
func (c *class) char() (byte, bool) {
	c.rest = strings.TrimPrefix(c.rest, `\`)
	if c.rest == "" {
		return 0, false
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b, true
}

// add adds the characters from low to high, but for the slash.
func (c *class) add(low, high byte) {
	for _, part := range [][2]byte{{low, min(high, '/'-1)}, {max(low, '/'+1), high}} {
		if part[0] <= part[1] {
			fmt.Fprintf(&c.set, `\x{%x}-\x{%x}`, part[0], part[1])
		}
	}
}
