package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/journal"
)

// leavePatience bounds an orderly end of the program.
const leavePatience = 8 * time.Second

// firstSession is the session of a workspace that exists from the start.
const firstSession = "main"

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
	s.register(cmd)
	cmd.Flags().StringVar(&s.listen, "listen", defaultListen, "address to listen on, or a port on 127.0.0.1")
	s.registerServer(cmd)
	s.registerSessions(cmd)
	groupFlags(cmd)
	return cmd
}

func serve(s settings, in io.Reader, out io.Writer) error {
	log := s.log()
	ctx, started := untilSignal()
	v, err := newServer(s, log)
	if err != nil {
		return err
	}
	_, _, err = v.open.Get(ctx, hub.Key{ID: firstSession}, hub.OpenOptions{Create: true})
	if errors.Is(err, journal.ErrCorrupt) { // the others are served
		log.Error("session set aside", "session", firstSession, "err", err)
		err = nil
	}
	v.net.accept(log) // not before: a client may ask for the first session at once
	if err == nil {
		err = announce(s, v.net.readiness(firstSession), out)
	}
	if err == nil {
		started()
		err = awaitEnd(ctx, s.eofExit, in, nil)
	}
	leave(log, v.close)
	return err
}

// A server serves the sessions of one workspace on the network. The open sessions
// are in a directory, the others on the disk.
type server struct {
	sessions *sessions
	open     *hub.Directory
	net      *network
}

// newServer opens the workspace and listens. Clients that connect wait until the
// network accepts.
func newServer(s settings, log *slog.Logger) (*server, error) {
	m, err := newSessions(s, log)
	if err != nil {
		return nil, err
	}
	root := cmp.Or(s.stateDir, defaultStateRoot())
	if err := m.keepBelow(root); err != nil {
		return nil, errors.Join(err, m.close(context.Background()))
	}
	v := &server{sessions: m, open: &hub.Directory{Open: m.open, Max: s.maxSessions, Log: log}}
	v.net, err = listen(s, root, backend{
		dir: m.dir, admit: m.admit, find: v.find, list: v.list, evict: v.evict,
		ready: func() (ready, draining bool) { return m.writable(), false }, observer: m.observer,
	}, log)
	if err != nil {
		return nil, errors.Join(err, m.close(context.Background()))
	}
	return v, nil
}

// close suspends the sessions and ends the server, which has been accepting.
func (v *server) close(ctx context.Context) error {
	return errors.Join(v.open.Suspend(ctx), v.net.close(ctx), v.sessions.close(ctx))
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

// startPatience bounds the rest of a start that a signal has ended. What opens a
// file that never opens, such as one of a dead network file system, cannot be
// interrupted.
const startPatience = 2 * time.Second

// untilSignal returns a context that ends with the first signal that asks the
// program to end; its cause is the exit code. A second signal ends the program
// at once. started says that the program has started: until then, the first
// signal ends it after startPatience at the latest.
func untilSignal() (ctx context.Context, started func()) {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	up := make(chan struct{})
	go func() { // ends with the process
		first := codeOf(<-signals)
		end(first)
		select {
		case <-up: // an orderly end has bounds of its own
		case sig := <-signals:
			os.Exit(int(codeOf(sig)))
		case <-time.After(startPatience):
			os.Exit(int(first))
		}
		os.Exit(int(codeOf(<-signals)))
	}()
	return ctx, func() { close(up) }
}

// codeOf is the exit code of a program that a signal has ended.
func codeOf(sig os.Signal) exit {
	if number, ok := sig.(syscall.Signal); ok {
		return 128 + exit(number)
	}
	return exitFailure
}

// awaitEnd waits until the program is told to end. Its error is the exit code
// of a signal.
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

// leave takes the steps in their order, and gives up after leavePatience: the
// process is about to end either way.
func leave(log *slog.Logger, steps ...func(context.Context) error) {
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
	case <-ctx.Done():
		log.Error("gave up on an orderly end")
	}
}
