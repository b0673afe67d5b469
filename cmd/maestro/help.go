package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroups are the headings under which help lists the flags of a command that runs a
// session, in this order. Flags that are in no group come last.
var flagGroups = []struct {
	title string
	flags []string
}{
	{"Runner", []string{"runner-session-id", "maestro-session-id", "workspace-root", "workspace-id", "agent-run-id", "owner-instance-id", "require-owner-header",
		"snapshot-root", "restore-manifest", "drain-requests", "flush-timeout", "control-token-file"}},
	{"Editor", []string{"session", "create", "view", "take", "name", "token-file"}},
	{"Agent", []string{"agent", "workspace", "env-pass", "request-timeout", "approvals", "require-digest", "notify"}},
	{"acp: and llm: agents", []string{"mcp-config", "allow", "ask", "deny", "model-url", "max-iterations", "no-retries", "context-tokens", "max-tokens", "price"}},
	{"Network", []string{"listen", "host", "port", "allow-host", "allow-origin", "pages", "tls-cert", "tls-key", "behind-tls"}},
	{"Authentication", []string{"auth", "connection-tokens", "metrics-token-file", "attach-audience", "jwt-key", "jwt-issuer", "jwt-audience", "jwt-scope-claim"}},
	{"Storage", []string{"state-dir", "fsync", "retain-bytes", "retain-age", "undo-period", "history-memory", "idle-ttl"}},
	{"Protocol", []string{"strict", "protocol-profile", "turns", "lease-ttl", "subscription-ttl", "heartbeat-interval"}},
	{"Clients of other protocols", []string{"protocol", "listen-heddle", "listen-chord", "session-dir", "continue", "resume", "worktree", "hecate-vocabulary", "hecate-thinking"}},
	{"Limits of clients", []string{"max-sessions", "max-kept-sessions", "max-controllers", "max-connections", "max-principal-connections", "max-address-connections",
		"attach-rate", "attach-burst", "request-rate", "request-burst", "max-unfinished-bytes", "max-principal-unfinished-bytes",
		"max-frame-bytes", "max-line-bytes", "max-header-bytes", "handshake-timeout", "header-timeout", "read-timeout", "write-timeout", "idle-timeout"}},
	{"Limits of utilities", []string{"max-commands", "max-command-time", "max-watches", "max-watched-dirs", "max-read-bytes"}},
	{"Settings", []string{"config"}},
	{"Starting from a program", []string{"ready-file", "ready-stdout", "exit-on-stdin-eof"}},
	{"Logs and profiles", []string{"log-level", "log-format", "pprof"}},
}

// groupFlags makes the help of a command list its flags in groups.
func groupFlags(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		var b strings.Builder
		fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
		var other []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { other = append(other, f.Name) })
		for _, g := range flagGroups {
			writeFlags(&b, cmd, g.title, g.flags)
			other = slices.DeleteFunc(other, func(name string) bool { return slices.Contains(g.flags, name) })
		}
		writeFlags(&b, cmd, "Other", other)
		_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
		return err
	})
}

// writeFlags writes those of the flags that the command has, in their order.
func writeFlags(b *strings.Builder, cmd *cobra.Command, title string, names []string) {
	group := pflag.NewFlagSet(title, pflag.ContinueOnError)
	group.SortFlags = false
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil {
			group.AddFlag(f)
		}
	}
	if group.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n%s", title, group.FlagUsages())
	}
}
