package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	attach "github.com/seed-028515a8/maestro/transport/http"
	"github.com/seed-028515a8/maestro/transport/stdio"
)

func headlessCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "headless", Short: "Speak the protocol on standard input and output", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := s.check(cmd)
			if err == nil {
				return headless(s)
			}
			return failHeadless(err)
		},
	}
	s.register(cmd)
	cmd.Flags().StringVar(&s.listen, "listen", "", "also let clients attach over the network, to the same session: an address, or a port on 127.0.0.1")
	return cmd
}

// failHeadless reports a failure where the client looks for it (R17). A signal
// is none.
func failHeadless(err error) error {
	if errors.As(err, new(exit)) {
		return err
	}
	text, encodeErr := contracts.EncodeEvent(&contracts.ErrorEvent{
		Message: "Headless startup failed: " + err.Error(), Fatal: true, ErrorType: contracts.ErrorFatal,
	})
	if encodeErr == nil {
		_, encodeErr = fmt.Fprintf(os.Stdout, "%s\n", text.Body)
	}
	return errors.Join(err, encodeErr)
}

func headless(s settings) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a broken pipe is an error of Write, not the end
	log, ctx := s.log(), untilSignal()
	m, err := newSessions(s, log)
	if err != nil {
		return failHeadless(err)
	}
	id := "sess_" + uuid.NewString()
	if s.stateDir != "" {
		m.dir, id = m.workspaceDir(s.stateDir), firstSession
	}
	m.shared = s.listen != ""
	h, err := m.open(ctx, hub.Key{ID: id}, hub.Wish{Create: true})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return failHeadless(err)
	}
	steps := []func(context.Context) error{h.Close}
	if m.shared {
		n, err := share(s, m, h, log)
		if err != nil {
			leave(log, steps...)
			return failHeadless(err)
		}
		steps = append(steps, n.close)
	}
	conn := stdio.New(os.Stdin, os.Stdout, stdio.Options{MaxLineBytes: s.limits.lineBytes})
	gone := make(chan struct{})
	go func() { // ends with the input, or when the session closes the connection
		defer close(gone)
		if err := h.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}); err != nil {
			log.Debug("local client", "err", err)
		}
	}()
	err = awaitEnd(ctx, false, nil, gone)
	leave(log, append(steps, m.observer.Shutdown)...)
	return err
}

// share lets others attach to the session over the network.
func share(s settings, m *sessions, h *hub.Hub, log *slog.Logger) (*network, error) {
	n, err := listen(s, cmp.Or(s.stateDir, defaultStateRoot()), house{
		find: func(_ context.Context, want attach.Wanted) (*hub.Hub, bool, error) {
			if want.ID != "" && want.ID != h.SessionID() { // whoever may come here comes to this one
				return nil, false, hub.ErrUnknownSession
			}
			return h, false, nil
		},
		dir: m.dir, admit: m.admit, evict: h.Evict, observer: m.observer,
	}, log)
	if err != nil {
		return nil, err
	}
	n.accept(log)
	ready := n.readiness(h.SessionID())
	if err := writeReady(s.readyFile, ready); err != nil {
		return nil, errors.Join(err, n.close(context.Background()))
	}
	_, err = fmt.Fprintln(os.Stderr, ready.attachLine())
	return n, err
}
