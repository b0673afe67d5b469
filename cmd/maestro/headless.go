package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/transport/stdio"
)

func headlessCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "headless", Short: "Speak the protocol on standard input and output", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			err := s.check()
			if err == nil {
				return headless(s)
			}
			return failHeadless(err)
		},
	}
	s.register(cmd)
	cmd.Flags().StringVar(&s.listen, "listen", "", "also let clients attach over the network, to the same session")
	return cmd
}

// failHeadless reports a failure where the client looks for it (R17).
func failHeadless(err error) error {
	text, encodeErr := contracts.EncodeEvent(&contracts.ErrorEvent{
		Message: "Headless startup failed: " + err.Error(), Fatal: true, ErrorType: contracts.ErrorFatal,
	})
	if encodeErr == nil {
		_, encodeErr = fmt.Fprintf(os.Stdout, "%s\n", text.Body)
	}
	return &startFailure{errors.Join(err, encodeErr)}
}

func headless(s settings) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a broken pipe is an error of Write, not the end
	log, signals := s.log(), catchSignals()
	m, err := newSessions(s, log)
	if err != nil {
		return failHeadless(err)
	}
	id := "sess_" + uuid.NewString()
	if s.stateDir != "" {
		m.dir, id = m.workspaceDir(s.stateDir), "main"
	}
	m.shared = s.listen != ""
	ctx := context.Background()
	h, err := m.open(ctx, id, true)
	if err != nil {
		return failHeadless(err)
	}
	var n *network
	if s.listen != "" {
		n, err = listen(s, cmp.Or(s.stateDir, defaultStateRoot()), func(_ context.Context, att contracts.Attach) (*hub.Hub, error) {
			if att.SessionID != "" && att.SessionID != id {
				return nil, hub.ErrUnknownSession
			}
			return h, nil
		}, log)
		if err == nil {
			err = writeReady(s.readyFile, n.readiness(id))
		}
		if err != nil {
			return failHeadless(err)
		}
		fmt.Fprintln(os.Stderr, n.readiness(id).attachLine())
	}
	conn := stdio.New(os.Stdin, os.Stdout, stdio.Options{MaxLineBytes: s.limits.lineBytes})
	gone := make(chan struct{})
	go func() { // ends with the input, or when the session closes the connection
		defer close(gone)
		if err := h.Serve(ctx, conn, hub.WireBare, contracts.Attach{}); err != nil {
			log.Debug("local client", "err", err)
		}
	}()
	code := awaitEnd(signals, false, nil, gone)
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	if err := h.Close(ctx); err != nil {
		log.Error("close session", "err", err)
	}
	if n != nil {
		if err := n.close(ctx); err != nil {
			log.Error("close listener", "err", err)
		}
	}
	if code != 0 {
		return exit(code)
	}
	return nil
}
