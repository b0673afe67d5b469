package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/acp"
	"github.com/seed-028515a8/maestro/conformance/chord"
	"github.com/seed-028515a8/maestro/conformance/hecate"
	"github.com/seed-028515a8/maestro/conformance/heddle"
	"github.com/seed-028515a8/maestro/contracts"
)

// isTarget reports whether text has the form of a target.
func isTarget(text string) bool {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "stdio", "file":
		return strings.TrimSpace(rest) != ""
	case "ws", "wss", "http", "https":
		return strings.HasPrefix(rest, "//") && rest != "//"
	}
	return false
}

// suites are the protocols that servers can be judged by.
var suites = []func() *conformance.Suite{conformance.Maestro, heddle.Suite, chord.Suite, hecate.Suite, acp.Suite}

func allSuites() (all []*conformance.Suite) {
	for _, suite := range suites {
		all = append(all, suite())
	}
	return all
}

func suiteNames() (names []string) {
	for _, u := range allSuites() {
		names = append(names, u.Protocol)
	}
	return names
}

// suiteNamed returns the suite about a protocol.
func suiteNamed(protocol string) (*conformance.Suite, error) {
	for _, u := range allSuites() {
		if u.Protocol == protocol {
			return u, nil
		}
	}
	return nil, usage{oneOf("protocol", protocol, suiteNames())}
}

// readTrimmed reads a file without the space around its text. An empty path changes nothing.
func readTrimmed(path string, text *string) error {
	if path == "" {
		return nil
	}
	read, err := os.ReadFile(path)
	*text = strings.TrimSpace(string(read))
	return err
}

func conformanceCommand() *cobra.Command {
	var (
		c                     = conformance.Config{Prompts: conformance.DefaultPrompts()}
		format, filter        string
		tokenPath, secretPath string
		protocol              string
		list                  bool
		explain               []string
	)
	cmd := &cobra.Command{
		Use: "conformance", Short: "Judge a server that speaks the protocol",
		Long: "conformance plays clients against a server, reports what the server does wrong, and exits with 1\n" +
			"if a scenario failed. It also starts, drains and restores hosted runners.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(explain) > 0 { // arguments are more codes
				return nil
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			suite, err := suiteNamed(protocol)
			if err != nil {
				return err
			}
			if filter != "" {
				re, err := regexp.Compile(filter)
				if err != nil {
					return usage{fmt.Errorf("--run: %w", err)}
				}
				c.Filter = re
			}
			switch {
			case len(explain) > 0:
				searched := []*conformance.Suite{suite}
				if !cmd.Flags().Changed("protocol") {
					searched = allSuites()
				}
				err := conformance.Explain(out, slices.Concat(explain, args), searched...)
				if errors.As(err, new(*conformance.UnknownRuleError)) {
					err = usage{fmt.Errorf("--explain: %w", err)}
				}
				return err
			case list:
				return conformance.WriteList(out, c.Select(suite.Scenarios))
			}
			switch {
			case c.Target == "" && c.Spawn == "":
				return usage{errors.New("--target is required, or --spawn for hosted runners")}
			case c.Target != "" && !isTarget(c.Target):
				return usage{fmt.Errorf("--target %q: want stdio:COMMAND, ws://HOST:PORT, http://HOST:PORT or file:LOG.json", c.Target)}
			case c.Timeout <= 0 || c.Patience <= 0:
				return usage{errors.New("--timeout and --patience must be positive")}
			}
			if err := cmp.Or(oneOf("format", format, []string{"text", "json", "junit"}), oneOf("connection-tokens", string(c.ConnectionTokens), tokenPolicies),
				oneOf("runtime", string(c.Runtime), []string{string(conformance.RuntimeConformance), string(conformance.RuntimeAny)}),
				oneOf("protocol-profile", string(c.Profile), profiles)); err != nil {
				return usage{err}
			}
			if err := cmp.Or(readTrimmed(tokenPath, &c.Token), readTrimmed(secretPath, &c.Secret)); err != nil {
				return err
			}
			printer := conformance.NewPrinter(out, suite)
			if format == "text" { // results are printed while the run goes on
				c.Each = printer.Result
				if c.Patience < conformance.DefaultPatience {
					if _, err := fmt.Fprintf(out, "--patience %s is shorter than the default, %s: scenarios may fail although the server is right\n", c.Patience, conformance.DefaultPatience); err != nil {
						return err
					}
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), leaving()...)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			report, err := suite.Run(ctx, c)
			switch {
			case errors.Is(err, conformance.ErrOtherAgent), errors.Is(err, conformance.ErrTarget):
				return usage{err}
			case err != nil:
				return err
			}
			switch format {
			case "text":
				err = printer.Sum(&report)
			case "json":
				err = report.WriteJSON(out)
			case "junit":
				err = report.WriteJUnit(out)
			}
			if err == nil && !report.OK() {
				err = exit(exitFailure)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&protocol, "protocol", suites[0]().Protocol, strings.Join(suiteNames(), ", ")+": what the target speaks")
	f.StringVar(&c.ModelEnv, "model-env", "", "with another protocol than maestro: the variable that tells the target the address of the suite's model; default: HEDDLE_BASE_URL for heddle, OPENAI_BASE_URL for chord")
	f.StringVar(&c.Target, "target", "", "server to judge: stdio:CMD, ws://HOST:PORT or http://HOST:PORT")
	f.StringVar(&c.Spawn, "spawn", "", "command that starts a hosted runner, for the scenarios about hosted runners")
	f.StringVar(&format, "format", "text", "text, json or junit")
	f.StringVar(&filter, "run", "", "regular expression: only the scenarios whose names match")
	f.StringVar(&tokenPath, "token-file", "", "file with the server's token")
	f.StringVar((*string)(&c.Profile), "protocol-profile", string(contracts.ProfileSeed), "seed, or public to demand only what the published protocol demands")
	f.StringVar((*string)(&c.ConnectionTokens), "connection-tokens", "", "required or optional: whether HTTP requests about a connection must present its token; default: required with --token-file, else optional")
	f.StringVar((*string)(&c.Runtime), "runtime", string(conformance.RuntimeConformance), "conformance or any: whether the server runs the conformance agent")
	f.StringVar(&c.Prompts.Say, "say", c.Prompts.Say, "with --runtime any: a prompt that leads to an answer; empty skips the scenarios that need it")
	f.StringVar(&c.Prompts.Long, "long", c.Prompts.Long, "with --runtime any: a prompt whose answer takes at least a second")
	f.StringVar(&c.Prompts.Ask, "ask", c.Prompts.Ask, "with --runtime any: a prompt that leads to one approval")
	f.StringVar(&c.Driver, "driver", "", "for hecate: command that starts a run; the prompt is its last argument")
	f.StringVar(&c.Prompts.Burst, "burst", c.Prompts.Burst, "for hecate: a prompt that leads to 10 MB of output of a shell tool, written byte by byte")
	f.StringVar(&c.Prompts.Secret, "tell", c.Prompts.Secret, "for hecate: a prompt that leads to output with {secret}")
	f.StringVar(&secretPath, "secret-file", "", "for hecate: file with a value that the server was told to hide")
	f.DurationVar(&c.ApprovalTimeout, "approval-timeout", 0, "for hecate: when the server gives up an approval")
	f.StringVar(&c.Save, "save", "", "for hecate: write the runs that were judged to this file")
	f.StringVar(&c.Earlier, "earlier", "", "for hecate: a file that --save wrote earlier; what it has must not have changed")
	f.BoolVar(&c.Thinking, "thinking", false, "for hecate: the server was told to show thinking")
	f.BoolVar(&list, "list", false, "print the scenarios, or those of --run")
	f.StringSliceVar(&explain, "explain", nil, "print what rules such as R36 demand, and the scenarios that check them; without --protocol, of any protocol")
	f.BoolVar(&c.Strict, "strict", false, "the server refuses unknown keys and nulls")
	f.DurationVar(&c.Timeout, "timeout", conformance.DefaultTimeout, "time for one scenario")
	f.DurationVar(&c.Patience, "patience", conformance.DefaultPatience, "time for one expected message")
	return cmd
}
