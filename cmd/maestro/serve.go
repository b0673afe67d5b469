package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

// leavePatience bounds an orderly end of the program.
const leavePatience = 8 * time.Second

func serveCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the agent and let clients attach over the network", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return serve(s, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	s.register(cmd)
	cmd.Flags().StringVar(&s.listen, "listen", defaultListen, "address to listen on")
	cmd.Flags().BoolVar(&s.readyStdout, "ready-stdout", false, "print where the server listens as JSON, before anything else")
	cmd.Flags().BoolVar(&s.eofExit, "exit-on-stdin-eof", false, "end when standard input is closed")
	return cmd
}

func serve(s settings, in io.Reader, out io.Writer) error {
	log, signals := s.log(), catchSignals()
	m, err := newSessions(s, log)
	if err != nil {
		return &startFailure{err}
	}
	root := cmp.Or(s.stateDir, defaultStateRoot())
	m.dir = m.workspaceDir(root)
	first := "main"
	d := &hub.Directory{Open: m.open, Max: s.limits.sessions, Log: log}
	ctx := context.Background()
	if _, err := d.Get(ctx, first, true); err != nil {
		return &startFailure{err}
	}
	n, err := listen(s, root, func(ctx context.Context, att contracts.Attach) (*hub.Hub, error) {
		if att.Create && att.SessionID == "" {
			return d.Get(ctx, "sess_"+uuid.NewString(), true)
		}
		return d.Get(ctx, cmp.Or(att.SessionID, first), att.Create)
	}, log)
	if err != nil {
		return &startFailure{err}
	}
	if err := announce(s, n.readiness(first), out); err != nil {
		return &startFailure{err}
	}
	code := awaitEnd(signals, s.eofExit, in, nil)
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	if err := d.Suspend(ctx); err != nil {
		log.Error("suspend sessions", "err", err)
	}
	if err := n.close(ctx); err != nil {
		log.Error("close listener", "err", err)
	}
	if code != 0 {
		return exit(code)
	}
	return nil
}

// announce tells harnesses and people where the server is.
func announce(s settings, r readiness, out io.Writer) error {
	if err := writeReady(s.readyFile, r); err != nil {
		return err
	}
	if s.readyStdout {
		return json.NewEncoder(out).Encode(r)
	}
	_, err := fmt.Fprintf(out, "maestro listens on %s, session %s, agent %s\n\nIn another terminal:\n\n    %s\n\n", r.BaseURL, r.SessionID, s.agent, r.attachLine())
	return err
}

// catchSignals makes the signals that end the program wait for awaitEnd. Until
// it is called they end it without ceremony.
func catchSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals
}

// awaitEnd waits until the program is told to end, and returns its exit code.
func awaitEnd(signals <-chan os.Signal, onEOF bool, in io.Reader, done <-chan struct{}) int {
	eof := make(chan struct{})
	if onEOF {
		go func() { // ends with the input, at the latest with the process
			_, _ = io.Copy(io.Discard, in)
			close(eof)
		}()
	}
	select {
	case sig := <-signals:
		signal.Reset(os.Interrupt, syscall.SIGTERM) // a second one kills
		if sig == syscall.SIGTERM {
			return 143
		}
		return 130
	case <-eof:
	case <-done:
	}
	return 0
}
