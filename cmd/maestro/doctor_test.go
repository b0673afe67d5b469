//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	r := serving(t)
	readable := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(readable, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(readable, "token"), []byte("0123456789abcdef\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	pages := pagesDir(t)
	agents := filepath.Join(t.TempDir(), "my agents")
	if err := errors.Join(os.Mkdir(agents, 0o700), os.WriteFile(filepath.Join(agents, "one"), nil, 0o700)); err != nil {
		t.Fatal(err)
	}
	free := []string{"--listen", "127.0.0.1:0"}
	for name, c := range map[string]struct {
		args []string
		env  string
		code int
		want string // in a line
	}{
		"all is well":      {free, "", 0, "ok    port             127.0.0.1:0 is free"},
		"served already":   {[]string{"--listen", strings.TrimPrefix(r.ready.BaseURL, "http://")}, "", exitFailure, "FAIL  port             a maestro already serves on"},
		"no such address":  {[]string{"--listen", "192.0.2.1:0"}, "", exitFailure, "FAIL  port "},
		"for all":          {[]string{"--listen", "0.0.0.0:0"}, "", 0, "reach it without TLS"},
		"no such agent":    {append(free, "--agent", "acp:no-such-program x"), "", exitFailure, "FAIL  agent            exec: \"no-such-program\""},
		"a quoted agent":   {append(free, "--agent", "acp:'"+agents+"/one' x"), "", 0, "ok    agent            " + agents + "/one\n"},
		"in the workspace": {append(free, "--workspace", agents, "--agent", "heddle:model=x ./one"), "", 0, "ok    agent            " + agents + "/one\n"},
		"no key":           {append(free, "--agent", "llm:anthropic/x"), "ANTHROPIC_API_KEY=", exitFailure, "FAIL  agent            ANTHROPIC_API_KEY is not set"},
		"a key":            {append(free, "--agent", "llm:anthropic/x"), "ANTHROPIC_API_KEY=x", 0, "ok    agent            llm:anthropic/x"},
		"token for all":    {append(free, "--state-dir", readable), "", exitFailure, "FAIL  token "},
		"state for all":    {append(free, "--state-dir", readable), "", exitFailure, "note  state directory  " + readable + " has the mode 0755"},
		"no workspace":     {append(free, "--workspace", "/no/such/directory"), "", exitFailure, "FAIL  workspace "},
		"no pages":         {append(free, "--pages", "/no/such/directory"), "", exitFailure, "FAIL  pages            --pages: "},
		"pages of agents":  {append(free, "--pages", pages, "--workspace", pages), "", 0, "note  pages            " + pages},
		"no state":         {append(free, "--state-dir", "/dev/null/x"), "", exitFailure, "FAIL  state directory "},
		"no token":         {append(free, "--auth", "off"), "", 0, "note  token            --auth off"},
		"few files":        {append(free, "--max-connections", "99999999"), "", 0, "note  open files "},
		"through a proxy":  {[]string{"--listen", "0.0.0.0:0"}, "HTTP_PROXY=http://user:secret@proxy.example:3128", 0, "note  proxy            requests to this server go through http://user:xxxxx@proxy.example:3128"},
		"a wrong flag":     {[]string{"--lease-ttl", "-1s"}, "", exitUsage, "--lease-ttl -1s must be positive"},
		"from environment": {nil, "MAESTRO_LISTEN=127.0.0.1:0", 0, "ok    port             127.0.0.1:0 is free"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, append([]string{"doctor"}, c.args...)...)
			cmd.Env = append(cmd.Env, "HTTP_PROXY=", "http_proxy=", c.env)
			out, err := cmd.CombinedOutput()
			if got := exitCode(t, err); got != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf("got %d, want %d and %q in\n%s", got, c.code, c.want, out)
			}
		})
	}
}

// Everybody may make a directory in the temporary directory of the system, and would know the
// token in it.
func TestStateOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	state := filepath.Join(temp, fmt.Sprintf("maestro-%d", os.Getuid()))
	for _, c := range []struct {
		made bool // by the test, so that all may write to it
		code int
		want string
	}{{false, 0, "ok    state directory  " + state + "\n"}, {true, exitFailure, "the state directory " + state + " was made by another user"}} {
		if c.made {
			if err := os.Chmod(state, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		cmd := program(t, "doctor", "--listen", "127.0.0.1:0")
		cmd.Env = append(cmd.Env, "HOME=", "XDG_STATE_HOME=", "TMPDIR="+temp)
		out, err := cmd.CombinedOutput()
		if got := exitCode(t, err); got != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("got %d, want %d and %q in\n%s", got, c.code, c.want, out)
		}
	}
}
