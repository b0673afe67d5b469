package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/agent/command"
	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/proc"
)

const (
	// Bounds on how long a command may take, in milliseconds.
	defaultTimeout = 120_000
	maxTimeout     = 3_600_000

	// maxCommandBytes keeps a command line below what systems accept as one
	// argument, which is 128 KiB on Linux.
	maxCommandBytes = 100_000

	// maxOutputBytes bounds what the model is told of a command's output: half
	// of it from the beginning, half from the end.
	maxOutputBytes = 30_000
)

// errTimeout is why a command was ended that took too long.
var errTimeout = errors.New("timeout")

type bashArgs struct {
	command     string
	timeout     int
	description string // for who reads the args; labels show what really runs
}

func (a *bashArgs) list() []arg {
	return []arg{
		{name: "command", to: &a.command, required: true, min: 1, about: "The command line for the shell"},
		{name: "timeout_ms", to: &a.timeout, min: 1, max: maxTimeout, about: "Milliseconds after which the command is ended; 120000 if not given"},
		{name: "description", to: &a.description, about: "What the command does, in five to ten words"},
	}
}

func (a *bashArgs) decode(raw json.RawMessage) error {
	a.timeout = defaultTimeout
	err := decode(raw, a.list()...)
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(a.command) == "":
		return refusal("The argument command is empty.")
	case len(a.command) > maxCommandBytes:
		return refusal(fmt.Sprintf("The command has %d bytes, and at most %d are allowed. Write a script to a file and run that.", len(a.command), maxCommandBytes))
	case strings.ContainsRune(a.command, 0):
		return refusal("The command contains a NUL character.")
	}
	return nil
}

// bash runs command lines.
func (k *Kit) bash() Tool {
	return Tool{
		Tool: model.Tool{
			Name: "bash",
			Description: "Runs a command line in a new shell, in the workspace's root directory, and returns its output and exit code. " +
				"Nothing is kept from call to call: no directory, no variables, no background processes. Standard input is empty. " +
				fmt.Sprintf("Of more than %d bytes of output you get the beginning and the end. ", maxOutputBytes) +
				"To read, write, edit or find files use the other tools.",
			Schema: schemaOf(new(bashArgs).list()),
		},
		Title: "Bash", Gated: true,
		Brief: func(raw json.RawMessage) (label, action string) {
			var a bashArgs
			if a.decode(raw) != nil {
				return "Ran a command", "Running a command"
			}
			line := brief(strings.TrimSpace(a.command))
			return "Ran " + line, "Running " + line
		},
		Run: told(k.runBash),
	}
}

func (k *Kit) runBash(ctx context.Context, raw json.RawMessage, out func(text string) error) (Result, error) {
	var a bashArgs
	if err := a.decode(raw); err != nil {
		return Result{}, err
	}
	limit := time.Duration(a.timeout) * time.Millisecond
	timed, stop := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer stop()

	shown := window{half: maxOutputBytes / 2}
	var unheard error
	c := command.Command{Shell: k.Shell, Line: a.command, Dir: k.Workspace.Root(), Env: proc.Environ(os.Environ(), k.Hosted, k.EnvPass)}
	exit, err := c.Run(timed, func(text string) error {
		shown.add(text)
		unheard = out(text)
		return unheard
	})
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case unheard != nil:
		return Result{}, unheard
	case err != nil && !errors.Is(err, errTimeout):
		return Result{}, refusal("The command could not be run: " + valid(err.Error()) + ".")
	}
	how := ending(exit, err, limit)
	if how != "" && shown.size > 0 { // else the result is all that there is to show
		if err := out("\n" + how); err != nil {
			return Result{}, err
		}
	}
	return outcome(&shown, how), nil
}

// ending says how a command ended, but for success.
func ending(exit command.Exit, err error, limit time.Duration) string {
	switch {
	case err != nil:
		return fmt.Sprintf("Ended because it took longer than %s. A larger timeout_ms gives it more time.", limit)
	case exit.Signal != "":
		return fmt.Sprintf("Ended by %s after %s.", exit.Signal, exit.Took.Round(time.Millisecond))
	case exit.Code != 0:
		return fmt.Sprintf("Exit code %d.", exit.Code)
	}
	return ""
}

// outcome returns the output of a command and how that ended, which is nothing if
// all is well.
func outcome(shown *window, how string) Result {
	text := strings.TrimRight(valid(shown.text()), "\n")
	switch {
	case text == "" && how == "":
		text = "Exit code 0, no output."
	case text == "":
		text = how
	case how != "":
		text += "\n\n" + how
	}
	return Result{Text: text, IsError: how != ""}
}
