package localmodel

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// speaker is who an entry of a conversation is from.
type speaker int

const (
	user speaker = iota
	model
	tool
)

// An entry is one piece of a conversation, in whichever form it was sent.
type entry struct {
	by   speaker
	text string // said, or the result of a tool
	call string // id of the call made or answered; empty if it is none
}

// An offered tool is one that the client says it has.
type offered struct {
	name      string
	namespace string          // of Responses; empty if it has none
	custom    bool            // takes text instead of JSON (Responses)
	schema    json.RawMessage // of its arguments; may be empty
}

// A conversation is a request to a model, read.
type conversation struct {
	id     string // made of the request, so that equal requests get equal ids
	model  string
	stream bool
	size   int // of the request in bytes
	tools  []offered

	entries []entry
	cached  bool // the client wants its history cached

	// Of Chat Completions and Responses.
	withUsage bool
	sealed    bool // encrypted reasoning is wanted
	fields    map[string]json.RawMessage

	// What follows from the entries.
	prompt string // the last text of the user that is not an agent's own addition
	step   int    // how often the model has spoken since
	spoken bool   // the model has spoken before
	result string // of the last tool that was called, if the model has not spoken since
	called bool   // there is a result
}

func newConversation(body []byte) *conversation {
	sum := sha256.Sum256(body)
	return &conversation{id: hex.EncodeToString(sum[:10]), size: len(body)}
}

// newID returns an id for the nth thing of a kind in the reply.
func (c *conversation) newID(prefix string, n int) string {
	return fmt.Sprintf("%s%s%02d", prefix, c.id, n)
}

// seal makes the proof that thinking came from here. What comes back is checked
// against it, as the services do.
func seal(text string) string {
	sum := sha256.Sum256([]byte("localmodel\x00" + text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// tagged matches what agents put around prompts: reminders and descriptions of
// the environment.
var tagged = regexp.MustCompile(`(?s)^\s*<([A-Za-z_-]+)[^>]*>.*</([A-Za-z_-]+)>\s*$`)

func isTagged(text string) bool {
	m := tagged.FindStringSubmatch(text)
	return m != nil && m[1] == m[2]
}

// look finds the prompt and what came after it.
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

// findPrompt sets prompt to the last text of the user, and returns its index, or
// -1. Texts before it, in the same message too, are prompts that got no answer, or
// an agent's own additions. What is tagged counts only if withTagged is set.
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

// tool returns the tool of that name, if it is offered.
func (c *conversation) tool(name string) (offered, bool) {
	for _, t := range c.tools {
		if t.name == name {
			return t, true
		}
	}
	return offered{name: name}, false
}

// usage estimates what a reply costs. A history that the client wants cached is
// taken to have been written to the cache when the conversation began and to be
// read from it ever since.
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

// A reply is what the model says, decided.
type reply struct {
	thinking, text string
	calls          []madeCall
	stop           string // length, refused, or empty
}

// A madeCall is a call of a tool with its arguments written out.
type madeCall struct {
	tool offered
	args string
}

// resolve decides which tools a turn calls and fills in what it refers to.
func (c *conversation) resolve(t Turn) reply {
	fill := strings.NewReplacer("{{result}}", c.result, "{{prompt}}", c.prompt)
	r := reply{thinking: fill.Replace(t.Thinking), text: fill.Replace(t.Text), stop: t.Stop}
	for _, call := range t.Calls {
		r.calls = append(r.calls, c.choose(call))
	}
	return r
}

// choose returns the first of a call's alternatives that is offered, or else the
// first.
func (c *conversation) choose(call Call) madeCall {
	choices := call.Any
	if len(choices) == 0 {
		choices = []Choice{{Tool: call.Tool, Args: call.Args, Raw: call.Raw}}
	}
	for _, choice := range choices {
		if t, ok := c.tool(choice.Tool); ok {
			return madeCall{t, choice.written()}
		}
	}
	return madeCall{offered{name: choices[0].Tool}, choices[0].written()}
}
