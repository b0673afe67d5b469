package contracts

import (
	"strconv"
	"strings"
)

const (
	maxViolations   = 8  // violations one error names
	maxTrail        = 16 // deepest place inside a known type
	maxPointerBytes = 64 // of an unknown key that is shown
)

// A trail is the place in a message that is being read or written, and what
// was found wrong on the way. Text beyond the bounds is left out, so that what
// a hostile message makes us say stays small.
type trail struct {
	steps      [maxTrail]step
	length     int
	violations []string
}

// A step is a property name, or an index if index is not negative.
type step struct {
	name  string
	index int
}

func (t *trail) pushName(name string) { t.push(step{name, -1}) }
func (t *trail) pushIndex(i int)      { t.push(step{"", i}) }
func (t *trail) pop()                 { t.length-- }

func (t *trail) push(s step) {
	t.steps[t.length] = s
	t.length++
}

// pointer returns the JSON pointer (RFC 6901) of the place.
func (t *trail) pointer() string {
	var b strings.Builder
	for _, s := range t.steps[:t.length] {
		b.WriteByte('/')
		if s.index < 0 {
			b.WriteString(pointerToken(s.name))
		} else {
			b.WriteString(strconv.Itoa(s.index))
		}
	}
	return b.String()
}

// pointerTo returns the JSON pointer of the property key of the place.
func (t *trail) pointerTo(key string) string {
	return t.pointer() + "/" + pointerToken(key)
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func pointerToken(key string) string { return pointerEscaper.Replace(shortKey(key)) }

// shortKey returns a key as it may be shown.
func shortKey(key string) string {
	if len(key) > maxPointerBytes {
		key = SplitText(key, maxPointerBytes)[0] + "…"
	}
	return key
}

// violate notes what is wrong with the place.
func (t *trail) violate(text string) {
	where := t.pointer()
	if where == "" {
		where = "$"
	}
	t.note(where, text)
}

// violateAt notes what is wrong with the property key of the place.
func (t *trail) violateAt(key, text string) { t.note(t.pointerTo(key), text) }

func (t *trail) note(where, text string) {
	if len(t.violations) < maxViolations {
		t.violations = append(t.violations, where+" "+text)
	}
}
