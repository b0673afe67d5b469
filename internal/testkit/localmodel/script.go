package localmodel

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// maxEchoRunes bounds a prompt or a result in the answer.
const maxEchoRunes = 2000

// The reasons for an early end of a turn.
const (
	stopLength  = "length"
	stopRefused = "refused"
)

// A Case has the answers to the prompts that contain Match.
type Case struct {
	Match string `json:"match,omitempty"`
	Turns []Turn `json:"turns"`
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

// A Call calls a tool.
type Call struct {
	Tool string          `json:"tool"`           // of a|b the first that the client offers
	Args json.RawMessage `json:"args,omitempty"` // sent unchanged; absent means {}
}

// LoadScript reads a script from a file of JSON. Unknown keys and unknown faults are
// errors.
func LoadScript(path string) ([]Case, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var script []Case
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err = dec.Decode(&script)
	for _, c := range script {
		for _, t := range c.Turns {
			err = errors.Join(err, t.check())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return script, nil
}

func (t Turn) check() error {
	if t.Stop != "" && t.Stop != stopLength && t.Stop != stopRefused {
		return fmt.Errorf("unknown stop %q", t.Stop)
	}
	for _, call := range t.Calls {
		var object map[string]any
		if call.Tool == "" || call.Args != nil && json.Unmarshal(call.Args, &object) != nil {
			return fmt.Errorf("a call of %q whose arguments are no JSON object: %s", call.Tool, call.Args)
		}
	}
	if f := t.Fault; f != nil {
		if _, refused := refusals[f.Kind]; !refused && !slices.Contains(broken, f.Kind) {
			return fmt.Errorf("unknown fault %q", f.Kind)
		}
	}
	return nil
}

// turn returns the turn that answers a conversation: of the script, else of the
// prompt.
func (s *Server) turn(c *conversation) (t Turn) {
	turns := program(c.prompt)
	at := slices.IndexFunc(s.opts.Script, func(scripted Case) bool { return strings.Contains(c.prompt, scripted.Match) })
	if at >= 0 {
		turns = s.opts.Script[at].Turns
	}
	if c.step < len(turns) {
		t = turns[c.step]
	}
	if t.Thinking != "" || t.Text != "" || len(t.Calls) > 0 {
		return t
	}
	switch {
	case c.called:
		t.Text = "The tool answered: " + abridge.Chars(strings.TrimSpace(c.result), maxEchoRunes)
	case turns != nil:
		t.Text = "That was all."
	case c.prompt == "":
		t.Text = "Nothing was said."
	default:
		t.Text = "You said: " + abridge.Chars(c.prompt, maxEchoRunes)
	}
	return t
}

// verbs are the commands of a program.
var verbs = []string{"say", "think", "call", "fault", "stop", "then"}

// program returns the turns that a prompt says, nil if its first line is not a
// command.
func program(prompt string) []Turn {
	turns := []Turn{{}}
	var text *string // to which a line without a command is added
	for i, line := range strings.Split(strings.TrimSpace(prompt), "\n") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		known := slices.Contains(verbs, verb)
		switch {
		case !known && i == 0:
			return nil
		case !known && text != nil:
			*text += "\n" + line
		}
		if !known {
			continue
		}
		turn := &turns[len(turns)-1]
		if verb == "then" || len(turn.Calls) > 0 && verb != "call" && verb != "stop" {
			turns, text = append(turns, Turn{}), nil
			turn = &turns[len(turns)-1]
		}
		var err error
		switch verb {
		case "say":
			text = added(&turn.Text, rest)
		case "think":
			text = added(&turn.Thinking, rest)
		case "call":
			name, args, _ := strings.Cut(rest, " ")
			turn.Calls, text = append(turn.Calls, Call{name, json.RawMessage(cmp.Or(strings.TrimSpace(args), "{}"))}), nil
		case "fault":
			kind, times, _ := strings.Cut(rest, " ")
			turn.Fault = &Fault{Kind: FaultKind(kind)}
			turn.Fault.Times, err = strconv.Atoi(cmp.Or(strings.TrimSpace(times), "1"))
		case "stop":
			turn.Stop = rest
		}
		if err = cmp.Or(err, turn.check()); err != nil { // which a program can learn only so
			*turn = Turn{Text: fmt.Sprintf("I cannot do that: %v.", err)}
		}
	}
	return turns
}

// added appends a line to a text and returns it.
func added(text *string, line string) *string {
	if *text != "" {
		*text += "\n"
	}
	*text += line
	return text
}
