package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/hosted"
	"github.com/seed-028515a8/maestro/internal/observe"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// exitInterrupted is the exit code of a runner whose last drain was interrupted.
const exitInterrupted = 3

func hostedCommand() *cobra.Command {
	var (
		s settings
		c hosted.Config
	)
	cmd := &cobra.Command{
		Use: "hosted-runner", Short: "Serve one session for a control plane, which drains and restores it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(cmd); err != nil {
				return err
			}
			return runHosted(s, c, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	s.registerShared(cmd)
	s.registerServer(cmd)
	c.Register(cmd.Flags())
	cmd.Flags().StringVar(&s.controlTokenFile, "control-token-file", "", "file with the credential that drains the runner; created if missing (default control-token in the state directory)")
	cmd.Flags().StringVar(&s.drainRequests, "drain-requests", "", "what a drain does with open questions: keep those that the agent can act on after a restore, or cancel all (default keep, with --protocol-profile public cancel)")
	complete(cmd, "drain-requests", cobra.ShellCompDirectiveNoFileComp, drains[1:]...)
	groupFlags(cmd)
	return cmd
}

// runHosted serves one session until the control plane, a signal or the end of the
// input ends it.
func runHosted(s settings, c hosted.Config, in io.Reader, out io.Writer) error {
	log := s.log()
	ctx, started := untilSignal()
	if err := c.Resolve(os.Getenv); err != nil {
		return err
	}
	if s.auth == "off" && !onLoopback(c.Listen) {
		return errNotLoopback("--auth off", c.Listen)
	}
	_, restored, err := c.Restore()
	if err != nil {
		return err
	}
	for _, pair := range c.Environment(os.Getenv) {
		name, value, _ := strings.Cut(pair, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if err := os.Chdir(c.WorkspaceRoot); err != nil {
		return err
	}
	s.workspace, s.listen, s.hosted = c.WorkspaceRoot, c.Listen, true
	secrets := s.stateDir // not in the workspace, which the agent and every controller can read
	if s.stateDir == "" {
		s.stateDir = filepath.Join(c.WorkspaceRoot, ".maestro")
		if err := hide(s.stateDir); err != nil {
			return err
		}
		secrets = filepath.Join(defaultStateRoot(), runnerFolder(c))
	}
	if c.AttachAudience != "" {
		s.access.Audience = c.AttachAudience
	}
	r, err := startRunner(ctx, s, c, restored)
	if err != nil {
		return err
	}
	n, err := listenFor(s, secrets, r.backend(secrets), log)
	if err == nil {
		n.accept()
		err = n.announce(s, r.hub.SessionID(), out)
	}
	if err == nil {
		started()
		err = awaitEnd(ctx, s.eofExit, in, failed(r.hub))
	}
	if err == nil {
		err = r.hub.Err() // the control plane starts the next runner, which continues
	}
	if ctx.Err() != nil && n != nil { // a signal: drain the session, or wait for the running drain
		var interrupted bool
		if interrupted, err = r.runner.DrainForShutdown(context.Background()); err == nil && interrupted {
			err = exit(exitInterrupted)
		}
	}
	r.runner.Close()
	steps := []func(context.Context) error{r.hub.Suspend}
	if n != nil {
		steps = append(steps, n.close)
	}
	leave(log, append(steps, r.sessions.Observer.Shutdown)...)
	return err
}

// failed returns a channel that is closed when the session's journal cannot be
// written.
func failed(h *hub.Hub) <-chan struct{} {
	done := make(chan struct{})
	go func() { // ends with the session, at the latest with the process
		<-h.Done()
		if h.Err() != nil {
			close(done)
		}
	}()
	return done
}

// hide creates a directory for the server's files in the workspace, which git and
// searches ignore.
func hide(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString("*\n")
	return errors.Join(err, file.Close())
}

// A hostedSession is the one session of a hosted runner.
type hostedSession struct {
	hub      *hub.Hub
	runner   *hosted.Runner
	sessions *wiring.Sessions
}

func startRunner(ctx context.Context, s settings, c hosted.Config, restored *contracts.Restored) (*hostedSession, error) {
	s.session.Restored = restored
	opts, err := s.sessions(s.log())
	if err != nil {
		return nil, err
	}
	opts.Identity = observe.Identity{Workspace: c.WorkspaceID, AgentRun: c.AgentRunID}
	m, err := wiring.NewSessions(opts)
	if err != nil {
		return nil, err
	}
	m.Dir = filepath.Join(s.stateDir, runnerFolder(c))
	key := hub.Key{ID: c.Session(restored)}
	h, err := m.Open(ctx, key, hub.OpenOptions{Create: true})
	if err != nil {
		return nil, err
	}
	runner, err := hosted.New(hosted.Options{
		Config: c, Session: h, Restored: restored, SessionFile: m.SessionDir(key), Log: s.log(),
	})
	if err != nil {
		return nil, errors.Join(err, h.Suspend(ctx)) // the session stays as it was
	}
	return &hostedSession{hub: h, runner: runner, sessions: m}, nil
}

// runnerFolder returns the folder of a runner's files. A later runner with the same
// name uses it again.
func runnerFolder(c hosted.Config) string {
	return filepath.Join("runners", "r-"+url.PathEscape(c.RunnerSessionID)) // the prefix keeps . and .. harmless
}

// backend gives every client the one session. The credential decides what a client may
// do there. secrets is the directory of the tokens.
func (r *hostedSession) backend(secrets string) wiring.Backend {
	return wiring.Backend{
		Find: func(_ context.Context, want httpapi.Wanted) (*hub.Hub, bool, error) {
			if err := r.runner.CheckSession(want.ID); err != nil {
				return nil, false, err
			}
			select {
			case <-r.hub.Done():
				return nil, false, hub.ErrUnknownSession
			default:
				return r.hub, false, nil
			}
		},
		List: func(p contracts.Principal) *contracts.SessionList {
			list := &contracts.SessionList{Sessions: []contracts.SessionEntry{}}
			if p.SessionID == "" || p.SessionID == r.hub.SessionID() {
				list.Sessions = append(list.Sessions, wiring.Describe(r.hub))
			}
			return list
		},
		Workspace: r.sessions.Root(), Session: r.hub.SessionID(), Dir: secrets, Admit: r.sessions.Admit, Evict: r.hub.Evict,
		Ready: func() (refusal *contracts.Error, draining bool) {
			id := r.runner.Identity()
			if refusal = httpapi.ErrNotAttaching; id.Ready {
				refusal = r.sessions.CheckWritable()
			}
			return refusal, id.Draining
		},
		Runner:   r.runner,
		Observer: r.sessions.Observer,
	}
}
