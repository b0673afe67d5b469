package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/contracts"
)

// reports are the ways to write a report at the end, by format. Text is written while
// the run goes on, so that only its sum is left.
var reports = map[string]func(*conformance.Report, io.Writer) error{
	"text":  nil,
	"json":  (*conformance.Report).WriteJSON,
	"junit": (*conformance.Report).WriteJUnit,
}

// isTarget reports whether a text has the form of a target.
func isTarget(text string) bool {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "stdio":
		return strings.TrimSpace(rest) != ""
	case "ws", "wss", "http", "https":
		return strings.HasPrefix(rest, "//") && rest != "//"
	}
	return false
}

// explainRules prints rules. An unknown code is wrong usage.
func explainRules(out io.Writer, codes []string) error {
	var unknown *conformance.UnknownRuleError
	err := conformance.Explain(out, codes)
	if errors.As(err, &unknown) {
		return usage{fmt.Errorf("--explain: %w", err)}
	}
	return err
}

func conformanceCommand() *cobra.Command {
	var (
		c                                                   = conformance.Config{Prompts: conformance.DefaultPrompts()}
		format, filter, tokenPath, profile, tokens, runtime string
		list                                                bool
		explain                                             []string
	)
	cmd := &cobra.Command{
		Use: "conformance", Short: "Judge a server that speaks the protocol",
		Long: "conformance plays clients against a server, reports what the server does wrong, and exits with 1\n" +
			"if a scenario failed. It also starts, drains and restores hosted runners.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(explain) > 0 { // they are more codes
				return nil
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if filter != "" {
				re, err := regexp.Compile(filter)
				if err != nil {
					return usage{fmt.Errorf("--run: %w", err)}
				}
				c.Filter = re
			}
			switch {
			case len(explain) > 0:
				return explainRules(out, slices.Concat(explain, args))
			case list:
				return conformance.WriteList(out, slices.DeleteFunc(conformance.Scenarios(),
					func(s conformance.Scenario) bool { return c.Filter != nil && !c.Filter.MatchString(s.Name) }))
			}
			write, ok := reports[format]
			switch {
			case c.Target == "" && c.Spawn == "":
				return usage{errors.New("--target is required, or --spawn for hosted runners")}
			case c.Target != "" && !isTarget(c.Target):
				return usage{fmt.Errorf("--target %q: want stdio:COMMAND, ws://HOST:PORT or http://HOST:PORT", c.Target)}
			case !ok:
				return usage{fmt.Errorf("--format %q: want text, json or junit", format)}
			case tokens != "" && tokens != string(conformance.TokensRequired) && tokens != string(conformance.TokensOptional):
				return usage{fmt.Errorf("--connection-tokens %q: want required or optional", tokens)}
			case runtime != string(conformance.RuntimeConformance) && runtime != string(conformance.RuntimeAny):
				return usage{fmt.Errorf("--runtime %q: want conformance or any", runtime)}
			case profile != string(contracts.ProfileSeed) && profile != string(contracts.ProfilePublic):
				return usage{fmt.Errorf("--protocol-profile %q: want seed or public", profile)}
			case c.Timeout <= 0:
				return usage{errors.New("--timeout must be positive")}
			}
			c.Runtime = conformance.Runtime(runtime)
			c.ConnectionTokens = conformance.TokenPolicy(tokens)
			if tokenPath != "" {
				text, err := os.ReadFile(tokenPath)
				if err != nil {
					return err
				}
				c.Token = strings.TrimSpace(string(text))
			}
			c.Profile = contracts.Profile(profile)
			printer := conformance.NewPrinter(out)
			if write == nil {
				c.Each = printer.Result
				write = func(r *conformance.Report, _ io.Writer) error { return printer.Sum(r) }
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), leaving()...)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			report, err := conformance.Run(ctx, c)
			switch {
			case errors.Is(err, conformance.ErrOtherAgent):
				return usage{err}
			case err != nil:
				return err
			}
			if err := write(&report, out); err != nil || report.OK() {
				return err
			}
			return exit(exitFailure)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Target, "target", "", "server to judge: stdio:CMD, ws://HOST:PORT or http://HOST:PORT")
	f.StringVar(&c.Spawn, "spawn", "", "command that starts a hosted runner, for the scenarios about hosted runners")
	f.StringVar(&format, "format", "text", "text, json or junit")
	f.StringVar(&filter, "run", "", "regular expression: only the scenarios whose names match")
	f.StringVar(&tokenPath, "token-file", "", "file with the server's token")
	f.StringVar(&profile, "protocol-profile", string(contracts.ProfileSeed), "seed, or public to demand only what the published protocol demands")
	f.StringVar(&tokens, "connection-tokens", "", "required or optional: whether HTTP requests about a connection must present its token; default: required with --token-file, else optional")
	f.StringVar(&runtime, "runtime", string(conformance.RuntimeConformance), "conformance or any: whether the server runs the conformance agent")
	f.StringVar(&c.Prompts.Say, "say", c.Prompts.Say, "with --runtime any: a prompt that leads to an answer; empty skips the scenarios that need it")
	f.StringVar(&c.Prompts.Long, "long", c.Prompts.Long, "with --runtime any: a prompt whose answer takes at least a second")
	f.StringVar(&c.Prompts.Ask, "ask", c.Prompts.Ask, "with --runtime any: a prompt that leads to one approval")
	f.BoolVar(&list, "list", false, "print the scenarios, or those of --run")
	f.StringSliceVar(&explain, "explain", nil, "print what rules such as R36 demand, and the scenarios that check them")
	f.BoolVar(&c.Strict, "strict", false, "the server refuses unknown keys and nulls")
	f.DurationVar(&c.Timeout, "timeout", 30*time.Second, "time for one scenario")
	return cmd
}
