// Package tool holds what an agent loop can do in a workspace: run commands,
// read, write and edit files, and find them.
package tool

import (
	"context"
	"encoding/json"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// A Tool is something the loop can do for a model. Its functions may be called
// from any goroutine.
type Tool struct {
	model.Tool

	// Title is the name for people, such as Bash.
	Title string

	// Gated says that it changes something: a person is asked first, unless a
	// rule decides.
	Gated bool

	// Repeats says of a gated tool that a call which failed may be made again
	// without a question. Others may: they change nothing.
	Repeats bool

	// Brief says in a few words what a call did and what it is doing, such as
	// "Ran ls" and "Running ls". Args may be anything.
	Brief func(args json.RawMessage) (label, action string)

	// Look says what Run would do now, as far as the arguments do not say it, in a
	// sentence for those who are asked first. If Run could not do it, that is the
	// result, with IsError, and nobody need be asked. It changes nothing. It is nil
	// for tools that can't tell.
	Look func(args json.RawMessage) Result

	// Run does it. out shows output as it comes and may be called from Run's own
	// goroutine only; what is passed to it is also in the result, as far as that
	// has room. A failure that the model can do something about is a result with
	// IsError; an error ends the run.
	Run func(ctx context.Context, args json.RawMessage, out func(text string) error) (Result, error)
}

// A Result is what the model is told.
type Result struct {
	Text    string
	Images  []model.Image
	IsError bool
}
