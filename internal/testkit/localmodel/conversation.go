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

// A request has the members of a request in any of the forms.
type request struct {
	Model         string          `json:"model"`
	Stream        bool            `json:"stream"`
	MaxTokens     *int64          `json:"max_tokens"`
	Messages      []message       `json:"messages"` // of Anthropic Messages and Chat Completions
	Input         json.RawMessage `json:"input"`    // of Responses
	Include       []string        `json:"include"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"` // in Chat Completions
	} `json:"tools"`
}

type message struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
}

// A speaker is the origin of an entry.
type speaker int

const (
	user speaker = iota
	model
	tool
)

// An entry is one part of a conversation, independent of the wire form.
type entry struct {
	by      speaker
	text    string // a text, or the result of a tool
	call    string // ID of the call made or answered; empty without a call
	message int    // index of its message
}

// A conversation is a parsed request to a model.
type conversation struct {
	request
	id    string // derived from the request, so that equal requests get equal IDs
	runes int    // characters of a piece of a text
	size  int    // of the request in bytes

	entries []entry
	cached  bool // the client asks for its history to be cached

	// Derived from the entries.
	prompt string // the last text of the user that the agent did not add
	step   int    // how many times the model has spoken after prompt
	spoken bool   // the model has spoken before
	result string // of the last called tool, if the model has not spoken since
	called bool   // result is set
}

// newConversation reads a request. A refusal says what is wrong with it.
func newConversation(body []byte, form wire) (*conversation, *failure) {
	sum := sha256.Sum256(body)
	c := &conversation{id: hex.EncodeToString(sum[:10]), size: len(body)}
	if json.Unmarshal(body, &c.request) != nil {
		return c, invalid("The request body is not valid JSON.")
	}
	c.Model = cmp.Or(c.Model, defaultModel)
	c.cached = form.service > 0 || strings.Contains(string(body), `"cache_control"`)
	refusal := form.read(c)
	if refusal == nil && !c.Stream {
		refusal = invalid("Only streams are served here.")
	}
	c.look()
	return c, refusal
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

// plainText returns the text of a content that is a string or a list of parts.
func plainText(content json.RawMessage) string { return strings.Join(texts(content), "\n") }

// texts returns the texts of such a content.
func texts(content json.RawMessage) []string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []string{text}
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &parts) // other JSON has no text
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		texts = append(texts, p.Text)
	}
	return texts
}

// tagged matches the texts that agents add to prompts: reminders and
// descriptions of the environment.
var tagged = regexp.MustCompile(`(?s)^\s*<([A-Za-z_-]+)[^>]*>.*</([A-Za-z_-]+)>\s*$`)

func isTagged(text string) bool {
	m := tagged.FindStringSubmatch(text)
	return m != nil && m[1] == m[2]
}

// look sets the fields that are derived from the entries. Texts of the user before the
// prompt, also in the same message, are unanswered prompts.
func (c *conversation) look() {
	at := -1
	for i, e := range slices.Backward(c.entries) {
		if e.by == user && strings.TrimSpace(e.text) != "" && !isTagged(e.text) {
			at, c.prompt = i, e.text
			break
		}
	}
	for i, e := range c.entries {
		switch {
		case e.by == model:
			if i > at && (i == 0 || c.entries[i-1].by != model) {
				c.step++
			}
			c.spoken, c.called, c.result = true, false, ""
		case e.by == tool && i > at:
			c.called, c.result = true, e.text
		}
	}
}

// checkCalls checks that every call has a result and every result a call. With
// adjacent, the results must begin the message after the call. unexpected and
// unanswered are the refusals of a result and of a call, which they name.
func (c *conversation) checkCalls(adjacent bool, unexpected, unanswered string) *failure {
	var open []entry // calls without a result
	made := map[string]bool{}
	for _, e := range c.entries {
		if e.by == tool {
			answers := func(call entry) bool { return call.call == e.call }
			if !made[e.call] || adjacent && !slices.ContainsFunc(open, answers) {
				return invalid(unexpected, e.call)
			}
			open = slices.DeleteFunc(open, answers)
			continue
		}
		if adjacent && len(open) > 0 && e.message != open[0].message {
			break
		}
		if e.call != "" {
			open = append(open, e)
			made[e.call] = true
		}
	}
	if len(open) > 0 {
		return invalid(unanswered, open[0].call)
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
	tokens := func(bytes int) int { return max(1, (bytes+3)/4) }
	input, output = tokens(c.size), tokens(len(r.thinking)+len(r.text))
	for _, call := range r.calls {
		output += tokens(len(call.args) + len(call.tool))
	}
	prefix := input * 3 / 4
	switch {
	case c.cached && c.spoken:
		read = prefix
	case c.cached:
		written = prefix
	}
	return input - read - written, output, read, written
}

// A reply is what the model is going to say.
type reply struct {
	thinking, text string
	calls          []madeCall
	stop           string // length, refused, or empty
}

// A madeCall is a tool call with its final arguments.
type madeCall struct{ tool, args string }

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

// resolve picks the tools of a turn and fills in the placeholders.
func (c *conversation) resolve(t Turn) reply {
	fill := strings.NewReplacer("{{result}}", c.result, "{{prompt}}", c.prompt)
	r := reply{thinking: fill.Replace(t.Thinking), text: fill.Replace(t.Text), stop: t.Stop}
	for _, call := range t.Calls {
		names := strings.Split(call.Tool, "|")
		offered := max(0, slices.IndexFunc(names, func(name string) bool {
			for _, t := range c.Tools {
				if name == t.Name || name == t.Function.Name {
					return true
				}
			}
			return false
		}))
		r.calls = append(r.calls, madeCall{names[offered], cmp.Or(string(call.Args), "{}")})
	}
	return r
}
