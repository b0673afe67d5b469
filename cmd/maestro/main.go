// Command maestro puts a coding agent behind a shared, replayable control plane
// that any number of clients attach to.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// Exit codes beside 0 and the 128+signal of an interrupted process.
const (
	exitFailure = 1
	exitUsage   = 2
)

// An exit is an exit code as an error. Nothing is printed for it.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// A failure is an error of a command that was used correctly. Every other error of a
// command is wrong usage.
type failure struct{ error }

// A usage is wrong usage that the command itself found.
type usage struct{ error }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	defer proc.Dismiss()
	defer standardError().flush()
	if err := proc.Hide(); err != nil {
		fmt.Fprintln(os.Stderr, "maestro: child processes may read the environment of this process:", err)
	}
	args = headlessSpelling(args)
	root := rootCommand(args...)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	var code exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case cmd.Name() == "headless" && !cmd.Flags().Changed("protocol"): // after its start it returns no other error than an exit
		err = errors.Join(err, failHeadless(err))
	}
	fmt.Fprintln(os.Stderr, "maestro:", err)
	if errors.As(err, new(failure)) {
		return exitFailure
	}
	fmt.Fprintln(os.Stderr, "maestro: see", helpFor(cmd))
	return exitUsage
}

// helpFor returns the command line that explains a command.
func helpFor(cmd *cobra.Command) string {
	_, name, below := strings.Cut(cmd.CommandPath(), " ")
	if !below || name == "help" {
		return "maestro help"
	}
	return "maestro help " + name
}

// mark makes the errors of a command failures. Errors that cobra finds before it runs
// the command stay wrong usage; mark words those about the number of arguments.
func mark(cmd *cobra.Command) {
	count := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case count(cmd, args) == nil:
			return nil
		case cmd.HasSubCommands():
			var names []string
			for _, below := range cmd.Commands() {
				names = append(names, below.Name())
			}
			return fmt.Errorf("no command %q: %s has %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
		case fewer(count, cmd, args):
			return fmt.Errorf("too many arguments %q: want %s", args, cmd.UseLine())
		}
		return fmt.Errorf("an argument is missing: want %s", cmd.UseLine())
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if err == nil || errors.As(err, new(exit)) || errors.As(err, new(usage)) {
			return err
		}
		return failure{err}
	}
}

// fewer reports whether a command accepts fewer arguments than these.
func fewer(count cobra.PositionalArgs, cmd *cobra.Command, args []string) bool {
	for n := range args {
		if count(cmd, args[:n]) == nil {
			return true
		}
	}
	return false
}

// rootCommand returns the command for args. If the first argument names a command, the
// others are left out, because their flags would take half a millisecond.
func rootCommand(args ...string) *cobra.Command {
	root := &cobra.Command{
		Use:   "maestro",
		Short: "Share one coding agent between any number of clients",
		Long: "maestro runs a coding agent behind a control plane. One client controls the agent and any\n" +
			"number of clients watch. No client loses an event when a connection or the server fails.",
		SilenceUsage: true, SilenceErrors: true,
	}
	// The flag is our own because cobra's prints other words. Cobra's
	// SetVersionTemplate would change them, but it links text/template, and with it
	// the linker keeps every exported method of every type.
	asked := root.Flags().BoolP("version", "v", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asked {
			return printVersion(cmd.OutOrStdout())
		}
		return cmd.Help()
	}
	commands := map[string]func() *cobra.Command{
		"serve": serveCommand, "hosted-runner": hostedCommand, "headless": headlessCommand, "conformance": conformanceCommand,
		"version": versionCommand, "sessions": sessionsCommand, "audit": auditCommand, "attach": attachCommand, "acp": acpCommand, "share": shareCommand, "login": loginCommand, "config": configCommand, "doctor": doctorCommand,
	}
	if len(args) > 0 && commands[args[0]] != nil {
		commands = map[string]func() *cobra.Command{args[0]: commands[args[0]]}
		root.CompletionOptions.DisableDefaultCmd = true
	}
	for _, command := range commands {
		cmd := command()
		root.AddCommand(cmd)
		mark(cmd)
		for _, below := range cmd.Commands() {
			mark(below)
		}
	}
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		mark(completion)
	}
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})                 // the line before made it
	help.Args = func(_ *cobra.Command, args []string) error { // cobra prints the help of the root for an unknown command
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return fmt.Errorf("no command %q", strings.Join(args, " "))
		}
		return nil
	}
	return root
}

// errViewerTakes refuses both flags together.
var errViewerTakes = errors.New("--view only watches: leave out --take")
