package localmodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// echoCommand is the command that USE_TOOL runs.
const echoCommand = "echo hello from the local model"

// program parses a prompt in the language of the package comment. ok is false
// if the first line is not a command.
func program(prompt string) (turns []Turn, ok bool) {
	lines := strings.Split(strings.TrimSpace(prompt), "\n")
	if verb, _ := splitVerb(lines[0]); verb == "" {
		return nil, false
	}
	p := &reader{turns: []Turn{{}}}
	for _, line := range lines {
		p.line(line)
	}
	return p.turns, true
}

// A reader turns lines into turns.
type reader struct {
	turns []Turn
	text  *string // the text to which a line without a command is added
}

// splitVerb returns the command of a line and the rest. Without a command verb
// is "".
func splitVerb(line string) (verb, rest string) {
	verb, rest, _ = strings.Cut(strings.TrimSpace(line), " ")
	switch verb {
	case "say", "think", "call", "fault", "stop", "then":
		return verb, strings.TrimSpace(rest)
	}
	return "", ""
}

func (p *reader) line(line string) {
	verb, rest := splitVerb(line)
	turn := &p.turns[len(p.turns)-1]
	adds := verb == "" || verb == "call" || verb == "stop"
	if verb == "then" || !adds && len(turn.Calls) > 0 {
		p.turns, p.text = append(p.turns, Turn{}), nil
		turn = &p.turns[len(p.turns)-1]
	}
	problem := ""
	switch verb {
	case "":
		if p.text != nil {
			*p.text += "\n" + line
		}
	case "say":
		p.add(&turn.Text, rest)
	case "think":
		p.add(&turn.Thinking, rest)
	case "call":
		p.text = nil
		problem = turn.call(rest)
	case "fault":
		problem = turn.fail(rest)
	case "stop":
		if turn.Stop = rest; turn.check() != nil {
			turn.Stop, problem = "", fmt.Sprintf("I know no reason %s to stop.", abridge.Chars(rest, 40))
		}
	}
	if problem != "" { // which the reader has no other way to report
		p.add(&turn.Text, problem)
	}
}

// add appends a line to a text, which becomes the current one.
func (p *reader) add(text *string, line string) {
	if *text != "" {
		*text += "\n"
	}
	*text += line
	p.text = text
}

// call adds a call to the turn, or returns why it cannot.
func (t *Turn) call(rest string) (problem string) {
	names, args, _ := strings.Cut(rest, " ")
	args = cmp.Or(strings.TrimSpace(args), "{}")
	if names == "" || !isObject(json.RawMessage(args)) {
		return fmt.Sprintf("I cannot make this call, whose arguments are no JSON object: %s", abridge.Chars(rest, 200))
	}
	var call Call
	for name := range strings.SplitSeq(names, "|") {
		call.Any = append(call.Any, Call{Tool: name, Args: json.RawMessage(args)})
	}
	t.Calls = append(t.Calls, call)
	return ""
}

// fail makes the turn fail, or returns why it cannot.
func (t *Turn) fail(rest string) (problem string) {
	kind, times, given := strings.Cut(rest, " ")
	f := &Fault{Kind: FaultKind(kind), Times: 1}
	if given {
		var err error
		if f.Times, err = strconv.Atoi(strings.TrimSpace(times)); err != nil {
			return fmt.Sprintf("I cannot fail %s times.", abridge.Chars(times, 40))
		}
	}
	if err := f.check(); err != nil {
		return fmt.Sprintf("I cannot fail: %v.", err)
	}
	t.Fault = f
	return ""
}

// runners has the names that agents give to a tool that runs commands.
var runners = map[string]bool{
	"bash": true, "shell": true, "exec": true, "exec_command": true, "execute": true, "execute_command": true,
	"run_command": true, "run_shell_command": true, "run_terminal_cmd": true, "run_in_terminal": true,
	"shell_command": true, "terminal": true,
}

// useTool calls the first offered tool that runs commands.
func useTool(c *conversation) (text string, calls []Call) {
	for _, t := range c.tools {
		name := strings.ToLower(t.name)
		if i := strings.LastIndex(name, "__"); i >= 0 {
			name = name[i+2:] // an MCP tool has its server's name in front
		}
		if runners[name] {
			return "I will run a command.", []Call{{Tool: t.name, Args: echoArgs(t.schema)}}
		}
	}
	return "No tool that runs commands is on offer.", nil
}

// echoArgs returns arguments with a harmless command for a tool's schema.
func echoArgs(schema json.RawMessage) json.RawMessage {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // without a schema the key is "command"
	key := "command"
	for _, name := range []string{"command", "cmd", "script", "commandLine"} {
		if _, ok := s.Properties[name]; ok {
			key = name
			break
		}
	}
	args := map[string]any{key: echoCommand}
	if s.Properties[key].Type == "array" {
		args[key] = []string{"sh", "-c", echoCommand}
	}
	for _, name := range s.Required {
		if _, given := args[name]; !given && s.Properties[name].Type == "string" {
			args[name] = "say hello"
		}
	}
	if _, ok := s.Properties["description"]; ok {
		args["description"] = "say hello"
	}
	return encode(args)
}
