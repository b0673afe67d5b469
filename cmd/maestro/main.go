// Command maestro puts a coding agent behind a shared, replayable control plane
// that any number of clients attach to.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// Exit codes beside 0 and the 128+signal of an interrupted process.
const (
	exitFailure = 1
	exitUsage   = 2
)

// An exit is an error that knows its exit code and needs no more words.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// A failure is what a command met that was used rightly; everything else that
// comes out of one is wrong usage.
type failure struct{ error }

// A usage is wrong usage that only the command itself could see.
type usage struct{ error }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	defer proc.Dismiss()
	if err := proc.Hide(); err != nil {
		fmt.Fprintln(os.Stderr, "maestro: what this process starts may read its environment:", err)
	}
	root := rootCommand()
	root.SetArgs(headlessSpelling(args))
	cmd, err := root.ExecuteC()
	var code exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case cmd.Name() == "headless": // which returns no other error once it has started
		err = errors.Join(err, failHeadless(err))
	}
	fmt.Fprintln(os.Stderr, "maestro:", err)
	if errors.As(err, new(failure)) {
		return exitFailure
	}
	fmt.Fprintln(os.Stderr, "maestro: see", helpFor(cmd))
	return exitUsage
}

// helpFor is the command line that explains a command.
func helpFor(cmd *cobra.Command) string {
	_, name, below := strings.Cut(cmd.CommandPath(), " ")
	if !below || name == "help" {
		return "maestro help"
	}
	return "maestro help " + name
}

// mark makes what goes wrong in a command a failure. What cobra finds wrong
// before it runs the command stays wrong usage, arguments that are too many in
// words that fit.
func mark(cmd *cobra.Command) {
	count := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if count(cmd, args) != nil {
			return fmt.Errorf("too many arguments %q: want %s", args, cmd.UseLine())
		}
		return nil
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

func rootCommand() *cobra.Command {
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
	ours := attachDefaults{URL: "http://" + defaultListen, TokenFile: tokenFile(defaultStateRoot()), Version: version()}
	sessions := sessionsCommand()
	root.AddCommand(serveCommand(), hostedCommand(), headlessCommand(), conformanceCommand(), versionCommand(),
		attachCommand(ours), acpCommand(ours), sessions)
	for _, cmd := range slices.Concat(root.Commands(), sessions.Commands()) {
		mark(cmd)
	}
	explainOnlyWhatIs(root)
	return root
}

// explainOnlyWhatIs makes help about a command that does not exist wrong usage.
func explainOnlyWhatIs(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // it has just been made
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return fmt.Errorf("no command %q", strings.Join(args, " "))
		}
		return nil
	}
}

// errViewerTakes is what is wrong with both flags.
var errViewerTakes = errors.New("--view only watches: leave out --take")
