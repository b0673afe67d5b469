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

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/agent/acpserver"
	"github.com/seed-028515a8/maestro/internal/sleep"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// maxLocalServers bounds the servers that one editor makes this program start.
const maxLocalServers = 16

type acpFlags struct {
	attachFlags // view, take, session, create, tokenFile and name
	server      settings
}

func acpCommand() *cobra.Command {
	var flags acpFlags
	cmd := &cobra.Command{
		Use: "acp [URL]", Short: "Be an agent for editors that speak the Agent Client Protocol", Args: cobra.MaximumNArgs(1),
		Long: `Acp speaks the Agent Client Protocol on its standard streams. Editors start it.

With the URL of a server, the editor attaches to sessions of that server as a client.
Without a URL, this process runs a server for each directory that the editor opens, on a
loopback port and with the flags of serve. The server ends with the editor. Its sessions
can be loaded the next time.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, servers, err := flags.options(cmd, args)
			if err != nil {
				return err
			}
			return runACP(cmd.InOrStdin(), cmd.OutOrStdout(), opts, servers)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.server.workspace, "workspace", "", "directory that the agent works in; default: the directory that the editor opens")
	flags.server.registerShared(cmd)
	flags.server.registerSessions(cmd)
	f.BoolVar(&flags.view, "view", false, "watch only")
	f.BoolVar(&flags.take, "take", false, "take control when attaching, also from another client")
	f.StringVar(&flags.session, "session", "", "session `ID` that new conversations attach to; default: a new session each time")
	f.BoolVar(&flags.create, "create", false, "with a URL: create the session of --session if it does not exist; without a URL it is always created")
	f.StringVar(&flags.tokenFile, "token-file", tokenFile(defaultStateRoot()), "with a URL: `FILE` with the server's token")
	f.StringVar(&flags.name, "name", "", "name that other clients see; default: the name of the editor")
	groupFlags(cmd)
	return cmd
}

// options returns the options of the editor's server. servers is nil if the command
// line names another server.
func (f *acpFlags) options(cmd *cobra.Command, args []string) (opts acpserver.Options, servers *localServers, err error) {
	f.server.listen = "127.0.0.1:0"
	if f.view && f.take {
		return opts, nil, usage{errViewerTakes}
	}
	if err := f.server.check(cmd); err != nil {
		return opts, nil, err
	}
	opts = acpserver.Options{View: f.view, Take: f.take, Name: f.name, Version: wiring.Version(), Log: f.server.log()}
	if len(args) == 0 {
		if cmd.Flags().Changed("token-file") {
			return opts, nil, usage{errors.New("--token-file needs a URL: without one the token is in --state-dir")}
		}
		opts.Session, opts.Create = f.session, true // nobody else could have created it
		servers = &localServers{settings: f.server, here: f.server.workspace == "", log: opts.Log, open: map[string]*server{}}
		opts.Open = servers.find
		return opts, servers, nil
	}
	if flag := otherFlag(cmd, withURL); flag != "" {
		return opts, nil, usage{fmt.Errorf("--%s cannot be used with a URL: leave out the URL, or start that server with it", flag)}
	}
	server, err := f.address(args[0])
	if err != nil {
		return opts, nil, usage{err}
	}
	if f.share != "" {
		return opts, nil, usage{errors.New("acp takes no link: write the text after #share= to a file for --token-file")}
	}
	if f.create && f.session == "" {
		return opts, nil, usage{errors.New("--create needs --session")}
	}
	token, err := f.token()
	if err != nil {
		return opts, nil, err
	}
	opts.Session, opts.Create = f.session, f.create
	opts.Open = func(context.Context, string) (acpserver.Server, error) {
		return acpserver.Server{URL: server.String(), TokenFile: token}, nil
	}
	return opts, nil, nil
}

// withURL are the flags that are allowed with the URL of a server.
var withURL = []string{"view", "take", "session", "create", "token-file", "name", "log-level", "log-format"}

// otherFlag returns a given flag that is none of those, empty without one.
func otherFlag(cmd *cobra.Command, those []string) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(those, f.Name) {
			name = f.Name
		}
	})
	return name
}

// runACP serves the editor until it leaves or a signal comes, and then ends the servers
// that were started for it.
func runACP(in io.Reader, out io.Writer, opts acpserver.Options, own *localServers) error {
	ctx, started := untilSignal()
	started()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // an editor that has ended must not end this process before its servers
	give := func() {                                        // bounds the time for an editor that has left and does not read
		time.AfterFunc(2*leavePatience, func() { os.Exit(exitFailure) })
	}
	defer context.AfterFunc(ctx, give)() // the same after a signal
	err := acpserver.Serve(ctx, &untilEOF{in: in, end: give}, out, opts)
	if own != nil {
		leave(opts.Log, own.close)
	}
	return err
}

// An untilEOF is a reader that calls end at its end.
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

// localServers are the servers of this process, by directory.
type localServers struct {
	settings
	here bool // the requested directory counts, and not that of the settings
	log  *slog.Logger

	mu     sync.Mutex // held while a server is started
	open   map[string]*server
	latest string // directory of the server that was started last; empty if there is none
}

// find returns the server for a directory, and starts it if there is none. Without
// a directory it returns the server that was started last.
func (l *localServers) find(_ context.Context, dir string) (acpserver.Server, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.here || dir == "" {
		dir = cmp.Or(l.latest, l.workspace, ".")
	}
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return acpserver.Server{}, err
	}
	v := l.open[real]
	if v == nil && len(l.open) >= maxLocalServers {
		return acpserver.Server{}, &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many directories are open"}
	}
	if v == nil {
		if v, err = l.start(real); err != nil {
			return acpserver.Server{}, err
		}
		l.open[real], l.latest = v, real
	}
	r := v.net.readiness(wiring.FirstSession)
	return acpserver.Server{
		URL: r.BaseURL, TokenFile: r.TokenFile, Workspace: v.Sessions.Root(),
		Ready: func(ctx context.Context, id string, create bool) error {
			_, _, err := v.Directory.Get(ctx, hub.Key{ID: id}, hub.OpenOptions{Create: create})
			return err
		},
	}, nil
}

// start starts a server for a directory as serve does, without a first session.
func (l *localServers) start(dir string) (*server, error) {
	s := l.settings
	s.workspace, s.session.NoReturn = dir, true // the next server will have another port
	v, err := newServer(s, l.log)
	if err != nil {
		return nil, err
	}
	v.Directory.Open = func(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
		return openSoon(ctx, v.Sessions, key, options)
	}
	v.net.accept()
	l.log.Info("server for the editor", "url", v.net.readiness(wiring.FirstSession).BaseURL, "workspace", v.Sessions.Root())
	return v, nil
}

// openSoon opens a session. If an editor restarts this program, the earlier process may
// still have the session. openSoon waits for its end until leavePatience or ctx.
func openSoon(ctx context.Context, m *wiring.Sessions, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	taken := &contracts.Error{Code: contracts.CodeRuntimeOwnedElsewhere}
	late := time.Now().Add(leavePatience)
	for {
		h, err := m.Open(ctx, key, options)
		if !errors.Is(err, taken) || time.Now().After(late) || sleep.For(ctx, leavePatience/200) != nil {
			return h, err
		}
	}
}

// close ends all servers. Their runs are stopped, and open questions stay open.
func (l *localServers) close(ctx context.Context) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.open {
		err = errors.Join(err, v.close(ctx))
	}
	return err
}
