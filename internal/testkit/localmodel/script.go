package localmodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Limits of a script.
const (
	maxScriptBytes = 32 << 20
	maxEchoRunes   = 2000 // of a prompt or a result in the answer
)

// The reasons for an early end of a turn.
const (
	stopLength  = "length"
	stopRefused = "refused"
)

// A Script maps prompts to answers. The methods of a [Server] only read it.
type Script struct {
	Cases   []Case `json:"cases"`
	Default *Case  `json:"default,omitempty"` // for prompts without a case
}

// A Case has the answers to a prompt. A case without match and regexp applies
// to every prompt.
type Case struct {
	Match  string `json:"match,omitempty"`  // a part of the prompt
	Regexp string `json:"regexp,omitempty"` // an expression that matches the prompt, in Go's syntax
	Turns  []Turn `json:"turns"`

	pattern *regexp.Regexp
}

// A Turn is one answer of the model. In its texts {{result}} is the result of
// the last tool, and {{prompt}} is the prompt.
type Turn struct {
	Thinking string `json:"thinking,omitempty"`
	Text     string `json:"text,omitempty"`
	Calls    []Call `json:"calls,omitempty"`
	Stop     string `json:"stop,omitempty"` // length or refused; empty: depends on whether there are calls
	Fault    *Fault `json:"fault,omitempty"`
}

// A Call calls the first tool of Any that the client offers, or Tool if Any is
// empty.
type Call struct {
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"` // an object; absent means {}
	Raw  string          `json:"raw,omitempty"`  // instead of Args; sent unchanged, JSON or not
	Any  []Call          `json:"any,omitempty"`  // alternatives, without alternatives of their own
}

// choices returns the alternatives of a call.
func (c Call) choices() []Call {
	if len(c.Any) == 0 {
		return []Call{c}
	}
	return c.Any
}

// written returns the arguments as the model writes them.
func (c Call) written() string {
	switch {
	case c.Raw != "":
		return c.Raw
	case len(c.Args) == 0:
		return "{}"
	}
	return string(c.Args)
}

// LoadScript reads a script from a file of at most 32 MiB and checks it.
func LoadScript(path string) (*Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxScriptBytes+1))
	if err != nil {
		return nil, err
	}
	s, err := ParseScript(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ParseScript parses and checks a script. Unknown keys, unknown faults and
// invalid expressions are errors.
func ParseScript(data []byte) (*Script, error) {
	if len(data) > maxScriptBytes {
		return nil, fmt.Errorf("longer than %d bytes", maxScriptBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	s := &Script{}
	if err := dec.Decode(s); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one JSON value")
	}
	return s, s.Check()
}

// Check prepares a script that was made in Go and reports its errors.
// LoadScript and ParseScript check their scripts themselves.
func (s *Script) Check() error {
	for i := range s.Cases {
		if err := s.Cases[i].check(); err != nil {
			return fmt.Errorf("cases[%d]: %w", i, err)
		}
	}
	if s.Default != nil {
		if err := s.Default.check(); err != nil {
			return fmt.Errorf("default: %w", err)
		}
	}
	return nil
}

func (c *Case) check() (err error) {
	if c.pattern, err = regexp.Compile(c.Regexp); err != nil {
		return err
	}
	if len(c.Turns) == 0 {
		return errors.New("no turns")
	}
	for i, t := range c.Turns {
		if err := t.check(); err != nil {
			return fmt.Errorf("turns[%d]: %w", i, err)
		}
	}
	return nil
}

func (t Turn) check() error {
	if t.Stop != "" && t.Stop != stopLength && t.Stop != stopRefused {
		return fmt.Errorf("unknown stop %q", t.Stop)
	}
	for i, call := range t.Calls {
		alone := call.Tool == "" && call.Args == nil && call.Raw == ""
		for _, choice := range call.choices() {
			switch {
			case len(call.Any) > 0 && (!alone || len(choice.Any) > 0):
				return fmt.Errorf("calls[%d]: any stands alone", i)
			case choice.Tool == "":
				return fmt.Errorf("calls[%d]: no tool", i)
			case len(choice.Args) > 0 && !isObject(choice.Args):
				return fmt.Errorf("calls[%d]: the args are not an object", i)
			}
		}
	}
	return t.Fault.check()
}

func isObject(text json.RawMessage) bool {
	return json.Valid(text) && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
}

func (c *Case) applies(prompt string) bool {
	return strings.Contains(prompt, c.Match) && (c.Regexp == "" || c.pattern != nil && c.pattern.MatchString(prompt))
}

// turn returns the turn that answers a conversation, and a key for counting the
// faults of that turn.
func (s *Server) turn(c *conversation) (t Turn, key string) {
	key = fmt.Sprintf("%s\x00%d", abridge.Bytes(c.prompt, 1000), c.step)
	if turns, ok := s.scripted(c.prompt); ok {
		if c.step < len(turns) {
			return turns[c.step], key
		}
		return Turn{Text: "The script has nothing more to say to this prompt."}, key
	}
	turns, ok := program(c.prompt)
	if ok && c.step < len(turns) {
		t = turns[c.step]
	}
	if t.Thinking == "" && t.Text == "" && len(t.Calls) == 0 {
		t.Text, t.Calls = unprompted(c, ok)
	}
	return t, key
}

// unprompted returns the answer if neither the script nor the prompt says one.
// ended says that a program ran before.
func unprompted(c *conversation, ended bool) (text string, calls []Call) {
	switch {
	case c.called:
		return "The tool answered: " + abridge.Chars(strings.TrimSpace(c.result), maxEchoRunes), nil
	case ended:
		return "That was all.", nil
	case strings.Contains(c.prompt, "USE_TOOL"):
		return useTool(c)
	case c.prompt == "":
		return "Nothing was said.", nil
	}
	return "You said: " + abridge.Chars(c.prompt, maxEchoRunes), nil
}

// scripted returns the turns of the script for a prompt.
func (s *Server) scripted(prompt string) ([]Turn, bool) {
	if s.opts.Script == nil {
		return nil, false
	}
	for i := range s.opts.Script.Cases {
		if c := &s.opts.Script.Cases[i]; c.applies(prompt) {
			return c.Turns, true
		}
	}
	if d := s.opts.Script.Default; d != nil {
		return d.Turns, true
	}
	return nil, false
}
