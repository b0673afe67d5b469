package main

import (
	"net/url"
	"os"
	"path/filepath"

	"github.com/seed-028515a8/maestro/contracts"
)

// serve starts the built program with an agent, and workspace and state in dir,
// where it restores what an earlier one left. flags come after its own.
func (t *trial) serve(dir, agent string, flags ...string) *server {
	workspace := filepath.Join(dir, "workspace")
	check(os.MkdirAll(workspace, 0o700))
	s := t.launch("maestro", append([]string{"serve", "--agent", agent, "--auth", "off", "--listen", "127.0.0.1:0",
		"--workspace", workspace, "--state-dir", filepath.Join(dir, "state"), "--ready-stdout", "--exit-on-stdin-eof"}, flags...)...)
	var ready struct {
		BaseURL   string `json:"baseUrl"`
		SessionID string `json:"sessionId"`
	}
	check(s.greeted(&ready))
	s.addr, s.session = must(url.Parse(ready.BaseURL)).Host, ready.SessionID
	s.dialect = attachDialect(s.session, contracts.RoleViewer)
	return s
}
