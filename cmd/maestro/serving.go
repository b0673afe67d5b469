package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// A server serves the sessions of one workspace on the network.
type server struct {
	*wiring.Server
	net     *network
	sockets sockets
}

// newServer opens the workspace and listens. Clients that connect wait until the
// network accepts.
func newServer(s settings, log *slog.Logger) (*server, error) {
	opts, err := s.sessions(log)
	if err != nil {
		return nil, err
	}
	root := cmp.Or(s.stateDir, defaultStateRoot())
	pages, agentWrites, err := s.openPages(root)
	if err != nil {
		return nil, err
	}
	if agentWrites {
		log.Warn(agentWritesPages, "pages", s.pages, "workspace", s.workspace)
	}
	n, clients, err := listen(s, root, log)
	if err != nil {
		return nil, err
	}
	s.hecate.Vocabulary = wire.Vocabulary(s.hecateVocabulary)
	v := &server{net: n}
	v.Server, err = wiring.NewServer(wiring.ServerOptions{
		Options: opts, Network: clients, StateRoot: root, MaxSessions: s.maxSessions, Undo: s.undo, Notify: s.notify,
		Hecate: s.hecate, Page: true, Pages: pages,
	})
	if err != nil {
		return nil, errors.Join(err, n.Listener.Close())
	}
	if err = n.open(s, v.Network, v.Sessions.Observer); err == nil {
		v.sockets, err = listenSockets(&s, v.OpenFirst, log)
	}
	if err != nil {
		return nil, errors.Join(err, n.Listener.Close(), v.Close(context.Background()))
	}
	return v, nil
}

// sessions returns the options of the sessions.
func (s settings) sessions(log *slog.Logger) (wiring.Options, error) {
	servers, err := s.mcpServers(os.Getenv)
	if err != nil {
		return wiring.Options{}, err
	}
	s.setPolicy()
	s.runtime.Servers = servers
	flag := "--workspace"
	if s.hosted {
		flag = "--workspace-root"
	}
	return wiring.Options{
		Workspace: s.workspace, WorkspaceFlag: flag, Revision: vcs()["vcs.revision"],
		Agent: s.agent, Runtime: s.runtime, Session: s.session, Tools: s.tools,
		RetainBytes: s.retainBytes, RetainAge: s.retainAge, Fsync: s.fsync, HistoryMemory: s.historyMemory, MaxKept: s.maxKept, Log: log,
	}, nil
}

// newSessions opens the workspace of the settings.
func newSessions(s settings, log *slog.Logger) (*wiring.Sessions, error) {
	opts, err := s.sessions(log)
	if err != nil {
		return nil, err
	}
	return wiring.NewSessions(opts)
}

// close suspends the sessions and ends the server, which has been accepting.
func (v *server) close(ctx context.Context) error {
	return errors.Join(v.Suspend(ctx), v.sockets.close(ctx), v.net.close(ctx), v.Close(ctx))
}
