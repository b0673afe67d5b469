package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/internal/wiring"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, the commit, Go and the platform", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return printBuild(cmd.OutOrStdout()) },
	}
}

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, "maestro", wiring.Version())
	return err
}

// vcs returns the facts about the commit, none if the source was not in a repository.
func vcs() map[string]string {
	vcs := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			vcs[s.Key] = s.Value
		}
	}
	return vcs
}

// printBuild prints the version and then one line for each fact about the build.
func printBuild(w io.Writer) error {
	if err := printVersion(w); err != nil {
		return err
	}
	vcs := vcs()
	commit := cmp.Or(vcs["vcs.revision"], "unknown")
	if vcs["vcs.modified"] == "true" {
		commit += ", modified"
	}
	_, err := fmt.Fprintf(w, "commit: %s\ndate: %s\ngo: %s\nplatform: %s/%s\n",
		commit, cmp.Or(vcs["vcs.time"], "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
