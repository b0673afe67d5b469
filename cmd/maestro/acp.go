package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-028515a8/maestro/agent/acpserver"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

// maxHouses bounds the servers that one editor makes this program start.
const maxHouses = 16

// acpFlags is what the command line says beside what a server is told.
type acpFlags struct {
	attachFlags // view, take, session, create, tokenFile and name
	server      settings
	here        bool // the editor's directory says what to work on
}

// acpCommand returns the command that makes this program an agent for editors.
func acpCommand(defaults attachDefaults) *cobra.Command {
	var flags acpFlags
	cmd := &cobra.Command{
		Use: "acp [URL]", Short: "Be an agent for editors that speak the Agent Client Protocol", Args: cobra.MaximumNArgs(1),
		Long: `Acp speaks the Agent Client Protocol on its standard streams. Editors start it.

With the URL of a server, the editor attaches to sessions of that server as a client.
Without a URL, this process runs a server for each directory that the editor opens, on a
loopback port and with the flags of serve. The server ends with the editor. Its sessions
can be loaded the next time.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, houses, err := flags.options(cmd, args, defaults)
			if err != nil {
				return err
			}
			return runACP(cmd.InOrStdin(), cmd.OutOrStdout(), opts, houses)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.server.workspace, "workspace", "", "directory that the agent works in; default: the directory that the editor opens")
	flags.server.registerShared(cmd)
	f.DurationVar(&flags.server.idleTTL, "idle-ttl", 30*time.Minute, "time after which an unused session is suspended and leaves memory; 0 means never")
	flags.server.limits.registerSessions(cmd)
	f.BoolVar(&flags.view, "view", false, "watch only")
	f.BoolVar(&flags.take, "take", false, "take control when attaching, also from another client")
	f.StringVar(&flags.session, "session", "", "session `ID` that new conversations attach to; default: a new session each time")
	f.BoolVar(&flags.create, "create", false, "with a URL: create the session of --session if it does not exist; without a URL it is always created")
	f.StringVar(&flags.tokenFile, "token-file", defaults.TokenFile, "with a URL: `FILE` with the server's token")
	f.StringVar(&flags.name, "name", "", "name that other clients see; default: the name of the editor")
	groupFlags(cmd)
	return cmd
}

// options turns the command line into how an editor is served. houses is nil if
// the server is somebody else's.
func (f *acpFlags) options(cmd *cobra.Command, args []string, defaults attachDefaults) (acpserver.Options, *houses, error) {
	f.server.listen, f.here = "127.0.0.1:0", f.server.workspace == ""
	if f.view && f.take {
		return acpserver.Options{}, nil, usage{errViewerTakes}
	}
	if err := f.server.check(cmd); err != nil {
		return acpserver.Options{}, nil, err
	}
	opts := acpserver.Options{View: f.view, Take: f.take, Name: f.name, Version: defaults.Version, Log: f.server.log()}
	if len(args) == 0 {
		if cmd.Flags().Changed("token-file") {
			return opts, nil, usage{errors.New("--token-file needs a URL: without one the token is in --state-dir")}
		}
		opts.Session, opts.Create = f.session, true // there is nobody else who could have made it
		h := &houses{settings: f.server, here: f.here, log: opts.Log, open: map[string]*lodging{}}
		opts.Open = h.find
		return opts, h, nil
	}
	if flag := otherFlag(cmd, withURL); flag != "" {
		return opts, nil, usage{fmt.Errorf("--%s cannot be used with a URL: leave out the URL, or start that server with it", flag)}
	}
	address, err := f.address(args[0])
	if err != nil {
		return opts, nil, usage{err}
	}
	if f.create && f.session == "" {
		return opts, nil, usage{errors.New("--create needs --session")}
	}
	token, err := f.token(defaults)
	if err != nil {
		return opts, nil, err
	}
	opts.Session, opts.Create = f.session, f.create
	server := acpserver.Server{URL: address, TokenFile: token}
	opts.Open = func(context.Context, string) (acpserver.Server, error) { return server, nil }
	return opts, nil, nil
}

// withURL are the flags that say something where the server is somebody else's.
var withURL = []string{"view", "take", "session", "create", "token-file", "name", "log-level", "log-format"}

// otherFlag returns a flag that was given and is none of those, empty if there is
// none.
func otherFlag(cmd *cobra.Command, those []string) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(those, f.Name) {
			name = f.Name
		}
	})
	return name
}

// runACP serves the editor until it leaves or a signal comes, and then ends what
// was started for it.
func runACP(in io.Reader, out io.Writer, opts acpserver.Options, own *houses) error {
	ctx, started := untilSignal()
	started()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // an editor that is gone must not end us before its servers
	give := func() {                                        // an editor that has left and still holds our output back must not hold us
		time.AfterFunc(2*leavePatience, func() { os.Exit(exitFailure) })
	}
	defer context.AfterFunc(ctx, give)() // nor one that lives and does not read
	err := acpserver.Serve(ctx, &untilEOF{in: in, end: give}, out, opts)
	if own != nil {
		leave(opts.Log, own.close)
	}
	return err
}

// untilEOF is a reader that tells when it has ended.
type untilEOF struct {
	in  io.Reader
	end func()
}

func (r *untilEOF) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if err != nil {
		r.end()
	}
	return n, err
}

// houses are the servers of this process, by directory.
type houses struct {
	settings
	here bool // the directory that is asked for counts, not the one of the settings
	log  *slog.Logger

	mu     sync.Mutex // held while one is started
	open   map[string]*lodging
	latest string // directory of the server that was started last; empty if there is none
}

// A lodging is one server of this process.
type lodging struct {
	server acpserver.Server
	close  []func(context.Context) error // in this order
}

// find returns the server for a directory, and starts it if there is none. Without
// a directory it is the one that was started last.
func (h *houses) find(_ context.Context, dir string) (acpserver.Server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.here || dir == "" {
		dir = cmp.Or(h.latest, h.workspace, ".")
	}
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return acpserver.Server{}, err
	}
	if open := h.open[real]; open != nil {
		return open.server, nil
	}
	if len(h.open) >= maxHouses {
		return acpserver.Server{}, &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many directories are open"}
	}
	s := h.settings
	s.workspace = real
	open, err := start(s, h.log)
	if err != nil {
		return acpserver.Server{}, err
	}
	h.open[real], h.latest = open, real
	return open.server, nil
}

// start starts a server as serve does, without a session that nobody asked for.
func start(s settings, log *slog.Logger) (*lodging, error) {
	m, err := newSessions(s, log)
	if err != nil {
		return nil, err
	}
	root := cmp.Or(s.stateDir, defaultStateRoot())
	if err := m.keepBelow(root); err != nil {
		return nil, errors.Join(err, m.close(context.Background()))
	}
	m.noReturn = true // the port is another each time
	d := &hub.Directory{Open: m.openSoon, Max: s.limits.sessions, Log: log}
	shelf := &shelf{m, d}
	n, err := listen(s, root, house{
		dir: m.dir, admit: m.admit, find: shelf.find, list: shelf.list, evict: shelf.evict,
		observer: m.observer,
	}, log)
	if err != nil {
		return nil, errors.Join(err, m.close(context.Background()))
	}
	n.accept(log)
	r := n.readiness(firstSession)
	log.Info("server for the editor", "url", r.BaseURL, "workspace", m.work.Root())
	return &lodging{
		server: acpserver.Server{
			URL: r.BaseURL, TokenFile: r.TokenFile, Workspace: m.work.Root(),
			Ready: func(ctx context.Context, id string, create bool) error {
				_, _, err := d.Get(ctx, hub.Key{ID: id}, hub.OpenOptions{Create: create})
				return err
			},
		},
		close: []func(context.Context) error{d.Suspend, n.close, m.close},
	}, nil
}

// openSoon opens a session. An editor that starts this program anew may do so while
// its predecessor ends, which then still has the session. ctx ends the wait for that.
func (m *sessions) openSoon(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	taken := &contracts.Error{Code: contracts.CodeRuntimeOwnedElsewhere}
	late := time.Now().Add(leavePatience)
	for {
		h, err := m.open(ctx, key, options)
		if !errors.Is(err, taken) || time.Now().After(late) {
			return h, err
		}
		select {
		case <-time.After(leavePatience / 200):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// close ends all servers. What runs there is stopped, and what waits there for an
// answer waits on.
func (h *houses) close(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, open := range h.open {
		for _, step := range open.close {
			errs = append(errs, step(ctx))
		}
	}
	return errors.Join(errs...)
}
