package localmodel

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A speaker is the origin of an entry.
type speaker int

const (
	user speaker = iota
	model
	tool
	system
)

// An entry is one part of a conversation, independent of the wire form.
type entry struct {
	by      speaker
	text    string // a text, or the result of a tool
	call    string // ID of the call made or answered; empty without a call
	message int    // index of its message
	part    int    // index in its message
}

// An offered is a tool that the client offers.
type offered struct {
	name      string
	namespace string          // only in Responses; empty without one
	custom    bool            // takes text instead of JSON (Responses)
	schema    json.RawMessage // of its arguments; may be empty
}

// A conversation is a parsed request to a model.
type conversation struct {
	id     string // derived from the request, so that equal requests get equal IDs
	runes  int    // characters of a piece of a text
	model  string
	stream bool
	size   int // of the request in bytes
	tools  []offered

	entries []entry
	cached  bool // the client asks for its history to be cached

	// For Chat Completions and Responses.
	withUsage bool
	sealed    bool // the client asks for encrypted reasoning
	fields    map[string]json.RawMessage

	// Derived from the entries.
	prompt string // the last text of the user that the agent did not add
	step   int    // how many times the model has spoken after prompt
	spoken bool   // the model has spoken before
	result string // of the last called tool, if the model has not spoken since
	called bool   // result is set
}

func newConversation(body []byte) *conversation {
	sum := sha256.Sum256(body)
	return &conversation{id: hex.EncodeToString(sum[:10]), size: len(body)}
}

// newID returns an ID for the nth object of a kind in the reply.
func (c *conversation) newID(prefix string, n int) string {
	return fmt.Sprintf("%s%s%02d", prefix, c.id, n)
}

// seal returns a signature for a thinking text. A text that comes back is
// checked against it, as the services do.
func seal(text string) string {
	sum := sha256.Sum256([]byte("localmodel\x00" + text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// tagged matches the texts that agents add to prompts: reminders and
// descriptions of the environment.
var tagged = regexp.MustCompile(`(?s)^\s*<([A-Za-z_-]+)[^>]*>.*</([A-Za-z_-]+)>\s*$`)

func isTagged(text string) bool {
	m := tagged.FindStringSubmatch(text)
	return m != nil && m[1] == m[2]
}

// look sets the fields that are derived from the entries.
func (c *conversation) look() *conversation {
	at := c.findPrompt(false)
	if at < 0 {
		at = c.findPrompt(true)
	}
	for i, e := range c.entries {
		if e.by != model {
			continue
		}
		c.spoken = true
		if i > at && (i == 0 || c.entries[i-1].by != model) {
			c.step++
		}
	}
	for i := len(c.entries) - 1; i > at && c.entries[i].by != model; i-- {
		if c.entries[i].by == tool {
			c.result, c.called = c.entries[i].text, true
			break
		}
	}
	return c
}

// findPrompt sets prompt to the last text of the user and returns its index, or
// -1. Earlier texts, also in the same message, are unanswered prompts or
// additions of the agent. A tagged text counts only if withTagged is set.
func (c *conversation) findPrompt(withTagged bool) int {
	wanted := func(e entry) bool {
		return e.by == user && strings.TrimSpace(e.text) != "" && (withTagged || !isTagged(e.text))
	}
	for i := len(c.entries) - 1; i >= 0; i-- {
		if wanted(c.entries[i]) {
			c.prompt = c.entries[i].text
			return i
		}
	}
	return -1
}

// checkCalls checks that every call has a result and every result a call. With
// adjacent, the results must begin the message after the call. unexpected and
// unanswered return the refusals of a result and of a call.
func (c *conversation) checkCalls(adjacent bool, unexpected, unanswered func(entry) *failure) *failure {
	var open []entry // calls without a result
	made := map[string]bool{}
	for _, e := range c.entries {
		if e.by == tool {
			answers := func(call entry) bool { return call.call == e.call }
			if !made[e.call] || adjacent && !slices.ContainsFunc(open, answers) {
				return unexpected(e)
			}
			open = slices.DeleteFunc(open, answers)
			continue
		}
		if adjacent && len(open) > 0 && e.message != open[0].message {
			return unanswered(open[0])
		}
		if e.call != "" {
			open = append(open, e)
			made[e.call] = true
		}
	}
	if len(open) > 0 {
		return unanswered(open[0])
	}
	return nil
}

// pieces cuts a text into the pieces of a stream. A text of two or more characters
// gets at least two pieces.
func (c *conversation) pieces(text string) (list []string) {
	runes := []rune(text)
	for part := range slices.Chunk(runes, min(cmp.Or(c.runes, defaultRunes), max(1, (len(runes)+1)/2))) {
		list = append(list, string(part))
	}
	return list
}

// usage estimates the tokens of a reply. If the client asks for caching, usage
// assumes that the history was written to the cache at the beginning of the
// conversation and read from it since.
func (c *conversation) usage(r reply) (input, output, read, written int) {
	input, output = tokens(c.size), tokens(len(r.thinking)+len(r.text))
	for _, call := range r.calls {
		output += tokens(len(call.args) + len(call.tool.name))
	}
	if c.cached {
		prefix := input * 3 / 4
		input -= prefix
		if c.spoken {
			read = prefix
		} else {
			written = prefix
		}
	}
	return input, output, read, written
}

// A reply is what the model is going to say.
type reply struct {
	thinking, text string
	calls          []madeCall
	stop           string // length, refused, or empty
}

// reason returns the reason for the end of a reply in the words of a service.
func (r reply) reason(length, refused, calls, end string) string {
	switch {
	case r.stop == stopLength:
		return length
	case r.stop == stopRefused:
		return refused
	case len(r.calls) > 0:
		return calls
	}
	return end
}

// A madeCall is a tool call with its final arguments.
type madeCall struct {
	tool offered
	args string
}

// resolve picks the tools of a turn and fills in the placeholders.
func (c *conversation) resolve(t Turn) reply {
	fill := strings.NewReplacer("{{result}}", c.result, "{{prompt}}", c.prompt)
	r := reply{thinking: fill.Replace(t.Thinking), text: fill.Replace(t.Text), stop: t.Stop}
	for _, call := range t.Calls {
		r.calls = append(r.calls, c.choose(call))
	}
	return r
}

// choose returns the first alternative of a call that the client offers. If it
// offers none, choose returns the first alternative.
func (c *conversation) choose(call Call) madeCall {
	choices := call.choices()
	at := max(0, slices.IndexFunc(choices, func(choice Call) bool {
		return slices.ContainsFunc(c.tools, func(t offered) bool { return t.name == choice.Tool })
	}))
	made := madeCall{offered{name: choices[at].Tool}, choices[at].written()}
	if i := slices.IndexFunc(c.tools, func(t offered) bool { return t.name == made.tool.name }); i >= 0 {
		made.tool = c.tools[i]
	}
	return made
}
