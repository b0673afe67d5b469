package workspace

import (
	"fmt"
	"strings"
)

// namedClasses has the character classes that git knows. A value is a list of
// ranges, two bytes each.
var namedClasses = map[string]string{
	"alnum": "09AZaz", "alpha": "AZaz", "blank": "  \t\t", "cntrl": "\x01\x1f\x7f\x7f", "digit": "09", "graph": "!~", "lower": "az",
	"print": " ~", "punct": "!/:@[`{~", "space": "  \t\n\r\r", "upper": "AZ", "xdigit": "09AFaf",
}

// A class is the state of the parser of a bracket expression.
type class struct {
	rest string // not yet read
	fold bool
	set  [256]bool
}

// class rewrites a bracket expression after its "[" was read. It reports false
// if the pattern can match nothing: the bracket is not closed, the named class
// does not exist, or the set is empty.
func (t *translation) class() bool {
	c := class{rest: t.pattern[t.at:], fold: t.fold}
	negated := strings.HasPrefix(c.rest, "!") || strings.HasPrefix(c.rest, "^")
	if negated {
		c.rest = c.rest[1:]
	}
	for first := true; first || !strings.HasPrefix(c.rest, "]"); first = false {
		if !c.member() {
			return false
		}
	}
	t.at = len(t.pattern) - len(c.rest) + 1
	return t.writeSet(&c.set, negated)
}

// writeSet writes the bytes of set, or the other bytes if negated is set. No
// set matches a slash. writeSet reports false if it wrote no bytes.
func (t *translation) writeSet(set *[256]bool, negated bool) bool {
	set['/'] = negated
	t.out.WriteByte('[')
	empty := true
	for low := 1; low < len(set); low++ {
		if set[low] == negated {
			continue
		}
		high := low
		for high+1 < len(set) && set[high+1] != negated {
			high++
		}
		fmt.Fprintf(&t.out, `\x{%x}-\x{%x}`, low, high)
		if low <= '\n' && '\n' <= high {
			fmt.Fprintf(&t.out, `\x{%x}`, newline)
		}
		low, empty = high, false
	}
	t.out.WriteByte(']')
	return !empty
}

// member reads one character, range or named class.
func (c *class) member() bool {
	if named, ok := strings.CutPrefix(c.rest, "[:"); ok {
		if name, after, ok := strings.Cut(named, "]"); ok && strings.HasSuffix(name, ":") {
			c.rest = after
			return c.named(strings.TrimSuffix(name, ":"))
		}
	}
	low, ok := c.char()
	if !ok {
		return false
	}
	c.set[low] = true // a range counts its first character even if it runs backwards
	if strings.HasPrefix(c.rest, "-") && len(c.rest) > 1 && c.rest[1] != ']' {
		c.rest = c.rest[1:]
		high, ok := c.char()
		c.add(low, high, c.fold)
		return ok
	}
	return true
}

// named adds a named class.
func (c *class) named(name string) bool {
	ranges, known := namedClasses[name]
	for i := 0; i < len(ranges); i += 2 {
		c.add(ranges[i], ranges[i+1], c.fold && name == "upper")
	}
	return known
}

// char reads one character. A backslash may precede it.
func (c *class) char() (byte, bool) {
	c.rest = strings.TrimPrefix(c.rest, `\`)
	if c.rest == "" {
		return 0, false
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b, true
}

// add adds the characters from low to high. If fold is set, it also adds the
// lower case of the capitals among them. A single capital then matches no text,
// as in git.
func (c *class) add(low, high byte, fold bool) {
	for b := int(low); b <= int(high); b++ {
		c.set[b] = true
		if fold {
			c.set[lower(byte(b))] = true
		}
	}
}
