// Package tool holds the tools of a coding agent in a workspace: they run commands,
// and read, write, edit and find files.
package tool

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// A Tool is something the loop can do. Any goroutine may call its functions.
type Tool struct {
	model.Tool

	// Title is the name for people, such as Bash.
	Title string

	// Gated says that the tool changes something: a rule or a person decides first.
	Gated bool

	// Repeats says that a failed call of a gated tool may be repeated without a
	// question. Tools that are not gated may always be repeated.
	Repeats bool

	// Brief says in a few words what a call did and what it is doing, such as
	// "Ran ls" and "Running ls". Args may be anything.
	Brief func(args json.RawMessage) (label, action string)

	// Look returns a sentence about what Run would do now, as far as the arguments
	// do not say it. People see it when they are asked. If Run could not do it, the
	// result has IsError, and nobody need be asked. Look changes nothing. It is nil
	// for tools that cannot tell.
	Look func(args json.RawMessage) Result

	// Run runs a call. Run's own goroutine calls out with output as it comes. The
	// result repeats that output as far as there is room. A failure that the model
	// can act on is a result with IsError; an error ends the run.
	Run func(ctx context.Context, args json.RawMessage, out func(text string) error) (Result, error)
}

// A Result is what the model is told.
type Result struct {
	Text    string
	Images  []model.Image
	IsError bool
}

// A Kit is the tools of one session. The tools share what the model has read: the
// model may only change what it has seen. A Kit starts nothing that outlives a
// call, and all its files lie in the workspace. All fields but Workspace may be zero.
type Kit struct {
	Workspace *workspace.Workspace

	// Shell runs the command lines of bash. Empty is $SHELL, else /bin/bash, else sh.
	Shell string

	// EnvPass names variables that commands get although they look like credentials.
	EnvPass []string

	// Hosted leaves out all but a few of the other variables.
	Hosted bool

	// mu is held from the look at a file until it has changed: no change is lost.
	mu   sync.Mutex
	seen map[string][sha256.Size]byte // what the model knows that files hold, by path with links resolved
}

// Tools returns bash, read, write, edit, glob and grep. Their labels repeat
// arguments: the caller hides secrets in the arguments first.
func (k *Kit) Tools() []Tool {
	return []Tool{k.bash(), k.read(), k.write(), k.edit(), k.glob(), k.grep()}
}

// define completes a tool that has arguments of type A. did and doing are its verb in
// labels. about returns the words after it, other are those of invalid arguments.
func define[A any](t Tool, did, doing, other string, about func(a *A) string,
	run func(ctx context.Context, a *A, out func(text string) error) (Result, error),
) Tool {
	t.Schema = SchemaOf[A]()
	t.Brief = func(raw json.RawMessage) (label, action string) {
		words := other
		if a := new(A); Decode(raw, a) == nil && about(a) != "" {
			words = brief(about(a))
		}
		return did + " " + words, doing + " " + words
	}
	t.Run = func(ctx context.Context, raw json.RawMessage, out func(text string) error) (Result, error) {
		return call(raw, func(a *A) (Result, error) { return run(ctx, a, out) })
	}
	return t
}

// call runs a call with its arguments. A refusal becomes a result.
func call[A any](raw json.RawMessage, run func(a *A) (Result, error)) (res Result, err error) {
	a := new(A)
	if err = Decode(raw, a); err == nil {
		res, err = run(a)
	}
	if r, ok := errors.AsType[refusal](err); ok {
		return Result{Text: string(r), IsError: true}, nil
	}
	return res, err
}

// A refusal is a failure in words for the model, which can act on it.
type refusal string

func (r refusal) Error() string { return string(r) }
