package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
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

// loadScript reads and checks the scenario in a file.
func loadScript(path string) (*scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxScriptBytes+1))
	if err != nil {
		return nil, err
	}
	sc, err := parseScript(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return sc, nil
}

// parseScript checks a whole scenario: an accepted scenario can be played.
func parseScript(data []byte) (*scenario, error) {
	switch {
	case len(data) > maxScriptBytes:
		return nil, fmt.Errorf("longer than %d bytes", maxScriptBytes)
	case !utf8.Valid(data):
		return nil, errors.New("not UTF-8")
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return nil, inLine(data, err)
	}
	l := &loader{}
	sc := l.scenario(place{"$", data})
	return sc, l.err
}

// inLine adds the line number to the error of a text that is not JSON and so
// has no path.
func inLine(data []byte, err error) error {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := data[:min(syntax.Offset, int64(len(data)))]
	return fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
}

// A place is a value in the script and the path to it.
type place struct {
	path string
	raw  json.RawMessage
}

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
	o := l.object(at, "model", "provider", "prompts", "default")
	sc := &scenario{model: "script", provider: "maestro"}
	o.optional("model", func(p place) { sc.model = l.name(p) })
	o.optional("provider", func(p place) { sc.provider = l.name(p) })
	o.optional("prompts", func(p place) {
		for _, p := range l.list(p) {
			c := l.object(p, "match", "steps")
			var next cue
			c.optional("match", func(p place) { next.match = l.str(p) })
			c.required("steps", func(p place) { next.steps = l.program(p) })
			sc.prompts = append(sc.prompts, next)
		}
	})
	o.optional("default", func(p place) { sc.fallback, sc.complete = l.program(p), true })
	return sc
}

// program reads the steps of one prompt and bounds them.
func (l *loader) program(at place) []step {
	steps := l.steps(at)
	if sizeOf(steps) > maxScriptSteps {
		l.fail(at, "comes to more than %d steps", maxScriptSteps)
	}
	return steps
}

func (l *loader) steps(at place) []step {
	if l.depth++; l.depth > maxScriptDepth {
		l.fail(at, "steps are nested more than %d deep", maxScriptDepth)
	}
	defer func() { l.depth-- }()
	if l.err != nil {
		return nil
	}
	places := l.list(at)
	steps := make([]step, 0, len(places))
	for _, p := range places {
		s := l.step(p)
		if l.err != nil {
			return nil
		}
		steps = append(steps, s)
	}
	return steps
}

// stepKeys are the keys of the kinds of steps.
var stepKeys = []string{"say", "think", "tool", "ask", "delay_ms", "error", "usage", "status", "compaction", "raw", "repeat", "end"}

func (l *loader) step(at place) step {
	o := l.object(at, stepKeys...)
	if l.err == nil && len(o.members) != 1 {
		l.fail(at, "a step has exactly one key, this one has %d", len(o.members))
	}
	if l.err != nil {
		return nil
	}
	var s step
	for key := range o.members { // there is one
		s = l.stepOf(key, o.member(key))
	}
	return s
}

// stepOf reads the value of a key in stepKeys.
func (l *loader) stepOf(key string, at place) step {
	switch key {
	case "say":
		return l.speech(at, false)
	case "think":
		return l.speech(at, true)
	case "tool":
		return l.tool(at)
	case "ask":
		return l.ask(at)
	case "delay_ms":
		return pause(l.delay(at))
	case "error":
		return l.failure(at)
	case "usage":
		return l.usage(at)
	case "status":
		return remark(l.text(at))
	case "compaction":
		return l.compaction(at)
	case "raw":
		return l.rawEvent(at)
	case "repeat":
		return l.repeat(at)
	case "end":
		return l.end(at)
	}
	panic("agent: step key without a reader: " + key) // stepKeys and this switch differ
}

func (l *loader) speech(at place, thinking bool) step {
	s := speech{thinking: thinking}
	if startsWith(at, '"') {
		s.text = l.text(at)
		return s
	}
	o := l.object(at, "text", "chunk", "delay_ms")
	o.required("text", func(p place) { s.text = l.text(p) })
	o.optional("chunk", func(p place) { s.chunk = int(l.integer(p, 1, contracts.MaxTextBytes)) })
	o.optional("delay_ms", func(p place) { s.delay = l.delay(p) })
	return s
}

func (l *loader) tool(at place) step {
	o := l.object(at, "name", "args", "output", "success", "gated", "label")
	t := toolUse{args: newText("{}"), success: true}
	o.required("name", func(p place) { t.name = l.name(p) })
	o.optional("args", func(p place) { t.args = l.json(p) })
	o.optional("output", func(p place) { t.output = l.text(p) })
	o.optional("success", func(p place) { t.success = l.boolean(p) })
	o.optional("gated", func(p place) { t.gated = l.boolean(p) })
	o.optional("label", func(p place) { t.label = l.str(p) })
	return t
}

func (l *loader) ask(at place) step {
	o := l.object(at, "type", "tool", "args", "reason", "timeout_ms", "on")
	q := inquiry{args: newText("{}"), reason: newText("Asked by the script")}
	o.required("type", func(p place) { q.kind = oneOf(l, p, contracts.RequestTypes()...) })
	o.required("tool", func(p place) { q.tool = l.name(p) })
	o.optional("args", func(p place) { q.args = l.json(p) })
	o.optional("reason", func(p place) { q.reason = l.text(p) })
	o.optional("timeout_ms", func(p place) {
		q.timeout = time.Duration(l.integer(p, -1, maxScriptWait.Milliseconds())) * time.Millisecond
	})
	o.optional("on", func(p place) { q.on = l.branches(p, verdicts[q.kind]) })
	return q
}

// verdicts lists the possible verdicts of each request type.
var verdicts = map[contracts.RequestType][]contracts.Verdict{
	contracts.RequestApproval:       {contracts.VerdictApproved, contracts.VerdictDenied, contracts.VerdictCancelled},
	contracts.RequestClientTool:     {contracts.VerdictCompleted, contracts.VerdictFailed, contracts.VerdictCancelled},
	contracts.RequestMCPElicitation: {contracts.VerdictAnswered, contracts.VerdictFailed, contracts.VerdictCancelled},
	contracts.RequestUserInput:      {contracts.VerdictAnswered, contracts.VerdictFailed, contracts.VerdictCancelled},
	contracts.RequestToolRetry:      {contracts.VerdictRetried, contracts.VerdictSkipped, contracts.VerdictAborted, contracts.VerdictCancelled},
}

func (l *loader) branches(at place, possible []contracts.Verdict) map[contracts.Verdict][]step {
	keys := make([]string, len(possible))
	for i, v := range possible {
		keys[i] = string(v)
	}
	on := make(map[contracts.Verdict][]step)
	o := l.object(at, keys...)
	for _, v := range possible {
		o.optional(string(v), func(p place) { on[v] = l.steps(p) })
	}
	return on
}

func (l *loader) failure(at place) step {
	o := l.object(at, "message", "type", "end")
	f := failure{kind: contracts.ErrorTransient}
	o.required("message", func(p place) { f.message = l.text(p) })
	o.optional("type", func(p place) { // a script must not report that the runtime ends
		f.kind = oneOf(l, p, contracts.ErrorTransient, contracts.ErrorTool, contracts.ErrorCancelled, contracts.ErrorProtocol)
	})
	o.optional("end", func(p place) { f.end = l.boolean(p) })
	return f
}

func (l *loader) usage(at place) step {
	o := l.object(at, "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "total_cost_usd")
	var u contracts.Usage
	const most = 1_000_000_000_000
	o.optional("input_tokens", func(p place) { u.InputTokens = l.integer(p, 0, most) })
	o.optional("output_tokens", func(p place) { u.OutputTokens = l.integer(p, 0, most) })
	o.optional("cache_read_tokens", func(p place) { u.CacheReadTokens = l.integer(p, 0, most) })
	o.optional("cache_write_tokens", func(p place) { u.CacheWriteTokens = l.integer(p, 0, most) })
	o.optional("total_cost_usd", func(p place) { u.TotalCostUSD = l.decimal(p, 0, most) })
	return cost(u)
}

func (l *loader) compaction(at place) step {
	o := l.object(at, "summary", "first_kept_entry_index", "tokens_before", "auto", "custom_instructions")
	var c summary
	o.required("summary", func(p place) { c.text = l.text(p) })
	o.optional("first_kept_entry_index", func(p place) { c.message.FirstKeptEntryIndex = l.integer(p, 0, 1<<53-1) })
	o.optional("tokens_before", func(p place) { c.message.TokensBefore = l.integer(p, 0, 1<<53-1) })
	o.optional("auto", func(p place) { c.message.Auto = l.boolean(p) })
	o.optional("custom_instructions", func(p place) { c.message.CustomInstructions = l.str(p) })
	return c
}

func (l *loader) rawEvent(at place) step {
	o := l.object(at, "type", "event")
	var r rawEvent
	o.required("type", func(p place) { r.kind = l.name(p) })
	o.required("event", func(p place) { r.event = l.json(p) })
	return r
}

func (l *loader) repeat(at place) step {
	o := l.object(at, "times", "steps", "rate")
	var r repeat
	o.required("times", func(p place) { r.times = int(l.integer(p, 1, maxScriptSteps)) })
	o.required("steps", func(p place) { r.steps = l.steps(p) })
	o.optional("rate", func(p place) {
		if rate := l.decimal(p, 1/maxScriptDelay.Seconds(), maxScriptRate); l.err == nil {
			r.period = time.Duration(float64(time.Second) / rate)
		}
	})
	r.count = min(int64(r.times)*max(sizeOf(r.steps), 1), tooMany) // cannot overflow: both are bounded
	return r
}

func (l *loader) end(at place) step {
	if !l.boolean(at) {
		l.fail(at, "must be true")
	}
	return finish{}
}

// An object is a JSON object with checked keys.
type object struct {
	l       *loader
	at      place
	members map[string]json.RawMessage
}

// object reads an object that may have the known keys only.
func (l *loader) object(at place, known ...string) object {
	o := object{l: l, at: at}
	if l.err != nil {
		return o
	}
	if !startsWith(at, '{') {
		l.fail(at, "must be an object")
		return o
	}
	if err := json.Unmarshal(at.raw, &o.members); err != nil {
		l.fail(at, "%v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(o.members)) {
		if !slices.Contains(known, key) {
			l.fail(o.member(key), "unknown key; known are %q", slices.Sorted(slices.Values(known)))
		}
	}
	return o
}

func (o object) member(key string) place {
	return place{o.at.path + "." + key, o.members[key]}
}

// optional calls read with the member if it exists.
func (o object) optional(key string, read func(place)) {
	if _, ok := o.members[key]; ok && o.l.err == nil {
		read(o.member(key))
	}
}

// required is optional for a member that must exist.
func (o object) required(key string, read func(place)) {
	if _, ok := o.members[key]; !ok {
		o.l.fail(o.member(key), "is missing")
	}
	o.optional(key, read)
}

func (l *loader) list(at place) []place {
	var items []json.RawMessage
	if !startsWith(at, '[') {
		l.fail(at, "must be a list")
		return nil
	}
	if err := json.Unmarshal(at.raw, &items); err != nil {
		l.fail(at, "%v", err)
	}
	places := make([]place, len(items))
	for i, raw := range items {
		places[i] = place{at.path + "[" + strconv.Itoa(i) + "]", raw}
	}
	return places
}

func (l *loader) str(at place) string {
	var s string
	if !startsWith(at, '"') || json.Unmarshal(at.raw, &s) != nil {
		l.fail(at, "must be a string")
	}
	return s
}

// name reads a string that must not be empty.
func (l *loader) name(at place) string {
	s := l.str(at)
	if s == "" {
		l.fail(at, "must not be empty")
	}
	return s
}

func (l *loader) text(at place) text { return newText(l.str(at)) }

// json reads any value as JSON text. Its strings may contain the iteration
// placeholder: with a number in its place they are still strings.
func (l *loader) json(at place) text {
	if len(at.raw) > contracts.MaxValueBytes {
		l.fail(at, "longer than %d bytes", contracts.MaxValueBytes)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, at.raw); err != nil {
		l.fail(at, "%v", err)
	}
	return newText(compact.String())
}

func (l *loader) boolean(at place) bool {
	var b bool
	if startsWith(at, 'n') || json.Unmarshal(at.raw, &b) != nil {
		l.fail(at, "must be true or false")
	}
	return b
}

func (l *loader) integer(at place, least, most int64) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(at.raw)), 10, 64)
	if err != nil || n < least || n > most {
		l.fail(at, "must be a whole number from %d to %d", least, most)
		return least
	}
	return n
}

func (l *loader) decimal(at place, least, most float64) float64 {
	f, err := strconv.ParseFloat(string(bytes.TrimSpace(at.raw)), 64)
	if err != nil || !(f >= least && f <= most) {
		l.fail(at, "must be a number from %g to %g", least, most)
		return least
	}
	return f
}

// delay reads milliseconds.
func (l *loader) delay(at place) time.Duration {
	return time.Duration(l.integer(at, 0, maxScriptDelay.Milliseconds())) * time.Millisecond
}

// oneOf reads a string of a closed set.
func oneOf[T ~string](l *loader, at place, set ...T) T {
	v := T(l.str(at))
	if l.err == nil && !slices.Contains(set, v) {
		l.fail(at, "must be one of %q", set)
	}
	return v
}

// startsWith reports whether the value begins with c, which determines its
// kind.
func startsWith(at place, c byte) bool {
	raw := bytes.TrimLeft(at.raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == c
}
