//go:build man

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// init takes the place of main in a build with the tag man. The program then writes a
// manual page for each command and a completion script for each shell:
//
//	go run -tags man ./cmd/maestro DIR VERSION DATE
func init() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: go run -tags man ./cmd/maestro DIR VERSION DATE")
		os.Exit(exitUsage)
	}
	if err := writeManual(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(exitFailure)
	}
	os.Exit(0)
}

func writeManual(dir, version, date string) error {
	// Defaults of flags name a directory of the user who builds; page shows this one as ~.
	if err := errors.Join(os.Setenv("HOME", "/~"), os.Unsetenv("XDG_STATE_HOME")); err != nil {
		return err
	}
	pages, scripts := filepath.Join(dir, "man"), filepath.Join(dir, "completions")
	root := rootCommand()
	root.InitDefaultCompletionCmd()
	return errors.Join(
		os.MkdirAll(pages, 0o755), os.MkdirAll(scripts, 0o755),
		writePages(root, pages, fmt.Sprintf("%q %q Maestro", date, "maestro "+version)),
		root.GenBashCompletionFileV2(filepath.Join(scripts, "maestro.bash"), true),
		root.GenZshCompletionFile(filepath.Join(scripts, "_maestro")),
		root.GenFishCompletionFile(filepath.Join(scripts, "maestro.fish"), true),
		root.GenPowerShellCompletionFileWithDesc(filepath.Join(scripts, "maestro.ps1")),
	)
}

// writePages writes the page of a command and the pages of the commands below it.
func writePages(cmd *cobra.Command, dir, footer string) error {
	path := filepath.Join(dir, pageName(cmd)+".1")
	errs := []error{os.WriteFile(path, []byte(page(cmd, footer)), 0o644)}
	for _, below := range shown(cmd) {
		errs = append(errs, writePages(below, dir, footer))
	}
	return errors.Join(errs...)
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// shown returns the commands below cmd that its help lists.
func shown(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

// page returns the manual page of a command in the language of man(7).
func page(cmd *cobra.Command, footer string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 %s\n.nh\n.ad l\n.SH NAME\n%s \\- %s\n", strings.ToUpper(pageName(cmd)), footer, roff(pageName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".br\n.B %s\n.I command\n", roff(cmd.CommandPath()))
	}
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(about))
	if commands := shown(cmd); len(commands) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range commands {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(c)), roff(c.Short))
		}
	}
	writeOptions(&b, cmd)
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageName(cmd.Parent())))
	}
	return strings.ReplaceAll(b.String(), roff("/~/"), roff("~/"))
}

// writeOptions lists the flags of a command under the headings of its help.
func writeOptions(b *strings.Builder, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	var other []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			other = append(other, f.Name)
		}
	})
	b.WriteString(".SH OPTIONS\n")
	help, grouped := cmd.UsageString(), false
	for _, g := range flagGroups {
		if !strings.Contains(help, "\n"+g.title+":\n") {
			continue
		}
		grouped = true
		fmt.Fprintf(b, ".SS %s\n", roff(g.title))
		for _, name := range g.flags {
			if !slices.Contains(other, name) {
				continue
			}
			writeOption(b, cmd.Flags().Lookup(name))
			other = slices.DeleteFunc(other, func(n string) bool { return n == name })
		}
	}
	if grouped {
		b.WriteString(".SS Other\n")
	}
	for _, name := range other {
		writeOption(b, cmd.Flags().Lookup(name))
	}
}

func writeOption(b *strings.Builder, f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	b.WriteString(".TP\n")
	if f.Shorthand != "" {
		fmt.Fprintf(b, "\\fB%s\\fR, ", roff("-"+f.Shorthand))
	}
	fmt.Fprintf(b, "\\fB%s\\fR", roff("--"+f.Name))
	if value != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
	}
	fmt.Fprintf(b, "\n%s", roff(usage))
	if !slices.Contains([]string{"", "0", "false", "[]", "0s"}, f.DefValue) {
		fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
	}
	b.WriteString("\n")
}

var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`,
	"\n\n", "\n.PP\n", "\n.", "\n\\&.", "\t", "    ")

// roff escapes text for a manual page. Lines that begin with a space are not filled.
func roff(text string) string {
	text = escapes.Replace(strings.TrimSpace(text))
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
