package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/internal/agent/command"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// maxOutputBytes bounds what the model is told of a command's output: half of it
// from the beginning, half from the end.
const maxOutputBytes = 30_000

type bashArgs struct {
	Command     string `json:"command" min:"1" about:"The command line for the shell"`
	TimeoutMS   int    `json:"timeout_ms,omitempty" default:"120000" min:"1" max:"3600000" about:"Milliseconds after which the command is ended; 120000 if not given"`
	Description string `json:"description,omitempty" about:"What the command does, in five to ten words"` // labels show what really runs
}

func (a *bashArgs) check() error {
	switch {
	case strings.TrimSpace(a.Command) == "":
		return refusal("The argument command is empty.")
	case len(a.Command) > command.MaxLine:
		return refusal(fmt.Sprintf("The command has %d bytes, and at most %d are allowed. Write a script to a file and run that.", len(a.Command), command.MaxLine))
	case strings.ContainsRune(a.Command, 0):
		return refusal("The command contains a NUL character.")
	}
	return nil
}

func (k *Kit) bash() Tool {
	return define(Tool{
		Tool: model.Tool{
			Name: "bash",
			Description: "Runs a command line in a new shell, in the workspace's root directory, and returns its output and exit code. " +
				"Nothing is kept from call to call: no directory, no variables, no background processes. Standard input is empty. " +
				fmt.Sprintf("Of more than %d bytes of output you get the beginning and the end. ", maxOutputBytes) +
				"To read, write, edit or find files use the other tools.",
		},
		Title: "Bash", Gated: true,
	}, "Ran", "Running", "a command", func(a *bashArgs) string { return strings.TrimSpace(a.Command) }, k.runBash)
}

func (k *Kit) runBash(ctx context.Context, a *bashArgs, out func(text string) error) (Result, error) {
	limit := time.Duration(a.TimeoutMS) * time.Millisecond
	timed, stop := context.WithTimeout(ctx, limit)
	defer stop()

	shown := window{half: maxOutputBytes / 2}
	var unheard error
	c := command.Command{Shell: k.Shell, Line: a.Command, Dir: k.Workspace.Root(), Env: proc.Environ(os.Environ(), k.Hosted, k.EnvPass)}
	exit, err := c.Run(timed, func(text string) error {
		shown.add(text)
		unheard = out(text)
		return unheard
	})
	how := ""
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case unheard != nil:
		return Result{}, unheard
	case errors.Is(err, context.DeadlineExceeded):
		how = fmt.Sprintf("Ended because it took longer than %s. A larger timeout_ms gives it more time.", limit)
	case err != nil:
		return Result{}, refusal("The command could not be run: " + valid(err.Error()) + ".")
	case exit.Signal != "":
		how = fmt.Sprintf("Ended by %s after %s.", exit.Signal, exit.Took.Round(time.Millisecond))
	case exit.Code != 0:
		how = fmt.Sprintf("Exit code %d.", exit.Code)
	}
	text := strings.TrimRight(valid(shown.text()), "\n")
	switch {
	case text == "" && how == "":
		text = "Exit code 0, no output."
	case text == "":
		text = how
	case how != "":
		text += "\n\n" + how
	}
	if how != "" && shown.size > 0 { // else the whole result is shown
		if err := out("\n" + how); err != nil {
			return Result{}, err
		}
	}
	return Result{Text: text, IsError: how != ""}, nil
}
