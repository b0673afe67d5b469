package localmodel

import (
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

func (p *reader) turn() *Turn { return &p.turns[len(p.turns)-1] }

// next begins a turn.
func (p *reader) next() {
	p.turns = append(p.turns, Turn{})
	p.text = nil
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
	if verb != "call" && verb != "" && verb != "stop" && len(p.turn().Calls) > 0 {
		p.next()
		if verb == "then" {
			return
		}
	}
	switch verb {
	case "":
		if p.text != nil {
			*p.text += "\n" + line
		}
	case "say":
		p.text = &p.turn().Text
		p.add(rest)
	case "think":
		p.text = &p.turn().Thinking
		p.add(rest)
	case "call":
		p.call(rest)
	case "fault":
		p.fault(rest)
	case "stop":
		p.stop(rest)
	case "then":
		p.next()
	}
}

// add appends a line to the current text.
func (p *reader) add(text string) {
	if *p.text != "" {
		*p.text += "\n"
	}
	*p.text += text
}

// complain adds an error message to the turn. The reader has no other way to
// report it.
func (p *reader) complain(format string, args ...any) {
	p.text = &p.turn().Text
	p.add(fmt.Sprintf(format, args...))
}

func (p *reader) call(rest string) {
	p.text = nil
	names, args, _ := strings.Cut(rest, " ")
	args = strings.TrimSpace(args)
	if args == "" {
		args = "{}"
	}
	if names == "" || !isObject(json.RawMessage(args)) {
		p.complain("I cannot make this call, whose arguments are no JSON object: %s", abridge.Chars(rest, 200))
		return
	}
	var call Call
	for name := range strings.SplitSeq(names, "|") {
		call.Any = append(call.Any, Call{Tool: name, Args: json.RawMessage(args)})
	}
	p.turn().Calls = append(p.turn().Calls, call)
}

func (p *reader) fault(rest string) {
	kind, times, _ := strings.Cut(rest, " ")
	f := &Fault{Kind: FaultKind(kind), Times: 1}
	if times != "" {
		n, err := strconv.Atoi(strings.TrimSpace(times))
		if err != nil {
			p.complain("I cannot fail %s times.", abridge.Chars(times, 40))
			return
		}
		f.Times = n
	}
	if err := f.check(); err != nil {
		p.complain("I cannot fail: %v.", err)
		return
	}
	p.turn().Fault = f
}

func (p *reader) stop(reason string) {
	if (Turn{Stop: reason}).check() != nil {
		p.complain("I know no reason %s to stop.", abridge.Chars(reason, 40))
		return
	}
	p.turn().Stop = reason
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
