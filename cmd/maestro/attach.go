package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// attachDefaults is what main knows and the line client does not.
type attachDefaults struct {
	URL       string // the server to attach to if none is named
	TokenFile string // where its token would be; may not exist
	Version   string // of this program, told to the server
}

// attachFlags is what the command line says.
type attachFlags struct {
	view      bool
	take      bool
	session   string
	tokenFile string
	noHistory bool
	json      bool
	name      string
}

// attachCommand returns the command that follows a session in a terminal, line
// by line.
func attachCommand(defaults attachDefaults) *cobra.Command {
	var flags attachFlags
	cmd := &cobra.Command{
		Use:   "attach [URL]",
		Short: "Follow a session in this terminal, and drive it",
		Long: `Attach shows what happens in a session, line by line, and sends what you type.

Lines while attached:
` + attachHelp + `

If standard input is not a terminal, its lines are taken as if they were typed.
At its end the client leaves once everything sent was answered and the session
has been quiet for three seconds; if nothing was sent, it goes on following.`,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			url := defaults.URL
			if len(args) == 1 {
				url = args[0]
			}
			return runAttach(cmd, url, &flags, defaults)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&flags.view, "view", false, "watch only")
	f.BoolVar(&flags.take, "take", false, "take control, even from somebody else")
	f.StringVar(&flags.session, "session", "", "the session `ID`; the server's first one if none is named")
	f.StringVar(&flags.tokenFile, "token-file", defaults.TokenFile, "the `FILE` that holds the server's token")
	f.BoolVar(&flags.noHistory, "no-history", false, "start with the current state instead of the beginning")
	f.BoolVar(&flags.json, "json", false, "print each update as a line of JSON")
	f.StringVar(&flags.name, "name", "maestro-attach", "what others see as your name")
	cmd.MarkFlagsMutuallyExclusive("view", "take")
	return cmd
}

// options turns the flags into those of the client.
func (f *attachFlags) options(defaults attachDefaults) ([]client.Option, error) {
	hello := contracts.Hello{
		Role:         contracts.RoleController,
		ClientInfo:   &contracts.ClientInfo{Name: f.name, Version: defaults.Version},
		Capabilities: &contracts.Capabilities{RawAgentEvents: true, ServerRequests: contracts.RequestTypes()},
	}
	takeover := contracts.TakeoverLater
	switch {
	case f.view:
		hello.Role, hello.Capabilities.ServerRequests, takeover = contracts.RoleViewer, nil, contracts.TakeoverRefuse
	case f.take:
		takeover = contracts.TakeoverForce
	}
	opts := []client.Option{client.WithHello(hello), client.WithTakeover(takeover), client.WithSession(f.session, false)}
	if !f.noHistory {
		opts = append(opts, client.WithHistory())
	}
	if f.tokenFile == "" {
		return opts, nil
	}
	_, err := os.Stat(f.tokenFile)
	switch {
	case err == nil:
		opts = append(opts, client.WithTokenFile(f.tokenFile))
	case f.tokenFile != defaults.TokenFile || !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("token file: %w", err)
	}
	return opts, nil
}

// runAttach attaches and follows the session until the user leaves or the
// server ends it.
func runAttach(cmd *cobra.Command, url string, flags *attachFlags, defaults attachDefaults) error {
	opts, err := flags.options(defaults)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	c, err := client.Dial(ctx, url, opts...)
	if err != nil {
		return err
	}
	defer c.Close(false)
	a := newAttachment(c, cmd.OutOrStdout(), cmd.ErrOrStderr(), flags)
	a.redial = func(ctx context.Context) (follower, error) {
		viewer := *flags
		viewer.view, viewer.noHistory = true, false
		past, err := viewer.options(defaults)
		if err != nil {
			return nil, err
		}
		return client.Dial(ctx, url, append(past, client.WithoutReconnect())...)
	}
	a.typed = isTerminal(cmd.InOrStdin())
	return a.run(ctx, cmd.InOrStdin(), signals)
}

// isTerminal reports whether a stream is one that a human sits at.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a character device without a human
	return err != nil || !os.SameFile(info, null)
}
