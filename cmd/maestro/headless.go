package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
	"github.com/seed-028515a8/maestro/internal/transport/stdio"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

func headlessCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "headless", Short: "Serve one session on standard input and output", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := protocolNamed(s.protocol)
			if p != nil && p.ownModel && !cmd.Flags().Changed("agent") && !s.shares() {
				s.agent = ""
			}
			if err := errors.Join(s.applyChord(cmd, os.Getenv), s.check(cmd)); err != nil {
				return err
			}
			if p != nil {
				return headlessForeign(s, p)
			}
			return headless(s)
		},
	}
	s.register(cmd)
	cmd.Flags().StringVar(&s.listen, "listen", "", "also serve the same session on the network, at this address or port on 127.0.0.1")
	cmd.Flags().IntVar(&s.turns, "turns", 0,
		"begin with a page of the history: so many turns before this start, at most 100; 0 means none")
	cmd.Flags().StringVar(&s.protocol, "protocol", "maestro", "protocol of the client on standard input: "+strings.Join(protocolNames(), ", "))
	s.registerSockets(cmd)
	s.chord.register(cmd)
	groupFlags(cmd)
	return cmd
}

// headlessSpelling replaces the flags --headless and --mode headless by the command.
// Clients of other implementations pass those flags.
func headlessSpelling(args []string) []string {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return args
	}
	for i, arg := range args {
		switch {
		case arg == "--headless", arg == "--mode=headless":
			return slices.Concat([]string{"headless"}, args[:i], args[i+1:])
		case arg == "--mode" && i+1 < len(args) && args[i+1] == "headless":
			return slices.Concat([]string{"headless"}, args[:i], args[i+2:])
		}
	}
	return args
}

// failHeadless tells the client on standard output that the program could not start
// (R17).
func failHeadless(failed error) error {
	text, err := contracts.EncodeEvent(&contracts.ErrorEvent{
		Message: "Headless startup failed: " + failed.Error(), Fatal: true, ErrorType: contracts.ErrorFatal,
	})
	if err == nil {
		_, err = fmt.Fprintf(os.Stdout, "%s\n", text.Body)
	}
	return err
}

func headless(s settings) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a broken pipe is an error of Write and must not end the process
	log := s.log()
	ctx, started := untilSignal()
	s.session.Shared = s.shares()
	m, err := newSessions(s, log)
	if err != nil {
		return err
	}
	h, steps, err := shareHeadless(ctx, s, m, log)
	if err != nil {
		return err
	}
	started()
	conn := stdio.New(os.Stdin, os.Stdout, s.lineBytes)
	gone := make(chan struct{})
	go func() { // ends with the input, or when the session closes the connection
		defer close(gone)
		if err := h.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{Turns: s.turns}); err != nil {
			log.Debug("local client", "err", err)
		}
	}()
	err = awaitEnd(ctx, false, nil, gone)
	leave(log, append(steps, m.Observer.Shutdown)...)
	return err
}

// shares reports whether other clients than the local one can attach.
func (s *settings) shares() bool { return s.listen != "" || len(s.sockets) > 0 }

// shareHeadless opens the session and serves it to the clients beside the local one.
// The steps end it.
func shareHeadless(ctx context.Context, s settings, m *wiring.Sessions, log *slog.Logger) (h *hub.Hub, steps []func(context.Context) error, err error) {
	id := "sess_" + uuid.NewString()
	if s.stateDir != "" {
		m.Dir = m.WorkspaceDir(s.stateDir)
		if s.protocol != chordName { // its clients name the session that they continue
			id = wiring.FirstSession
		}
	}
	h, err = m.Open(ctx, hub.Key{ID: cmp.Or(s.chord.resume, id)}, hub.OpenOptions{Create: s.chord.resume == ""})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	steps = append(steps, h.Close)
	s.chord = chordFlags{} // clients on sockets have the same session, and no rules that last
	others, err := listenSockets(&s, wiring.OnlySession(h), log)
	if err == nil {
		others.accept()
		steps = append(steps, others.close)
	}
	if err == nil && s.listen != "" {
		var n *network
		if n, err = share(s, m, h, log); err == nil {
			steps = append(steps, n.close)
		}
	}
	if err != nil {
		leave(log, steps...)
	}
	return h, steps, err
}

// share serves the session on the network.
func share(s settings, m *wiring.Sessions, h *hub.Hub, log *slog.Logger) (*network, error) {
	n, err := listenFor(s, cmp.Or(s.stateDir, defaultStateRoot()), wiring.Backend{
		Find: func(_ context.Context, want httpapi.Wanted) (*hub.Hub, bool, error) {
			if want.ID != "" && want.ID != h.SessionID() {
				return nil, false, hub.ErrUnknownSession
			}
			return h, false, nil
		},
		Dir: m.Dir, Admit: m.Admit, Evict: h.Evict, Observer: m.Observer,
		Ready: func() (refusal *contracts.Error, draining bool) {
			if refusal = m.CheckWritable(); refusal == nil && !h.Ready() {
				refusal = httpapi.ErrNotAttaching
			}
			return refusal, false
		},
	}, log)
	if err != nil {
		return nil, err
	}
	n.accept()
	ready := n.readiness(h.SessionID())
	if err := writeReady(s.readyFile, ready); err != nil {
		return nil, errors.Join(err, n.close(context.Background()))
	}
	_, err = fmt.Fprintln(os.Stderr, ready.attachLine())
	return n, err
}
