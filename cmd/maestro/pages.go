package main

import (
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/seed-028515a8/maestro/internal/workspace"
	"github.com/seed-028515a8/maestro/web"
)

const agentWritesPages = "the agent can change the pages, which act with the login of the user who opens them"

// openPages returns the handler of the directory of --pages, or nil without the flag, and whether the agent
// can change the pages. It refuses a directory with files that hold secrets, because everybody who
// reaches the server may read the pages. root is the state directory.
func (s *settings) openPages(root string) (handler http.Handler, agentWrites bool, err error) {
	if s.pages == "" {
		return nil, false, nil
	}
	dir, err := filepath.EvalSymlinks(s.pages)
	if err != nil {
		return nil, false, fmt.Errorf("--pages: %w", err)
	}
	for _, secret := range []struct{ flag, path string }{
		{"state-dir", root}, {"tls-key", s.tlsKey}, {"jwt-key", s.jwtKey}, {"metrics-token-file", s.metricsTokenFile},
		{"mcp-config", s.mcpConfig}, {"notify", s.notify}, {"config", s.config},
	} {
		for _, path := range locations(secret.path) {
			if within(path, dir) || secret.flag == "state-dir" && within(dir, path) {
				return nil, false, fmt.Errorf("--pages %s: everybody could read what --%s keeps there: choose another directory", s.pages, secret.flag)
			}
		}
	}
	work, err := filepath.Abs(s.workspace)
	if err != nil {
		return nil, false, fmt.Errorf("--workspace: %w", err)
	}
	work = workspace.Resolve(work)
	if handler, err = web.Pages(dir); err != nil {
		return nil, false, fmt.Errorf("--pages: %w", err)
	}
	return handler, within(dir, work) || within(work, dir), nil
}

// locations returns the path of a file, which need not exist yet, and its target if it is a
// symbolic link. It returns none for an empty path.
func locations(path string) []string {
	if path == "" {
		return nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	return []string{filepath.Join(workspace.Resolve(filepath.Dir(path)), filepath.Base(path)), workspace.Resolve(path)}
}

// within reports whether path is dir or below it. Both are absolute.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
