package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/wiring"
	"github.com/seed-028515a8/maestro/web"
)

// leavePatience bounds an orderly end of the program.
const leavePatience = 8 * time.Second

func serveCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve sessions of one workspace on the network", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(cmd); err != nil {
				return err
			}
			return serve(s, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	registerServe(cmd, &s)
	return cmd
}

// registerServe adds the flags of serve.
func registerServe(cmd *cobra.Command, s *settings) {
	s.register(cmd)
	cmd.Flags().StringVar(&s.listen, "listen", defaultListen, "address to listen on, a port on 127.0.0.1, or systemd[:NAME] for a socket that systemd passes")
	cmd.Flags().StringVar(&s.pages, "pages", "", "directory whose files browsers get below /pages/; its pages act with the login of the user who opens them")
	complete(cmd, "pages", cobra.ShellCompDirectiveFilterDirs)
	s.registerServer(cmd)
	s.registerSessions(cmd)
	s.registerSockets(cmd)
	s.registerHecate(cmd)
	groupFlags(cmd)
}

func serve(s settings, in io.Reader, out io.Writer) error {
	log := s.log()
	systemd := supervised(log)
	ctx, started := untilSignal()
	v, err := newServer(s, log)
	if err != nil {
		return err
	}
	_, _, err = v.Directory.Get(ctx, hub.Key{ID: wiring.FirstSession}, hub.OpenOptions{Create: true})
	if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, hub.ErrUnknownSession) { // damaged, or deleted: the other sessions are served
		log.Error("session set aside", "session", wiring.FirstSession, "err", err)
		err = nil
	}
	v.net.accept() // not before: a client may ask for the first session at once
	v.sockets.accept()
	if err == nil {
		err = v.net.announce(s, wiring.FirstSession, out)
	}
	if err == nil {
		started()
		systemd.tell("READY=1\nSTATUS=listening on " + v.net.Addr().String())
		err = awaitEnd(ctx, s.eofExit, in, nil)
	}
	systemd.tell("STOPPING=1")
	leave(log, v.close)
	return err
}

// announce writes the address of the server for harnesses and people. A person at a
// terminal gets a link that logs a browser in; it does not belong in a log.
func (n *network) announce(s settings, session string, out io.Writer) error {
	r := n.readiness(session)
	if err := writeReady(s.readyFile, r); err != nil {
		return err
	}
	n.log.Info("listening", "url", r.BaseURL, "address", n.Addr().String(), "session", r.SessionID, "agent", mask.Text(s.agent), "version", wiring.Version())
	if n.scheme == "http" && !isLoopback(n.Addr()) && !s.access.BehindTLS {
		n.log.Warn("other machines can reach this server, and nothing encrypts what they send: use --tls-cert, or a proxy with TLS and --behind-tls", "address", n.Addr().String())
	}
	if s.readyStdout {
		return json.NewEncoder(out).Encode(r)
	}
	if s.logFormat == "json" {
		return nil // the log has it
	}
	also := ""
	if tcp, ok := n.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		also = " and all other addresses of this machine"
	}
	_, err := fmt.Fprintf(out, "maestro listens on %s%s, session %s, agent %s\n\n", r.BaseURL, also, r.SessionID, s.agent)
	if err == nil && console.IsTerminal(out) {
		_, err = fmt.Fprintf(out, "In a browser, once and within 10 minutes:\n\n    %s\n\n", r.BaseURL+n.clients.Auth.LoginPath())
	}
	if err == nil && s.pages != "" {
		_, err = fmt.Fprintf(out, "Pages of %s, for a browser that is logged in. A link that ends with &next=%[3]s leads there:\n\n    %[2]s\n\n", s.pages, r.BaseURL+web.PagesPath, web.PagesPath)
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "In another terminal:\n\n    %s\n\n", r.attachLine())
	}
	return err
}

// startPatience bounds the start after a signal. A start cannot be interrupted while it
// opens a file, for example on a dead network file system.
const startPatience = 2 * time.Second

// untilSignal returns a context that ends at the first signal to end the program. Its
// cause is the exit code. A second signal ends the program at once. Until started is
// called, the first signal ends the program after startPatience at the latest.
func untilSignal() (ctx context.Context, started func()) {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	up := make(chan struct{})
	go func() { // ends with the process
		first := codeOf(<-signals)
		end(first)
		select {
		case <-up: // leave bounds the end
		case sig := <-signals:
			os.Exit(int(codeOf(sig)))
		case <-time.After(startPatience):
			os.Exit(int(first))
		}
		os.Exit(int(codeOf(<-signals)))
	}()
	return ctx, func() { close(up) }
}

// codeOf returns the exit code of a program that a signal ended.
func codeOf(sig os.Signal) exit { return 128 + exit(sig.(syscall.Signal)) }

// awaitEnd waits for a signal, for the end of the input if onEOF is set, or for done.
// After a signal its error is the exit code.
func awaitEnd(ctx context.Context, onEOF bool, in io.Reader, done <-chan struct{}) error {
	eof := make(chan struct{})
	if onEOF {
		go func() { // ends with the input, at the latest with the process
			_, _ = io.Copy(io.Discard, in)
			close(eof)
		}()
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-eof:
	case <-done:
	}
	return nil
}

// leave takes the steps in order. It returns after leavePatience at the latest, because
// the process then ends.
func leave(log *slog.Logger, steps ...func(context.Context) error) {
	log.Info("ending")
	ctx, cancel := context.WithTimeout(context.Background(), leavePatience)
	defer cancel()
	left := make(chan struct{})
	go func() { // ends with the steps, at the latest with the process
		defer close(left)
		for _, step := range steps {
			if err := step(ctx); err != nil {
				log.Error("leave", "err", err)
			}
		}
	}()
	select {
	case <-left:
		log.Info("ended")
	case <-ctx.Done():
		log.Error("gave up on an orderly end")
	}
}
