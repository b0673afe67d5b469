// Package chord puts a program that speaks the Chord headless protocol behind the hub.
// docs/agents.md has the translation.
package chord

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/dialect/chord"
)

// New returns an agent that runs the program of o.
func New(o program.Options) *program.Agent {
	return program.New(o, dialectOf(o.Argv[0], waits{
		interrupt: 8 * time.Second, poll: 5 * time.Second, local: time.Second, silence: time.Minute,
	}))
}

// waits are time limits. Tests set other ones.
type waits struct {
	interrupt time.Duration // until an interrupted run has ended
	poll      time.Duration // of silence, until the program is asked for its status
	local     time.Duration // likewise after a prompt that may be a command
	silence   time.Duration // until a program that does not answer is killed
}

func dialectOf(path string, w waits) program.Dialect {
	return program.Dialect{
		Name: "Chord", MaxInput: chord.MaxLine, MaxLine: chord.MaxLine, Interrupt: w.interrupt,
		Requests: []contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput},
		Resume:   func(session string) []string { return []string{"--resume", session} },
		Speak: func(p *program.Process, _ string) program.Speaker {
			return &speaker{p: p, provider: filepath.Base(path), wait: w}
		},
	}
}

// A speaker speaks with one process.
type speaker struct {
	p        *program.Process
	provider string // the program's name
	wait     waits
	run      run
}

// A run is what is known of the prompt that the program works on.
type run struct {
	command bool // the prompt may be a command, which the program runs without a model
	begun   bool // the program works on the prompt
	polled  bool // it was asked for its status and has not answered
	rests   int  // how often in a row it said that it has nothing to do

	said    string   // the last status about its activity
	todos   string   // the last status about its tasks
	failure string   // the last error; "" if there was none
	held    bool     // the error is not published yet
	running []string // calls that were approved and may still run; at most maxRunning
	open    map[kind]*question
}

// Greeting implements [program.Speaker].
func (s *speaker) Greeting() []any {
	return []any{chord.Command{Type: chord.CommandSubscribe, Events: []string{
		chord.TypeAssistantMessage, chord.TypeConfirmRequest, chord.TypeQuestionRequest, chord.TypeHandoffRequest,
		chord.TypeIdle, chord.TypeError, chord.TypeActivity, chord.TypeAgentDone, chord.TypeDoneCompletion,
		chord.TypeInfo, chord.TypeToast, chord.TypeTodos,
	}}}
}

// Prompt implements [program.Speaker].
func (s *speaker) Prompt(text string) (send, cancel any) {
	s.run = run{command: strings.HasPrefix(strings.TrimSpace(text), "/"), open: map[kind]*question{}}
	return chord.Command{Type: chord.CommandSend, Content: text}, chord.Command{Type: chord.CommandCancel}
}

// Farewell implements [program.Speaker]. A program ends with its input.
func (s *speaker) Farewell() any { return nil }

// Watch implements [program.Speaker]. A program answers at any time when it is asked for
// its status, so one that does not is dead.
func (s *speaker) Watch(silent time.Duration) {
	poll := s.wait.poll
	if s.run.command && !s.run.begun {
		poll = s.wait.local
	}
	switch {
	case silent > s.wait.silence:
		s.p.Kill(fmt.Errorf("it did not tell its status for %v", s.wait.silence))
	case silent >= poll && !s.run.polled:
		s.poll()
	}
}

func (s *speaker) poll() {
	s.run.polled = true
	s.p.Send(chord.Command{Type: chord.CommandStatus})
}

// Hear implements [program.Speaker]. Members of a wrong type count as absent.
func (s *speaker) Hear(text []byte) error {
	var e chord.Envelope
	if err := decode(text, &e); err != nil {
		return err
	}
	if e.Type == "" {
		return errors.New("it has no type")
	}
	switch e.Type {
	case chord.TypeReady:
		ready := payload[chord.Ready](e)
		s.p.Session(ready.SessionID)
		s.p.Ready(s.provider, "chord")
	case chord.TypeInfo:
		info := payload[chord.Info](e)
		s.remark(info.AgentID, info.Message)
	case chord.TypeToast:
		toast := payload[chord.Toast](e)
		s.remark(toast.AgentID, toast.Message)
	case chord.TypeConfirmRequest:
		s.confirm(payload[chord.ConfirmRequest](e))
	case chord.TypeHandoffRequest:
		s.handoff(payload[handoffRequest](e))
	case chord.TypeQuestionRequest:
		s.question(payload[chord.QuestionRequest](e))
	default:
		if r := s.p.Run(); r != nil { // clients do not see what a program does between runs
			s.event(r, e)
		}
	}
	return nil
}

// payload returns the payload of an envelope.
func payload[T any](e chord.Envelope) (v T) {
	_ = decode(e.Payload, &v) // the envelope was valid JSON
	return v
}

// decode decodes JSON, but leaves out what has a wrong type.
func decode(text []byte, v any) error {
	err := json.Unmarshal(text, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}
