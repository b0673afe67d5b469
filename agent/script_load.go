package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// Bounds of a script. Delays and periods are bounded so that a mistyped number
// is found at load.
const (
	maxScriptBytes = 8 << 20
	maxScriptSteps = 10_000_000 // of one prompt, with every repeat written out
	maxScriptDepth = 8          // steps inside steps
	maxScriptDelay = time.Hour
	maxScriptWait  = 7 * 24 * time.Hour // timeout of a question
	maxScriptRate  = 1_000_000          // iterations a second
)

// parseScript checks a whole scenario: an accepted scenario can be played.
func parseScript(data []byte) (*scenario, error) {
	switch {
	case len(data) > maxScriptBytes:
		return nil, fmt.Errorf("longer than %d bytes", maxScriptBytes)
	case !utf8.Valid(data):
		return nil, errors.New("not UTF-8")
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	// A text that is not JSON has no path, but a line.
	if bad, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, new(json.RawMessage))); ok {
		before := data[:min(bad.Offset, int64(len(data)))]
		return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), bad)
	}
	l := &loader{}
	sc := l.scenario(place{"$", data})
	return sc, l.err
}

// A place is a value in the script and the path to it.
type place struct {
	path string
	raw  json.RawMessage
}

func (p place) member(key string, raw json.RawMessage) place { return place{p.path + "." + key, raw} }

// A loader turns places into steps and keeps the first error. After an error
// all its results are empty, so callers need not check.
type loader struct {
	err   error
	depth int // nesting depth of the current list of steps
}

func (l *loader) fail(at place, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%s: %s", at.path, fmt.Sprintf(format, args...))
	}
}

func (l *loader) scenario(at place) *scenario {
	sc := &scenario{model: "script", provider: "maestro"}
	l.object(at,
		may("model", &sc.model, l.name), may("provider", &sc.provider, l.name), may("keeps_questions", &sc.keeps, l.boolean),
		may("prompts", &sc.prompts, l.cues),
		member{key: "default", read: func(p place) { sc.prompts = append(sc.prompts, cue{"", l.program(p)}) }})
	return sc
}

func (l *loader) cues(at place) (cues []cue) {
	for _, p := range l.list(at) {
		var next cue
		l.object(p, may("match", &next.match, l.str), must("steps", &next.steps, l.program))
		cues = append(cues, next)
	}
	return cues
}

// program reads the steps of one prompt and bounds them.
func (l *loader) program(at place) []step {
	steps := l.steps(at)
	if sizeOf(steps) > maxScriptSteps {
		l.fail(at, "comes to more than %d steps", maxScriptSteps)
	}
	return steps
}

func (l *loader) steps(at place) (steps []step) {
	if l.depth++; l.depth > maxScriptDepth {
		l.fail(at, "steps are nested more than %d deep", maxScriptDepth)
	}
	defer func() { l.depth-- }()
	for _, p := range l.list(at) {
		steps = append(steps, l.step(p))
		if l.err != nil {
			return nil
		}
	}
	return steps
}

// A member is a known key of an object, and how its value is read.
type member struct {
	key    string
	needed bool
	read   func(place)
}

// may returns a member that reads its value into to.
func may[T any](key string, to *T, read func(place) T) member {
	return member{key: key, read: func(p place) { *to = read(p) }}
}

// must is may for a member that must exist.
func must[T any](key string, to *T, read func(place) T) member {
	m := may(key, to, read)
	m.needed = true
	return m
}

// object reads an object that may have the known keys only, in their order, and
// returns its members.
func (l *loader) object(at place, known ...member) (members map[string]json.RawMessage) {
	if members = decoded[map[string]json.RawMessage](l, at, "{", "an object"); l.err != nil {
		return nil
	}
	var keys []string
	for _, m := range known {
		keys = append(keys, m.key)
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(keys, key) {
			l.fail(at.member(key, nil), "unknown key; known are %q", slices.Sorted(slices.Values(keys)))
		}
	}
	for _, m := range known {
		value, ok := members[m.key]
		switch p := at.member(m.key, value); {
		case ok && l.err == nil:
			m.read(p)
		case !ok && m.needed:
			l.fail(p, "is missing")
		}
	}
	return members
}

func (l *loader) list(at place) []place {
	items := decoded[[]json.RawMessage](l, at, "[", "a list")
	places := make([]place, len(items))
	for i, raw := range items {
		places[i] = place{at.path + "[" + strconv.Itoa(i) + "]", raw}
	}
	return places
}

func (l *loader) str(at place) string { return decoded[string](l, at, `"`, "a string") }

// name reads a string that must not be empty.
func (l *loader) name(at place) string {
	s := l.str(at)
	if s == "" {
		l.fail(at, "must not be empty")
	}
	return s
}

func (l *loader) text(at place) text { return text(l.str(at)) }

// json reads any value as JSON text. Its strings may contain the iteration
// placeholder: with a number in its place they are still strings.
func (l *loader) json(at place) text {
	if len(at.raw) > contracts.MaxValueBytes {
		l.fail(at, "longer than %d bytes", contracts.MaxValueBytes)
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, at.raw) // parseScript has checked the whole text
	return text(compact.String())
}

func (l *loader) boolean(at place) bool { return decoded[bool](l, at, "tf", "true or false") }

// integer returns a reader of whole numbers within bounds.
func (l *loader) integer(least, most int64) func(place) int64 {
	return func(at place) int64 {
		n, err := strconv.ParseInt(string(bytes.TrimSpace(at.raw)), 10, 64)
		if err != nil || n < least || n > most {
			l.fail(at, "must be a whole number from %d to %d", least, most)
			return least
		}
		return n
	}
}

// decimal returns a reader of numbers within bounds.
func (l *loader) decimal(least, most float64) func(place) float64 {
	return func(at place) float64 {
		f, err := strconv.ParseFloat(string(bytes.TrimSpace(at.raw)), 64)
		if err != nil || !(f >= least && f <= most) {
			l.fail(at, "must be a number from %g to %g", least, most)
			return least
		}
		return f
	}
}

// milliseconds returns a reader of a time in milliseconds.
func (l *loader) milliseconds(least int64, most time.Duration) func(place) time.Duration {
	read := l.integer(least, most.Milliseconds())
	return func(at place) time.Duration { return time.Duration(read(at)) * time.Millisecond }
}

func (l *loader) delay(at place) time.Duration { return l.milliseconds(0, maxScriptDelay)(at) }

// oneOf returns a reader of a string of a closed set.
func oneOf[T ~string](l *loader, set ...T) func(place) T {
	return func(at place) T {
		v := T(l.str(at))
		if l.err == nil && !slices.Contains(set, v) {
			l.fail(at, "must be one of %q", set)
		}
		return v
	}
}

// decoded decodes a value that begins with one of the characters in first, which
// determines its kind.
func decoded[T any](l *loader, at place, first, kind string) (value T) {
	if !startsWith(at, first) || json.Unmarshal(at.raw, &value) != nil {
		l.fail(at, "must be %s", kind)
	}
	return value
}

func startsWith(at place, first string) bool {
	raw := bytes.TrimLeft(at.raw, " \t\r\n")
	return len(raw) > 0 && strings.IndexByte(first, raw[0]) >= 0
}
