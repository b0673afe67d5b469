// Command maestro puts a coding agent behind a shared, replayable control plane
// that any number of clients attach to.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Exit codes beside 0 and the 128+signal of an interrupted process.
const (
	exitFailure = 1
	exitUsage   = 2
)

// An exit is an error that knows its exit code and needs no more words.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.Execute()
	var code exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "maestro:", err)
	if _, ok := errors.AsType[*startFailure](err); ok {
		return exitFailure
	}
	return exitUsage
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "maestro",
		Short: "Share one coding agent between any number of clients",
		Long: "maestro runs a coding agent behind a control plane: one client drives, any number\n" +
			"watch, and nobody loses a word when a connection or the server itself goes away.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), headlessCommand(), conformanceCommand(), versionCommand(),
		attachCommand(attachDefaults{URL: "http://" + defaultListen, TokenFile: tokenFile(defaultStateRoot()), Version: version()}))
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "maestro", version())
			return err
		},
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
