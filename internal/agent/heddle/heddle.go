// Package heddle puts a program that speaks the Heddle headless protocol behind the hub.
// docs/agents.md has the translation.
package heddle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	wire "github.com/seed-028515a8/maestro/internal/dialect/heddle"
)

const (
	maxInput = 8 << 20                // bytes of a line that programs read
	maxLine  = contracts.MaxLineBytes // bytes of a line that programs may write
)

// A Config is what a program is told when it starts. The protocol demands a model and
// the tools.
type Config struct {
	Model         string   // an id that the program understands
	Tools         []string // the only tools that the program may use
	MaxIterations int      // model calls for one prompt; 0 for the program's choice
}

// Parse splits the words after "heddle:" into the configuration and the command. Words
// of the forms model=NAME, tools=NAME,NAME and max_iterations=N may come before the
// command, which is not empty. Other words of the form NAME=VALUE before the command are
// errors, because they are likely to be misspelled.
func Parse(words []string) (c Config, argv []string, err error) {
	c = Config{Model: "default", Tools: []string{}}
	for i, word := range words {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case !ok || strings.ContainsAny(name, `/\`): // a path may contain =
			return c, words[i:], nil
		case value == "":
			return c, nil, fmt.Errorf("%s has no value", word)
		case name == "model":
			c.Model = value
		case name == "tools":
			c.Tools = strings.Split(value, ",")
		case name == "max_iterations":
			if c.MaxIterations, err = strconv.Atoi(value); err != nil || c.MaxIterations < 1 {
				return c, nil, fmt.Errorf("%s: want a number above 0", word)
			}
		default:
			return c, nil, fmt.Errorf("unknown option %s: the options are model=, tools= and max_iterations=", name)
		}
	}
	return c, nil, errors.New("there is no command after the configuration")
}

// New returns an agent that runs the program of o.
func New(o program.Options, c Config) *program.Agent {
	return program.New(o, dialectOf(o.Argv[0], c, waits{interrupt: 8 * time.Second, silence: time.Minute}))
}

// waits are time limits. Tests set other ones.
type waits struct {
	interrupt time.Duration // until an interrupted run has ended
	silence   time.Duration // at least, until a program without heartbeats is killed
}

func dialectOf(path string, c Config, w waits) program.Dialect {
	return program.Dialect{
		Name: "Heddle", MaxInput: maxInput, MaxLine: maxLine, Interrupt: w.interrupt, Prompted: true,
		Speak: func(p *program.Process, system string) program.Speaker {
			return &speaker{p: p, config: c, system: system, provider: filepath.Base(path), silence: w.silence}
		},
	}
}

// A speaker speaks with one process.
type speaker struct {
	p        *program.Process
	config   Config
	system   string
	provider string        // the program's name
	silence  time.Duration // as in waits
	sends    int           // prompts so far
	run      run
}

// Greeting implements [program.Speaker].
func (s *speaker) Greeting() []any {
	c := &wire.Config{
		Model: &s.config.Model, SystemPrompt: &s.system, Tools: &s.config.Tools,
		Extensions: []string{wire.ExtensionCallIDs, wire.ExtensionThinking},
	}
	if s.config.MaxIterations > 0 {
		c.MaxIterations = &s.config.MaxIterations
	}
	return []any{wire.Request{Type: wire.TypeInit, ID: initID, ProtocolVersion: new(wire.Version), Config: c}}
}

const initID = "init"

// Prompt implements [program.Speaker].
func (s *speaker) Prompt(text string) (send, cancel any) {
	s.sends++
	s.run = run{id: "send-" + strconv.Itoa(s.sends)}
	return wire.Request{Type: wire.TypeSend, ID: s.run.id, Message: &text},
		wire.Request{Type: wire.TypeCancel, ID: "cancel-" + strconv.Itoa(s.sends), TargetID: new(s.run.id)}
}

// Farewell implements [program.Speaker].
func (s *speaker) Farewell() any {
	return wire.Request{Type: wire.TypeShutdown, ID: wire.TypeShutdown}
}

// Watch implements [program.Speaker]. A program that sends heartbeats must not miss
// many of them.
func (s *speaker) Watch(silent time.Duration) {
	if limit := max(s.silence, 3*s.run.beat); s.run.beat > 0 && silent > limit {
		s.p.Kill(fmt.Errorf("it sent heartbeats, and then nothing for %v", limit))
	}
}

// Hear implements [program.Speaker]. Members of a wrong type count as absent.
func (s *speaker) Hear(text []byte) error {
	var m response
	if err := json.Unmarshal(text, &m); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			return err
		}
	}
	switch m.Type {
	case "":
		return errors.New("it has no type")
	case wire.TypeInitOK:
		s.initialized(&m)
	case wire.TypeEvent:
		if s.p.Run() != nil && m.SendID == s.run.id {
			s.run.seen = true
			s.event(&m.Event)
		}
	case wire.TypeResult:
		s.result(&m)
	}
	return nil
}

// initialized takes the answer to init. Only the major version must be ours; a part that
// is no number counts as 0.
func (s *speaker) initialized(m *response) {
	theirs, _, _ := strings.Cut(m.Version, ".")
	major, _ := strconv.Atoi(theirs)
	switch {
	case m.Error != nil:
		s.p.Refuse(refusal(m.Error))
	case major != 0:
		s.p.Refuse(fmt.Errorf("it speaks version %q of the protocol, and the server %s", abridge.Bytes(m.Version, maxName), wire.Version))
	case m.Session == "":
		s.p.Refuse(errors.New("it cannot be initialized: it gives no session"))
	default:
		s.p.Ready(cmp.Or(m.Profile.Model, s.config.Model), s.provider)
	}
}

// refusal returns the error of a start that the program refuses.
func refusal(e *wire.Error) error {
	return fmt.Errorf("it cannot be initialized: %s: %s", abridge.Bytes(e.Code, maxName), message(e))
}

// result takes the end of a run, or an error outside of runs.
func (s *speaker) result(m *response) {
	failure := m.Error
	if failure == nil && m.Status != wire.ResultOK {
		failure = &wire.Error{Message: "the agent gave no reason"}
	}
	r := s.p.Run()
	switch {
	case m.ID == initID && failure != nil:
		s.p.Refuse(refusal(failure))
	case r == nil:
	case m.ID == s.run.id:
		s.ended(r, m, failure)
	case m.ID == wire.UnknownID && failure != nil && !s.run.seen: // our prompt could not be read
		s.ended(r, m, failure)
	}
}

// ended ends the run with its result.
func (s *speaker) ended(r *program.Run, m *response, failure *wire.Error) {
	if failure == nil || s.run.held != nil && s.run.held.Message != failure.Message {
		s.flush()
	}
	if failure == nil && !s.run.said {
		s.p.Say(m.Response, false)
	}
	if m.Usage != nil && !s.run.counted {
		s.used(m.Usage)
	}
	s.p.EndResponse(contracts.Usage{})
	if failure == nil {
		r.Finish(nil)
		return
	}
	r.Finish(&contracts.Error{Code: contracts.CodeRuntimeFailed, Type: errorType(failure), Message: message(failure)})
}
