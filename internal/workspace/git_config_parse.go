package workspace

import (
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// A configEntry is one value in a git configuration file.
type configEntry struct {
	key        string // section and name in lower case, joined by a dot
	subsection string
	value      string
	bare       bool // without a value, which means true
}

// parseGitConfig calls each with every value in the text of a configuration
// file. It stops at the first line that git would refuse, and when each returns
// false.
func parseGitConfig(text string, each func(configEntry) bool) {
	p := configText{rest: strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), byteOrderMark)}
	for ok := true; ok; {
		p.rest = strings.TrimLeft(p.rest, " \t\n\r")
		switch {
		case p.rest == "":
			return
		case p.rest[0] == '#' || p.rest[0] == ';':
			_, p.rest, _ = strings.Cut(p.rest, "\n")
		case p.rest[0] == '[':
			ok = p.section()
		default:
			var e configEntry
			if e, ok = p.entry(); ok {
				ok = each(e)
			}
		}
	}
}

// A configText is the state of the parser of a configuration file.
type configText struct {
	rest       string
	name       string // of the current section
	subsection string
}

// The headings of sections, and the names of values, that git accepts.
var (
	sectionHeading = lazyregexp.New(`^\[([-.A-Za-z0-9]+)(?:[ \t]*"((?:[^"\\\n]|\\[^\n])*)")?\]`)
	headingEscape  = lazyregexp.New(`\\(.)`)
	valueName      = lazyregexp.New(`^[A-Za-z][-A-Za-z0-9]*`)
)

// section reads the heading of a section.
func (p *configText) section() bool {
	found := sectionHeading().FindStringSubmatch(p.rest)
	if found == nil {
		return false
	}
	p.rest = p.rest[len(found[0]):]
	p.name, p.subsection = folded(found[1], true), headingEscape().ReplaceAllString(found[2], "$1")
	return true
}

// entry reads a name and its value.
func (p *configText) entry() (configEntry, bool) {
	name := valueName().FindString(p.rest)
	if name == "" || p.name == "" {
		return configEntry{}, false
	}
	e := configEntry{key: p.name + "." + folded(name, true), subsection: p.subsection}
	p.rest = strings.TrimLeft(p.rest[len(name):], " \t")
	after, given := strings.CutPrefix(p.rest, "=")
	if !given {
		e.bare = true
		return e, p.rest == "" || p.rest[0] == '\n'
	}
	p.rest = strings.TrimLeft(after, " \t")
	var ok bool
	e.value, ok = p.value()
	return e, ok
}

// configEscapes maps the character after a backslash to its meaning.
var configEscapes = map[byte]string{'\n': "", 't': "\t", 'b': "\b", 'n': "\n", '"': `"`, '\\': `\`}

// value reads to the end of the line or to a comment. A backslash at the end of
// a line continues the value on the next one.
func (p *configText) value() (string, bool) {
	var b strings.Builder
	quoted, solid := false, 0 // solid is the length without trailing spaces
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '\n':
			p.rest = p.rest[i:]
			return b.String()[:solid], !quoted
		case !quoted && (c == '#' || c == ';'):
			_, p.rest, _ = strings.Cut(p.rest[i:], "\n")
			return b.String()[:solid], true
		case c == '"':
			quoted = !quoted
			solid = b.Len()
		case c == '\\':
			if i++; i == len(p.rest) {
				return "", false
			}
			plain, known := configEscapes[p.rest[i]]
			if !known {
				return "", false
			}
			b.WriteString(plain)
			solid = b.Len()
		default:
			b.WriteByte(c)
			if quoted || c != ' ' && c != '\t' {
				solid = b.Len()
			}
		}
	}
	p.rest = ""
	return b.String()[:solid], !quoted
}
