package tool

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/seed-028515a8/maestro/workspace"
)

// Options say where and how the tools work. Workspace is required; the zero
// value of each other field is ready.
type Options struct {
	Workspace *workspace.Workspace

	// Shell runs the command lines of bash. Empty means $SHELL, else /bin/bash,
	// else sh.
	Shell string

	// EnvPass are the names of variables that commands get although they look
	// like those of credentials, and Hosted leaves out all but a few of the
	// others.
	EnvPass []string
	Hosted  bool
}

// A Kit is the tools of one session, which remember together what the model has
// read: it may only change what it has seen. It starts nothing that outlives a
// call, and all its files lie in the workspace.
type Kit struct {
	Options
	seen seen

	// writing is held by a tool from its look at a file until it has changed it,
	// so that of two changes at once none is lost.
	writing sync.Mutex
}

// New returns the tools of a session in which nothing was read.
func New(o Options) *Kit { return &Kit{Options: o} }

// Tools returns bash, read, write, edit, glob and grep. Their labels repeat args:
// who shows them hides secrets in those first.
func (k *Kit) Tools() []Tool {
	return []Tool{k.bash(), k.read(), k.write(), k.edit(), k.glob(), k.grep()}
}

// A refusal is a failure in the words that the model is told, so that it can do
// something about it.
type refusal string

func (r refusal) Error() string { return string(r) }

// A run is what a tool does, with refusals among the errors.
type run func(ctx context.Context, args json.RawMessage, out func(text string) error) (Result, error)

// told makes refusals results.
func told(do run) run {
	return func(ctx context.Context, args json.RawMessage, out func(text string) error) (Result, error) {
		res, err := do(ctx, args, out)
		if _, ok := errors.AsType[refusal](err); ok {
			return refused(err), nil
		}
		return res, err
	}
}

// refused is the result that a refusal is; one without a text if err is none.
func refused(err error) Result {
	r, ok := errors.AsType[refusal](err)
	return Result{Text: string(r), IsError: ok}
}
