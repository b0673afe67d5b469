package contracts

import (
	"cmp"
	"strconv"
	"strings"
)

const (
	maxViolations   = 8  // violations in one error
	maxLocation     = 16 // deepest nesting of known types
	maxPointerBytes = 64 // shown bytes of an unknown key
)

// A location is the path of the value that is being read or written, with the
// violations found so far. Both are bounded, so that a hostile message cannot cause
// a long error.
type location struct {
	steps      [maxLocation]step
	length     int
	violations []string
}

// A step is a property name, or an index if index is not negative.
type step struct {
	name  string
	index int
}

func (t *location) push(s step) {
	t.steps[t.length] = s
	t.length++
}

func (t *location) pushName(name string) { t.push(step{name, -1}) }
func (t *location) pushIndex(i int)      { t.push(step{"", i}) }
func (t *location) pop()                 { t.length-- }

// pointer returns the JSON pointer (RFC 6901) of the current value.
func (t *location) pointer() string {
	var b strings.Builder
	for _, s := range t.steps[:t.length] {
		b.WriteByte('/')
		if s.index < 0 {
			b.WriteString(pointerEscaper.Replace(shortKey(s.name)))
		} else {
			b.WriteString(strconv.Itoa(s.index))
		}
	}
	return b.String()
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// shortKey returns a key cut to maxPointerBytes.
func shortKey(key string) string {
	if len(key) > maxPointerBytes {
		key = SplitText(key, maxPointerBytes)[0] + "…"
	}
	return key
}

// violate records a violation at the current value.
func (t *location) violate(text string) {
	if len(t.violations) < maxViolations {
		t.violations = append(t.violations, cmp.Or(t.pointer(), "$")+" "+text)
	}
}

// violateAt records a violation at a property of the current value.
func (t *location) violateAt(key, text string) {
	t.pushName(key)
	t.violate(text)
	t.pop()
}
