package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/seed-028515a8/maestro/web"
)

// openPages returns what serves the directory of --pages, or nil without it. It refuses a directory
// with files that hold secrets, because everybody who reaches the server may read the pages. root is
// the state directory.
func (s *settings) openPages(root string, log *slog.Logger) (http.Handler, error) {
	if s.pages == "" {
		return nil, nil
	}
	dir, err := filepath.EvalSymlinks(s.pages)
	if err != nil {
		return nil, fmt.Errorf("--pages: %w", err)
	}
	for _, secret := range []struct{ flag, path string }{
		{"state-dir", root}, {"tls-key", s.tlsKey}, {"jwt-key", s.jwtKey}, {"metrics-token-file", s.metricsTokenFile},
		{"mcp-config", s.mcpConfig}, {"notify", s.notify}, {"config", s.config},
	} {
		for _, path := range places(secret.path) {
			if within(path, dir) || secret.flag == "state-dir" && within(dir, path) {
				return nil, fmt.Errorf("--pages %s: everybody could read what --%s keeps there: choose another directory", s.pages, secret.flag)
			}
		}
	}
	workspace, err := filepath.Abs(s.workspace)
	if err != nil {
		return nil, fmt.Errorf("--workspace: %w", err)
	}
	if workspace = resolve(workspace); within(dir, workspace) || within(workspace, dir) {
		log.Warn("the agent can change the pages, which act with the login of the user who opens them", "pages", dir, "workspace", workspace)
	}
	handler, err := web.Pages(dir)
	if err != nil {
		return nil, fmt.Errorf("--pages: %w", err)
	}
	return handler, nil
}

// places returns where a file is or will be, and where it leads if it is a symbolic link. An empty
// path is nowhere.
func places(path string) []string {
	if path == "" {
		return nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	all := []string{filepath.Join(resolve(filepath.Dir(path)), filepath.Base(path))}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		all = append(all, file)
	}
	return all
}

// resolve returns a path without symbolic links. The end of the path need not exist yet.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return real
	}
	return filepath.Join(resolve(filepath.Dir(path)), filepath.Base(path))
}

// within reports whether path is dir or below it. Both are absolute.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
