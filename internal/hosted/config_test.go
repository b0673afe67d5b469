package hosted

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
)

// resolve reads a configuration as the command does.
func resolve(env map[string]string, args ...string) (*Config, error) {
	var c Config
	flags := pflag.NewFlagSet("hosted-runner", pflag.ContinueOnError)
	c.Register(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return &c, c.Resolve(func(name string) string { return env[name] })
}

// folder returns a new directory without symbolic links in its path.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// minimal is the least a runner must be told.
func minimal(t *testing.T) map[string]string {
	return map[string]string{"MAESTRO_RUNNER_SESSION_ID": "mrs_1", "MAESTRO_WORKSPACE_ROOT": folder(t)}
}

// sources is the contract's table of plain texts: the flag, its variables in
// the order that counts, and where the result is found.
var sources = []struct {
	flag      string
	variables []string
	get       func(*Config) string
}{
	{"--runner-session-id", []string{"MAESTRO_RUNNER_SESSION_ID", "REMOTE_RUNNER_SESSION_ID"}, func(c *Config) string { return c.RunnerSessionID }},
	{"--owner-instance-id", []string{"MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID", "REMOTE_RUNNER_OWNER_INSTANCE_ID"}, func(c *Config) string { return c.OwnerInstanceID }},
	{"--workspace-id", []string{"MAESTRO_REMOTE_RUNNER_WORKSPACE_ID", "MAESTRO_WORKSPACE_ID"}, func(c *Config) string { return c.WorkspaceID }},
	{"--agent-run-id", []string{"MAESTRO_AGENT_RUN_ID"}, func(c *Config) string { return c.AgentRunID }},
	{"--maestro-session-id", []string{"MAESTRO_SESSION_ID"}, func(c *Config) string { return c.SessionID }},
	{"--attach-audience", []string{"MAESTRO_ATTACH_AUDIENCE"}, func(c *Config) string { return c.AttachAudience }},
}

func TestFlagBeatsVariablesAndFirstThatIsNotBlankWins(t *testing.T) { // A87
	root := folder(t)
	values := rapid.SampledFrom([]string{"", "  ", "a", " b ", "c\n", "d-e"})
	rapid.Check(t, func(t *rapid.T) {
		env := map[string]string{"WORKSPACE_ROOT": root}
		var args []string
		want := map[string]string{}
		for _, s := range sources {
			var given []string
			if rapid.Bool().Draw(t, s.flag+"?") {
				for range rapid.IntRange(1, 2).Draw(t, "occurrences") { // the last one counts
					given = []string{values.Draw(t, s.flag)}
					args = append(args, s.flag, given[0])
				}
			}
			for _, name := range s.variables {
				env[name] = values.Draw(t, name)
				given = append(given, env[name])
			}
			for _, value := range given {
				if value = strings.TrimSpace(value); value != "" {
					want[s.flag] = value
					break
				}
			}
		}
		c, err := resolve(env, args...)
		if want["--runner-session-id"] == "" {
			if err == nil {
				t.Fatalf("got no error, want one for a runner without a name")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sources {
			if got := s.get(c); got != want[s.flag] {
				t.Errorf("%s: got %q, want %q", s.flag, got, want[s.flag])
			}
		}
	})
}

func TestAddressIsChosenPartByPart(t *testing.T) {
	const listen, host, port = "MAESTRO_HOSTED_RUNNER_LISTEN", "MAESTRO_HOSTED_RUNNER_HOST", "MAESTRO_HOSTED_RUNNER_PORT"
	for _, tt := range []struct {
		args string
		env  map[string]string
		want string
	}{
		{"", nil, ":8080"},
		{"", map[string]string{"PORT": "9"}, ":9"},
		{"", map[string]string{"PORT": "9", port: "10"}, ":10"},
		{"", map[string]string{"PORT": "9", port: "10", listen: "11"}, "127.0.0.1:11"},
		{"", map[string]string{listen: "11", host: "0.0.0.0"}, "0.0.0.0:11"},
		{"", map[string]string{listen: ":11"}, ":11"},
		{"", map[string]string{listen: "0.0.0.0:11"}, "0.0.0.0:11"},
		{"", map[string]string{host: "0.0.0.0"}, "0.0.0.0:8080"},
		{"", map[string]string{listen: "127.0.0.1:11", host: "::1", port: "10"}, "127.0.0.1:11"},
		{"", map[string]string{listen: " 11 ", host: " ::1 "}, "[::1]:11"},
		{"", map[string]string{listen: ":11", host: "localhost"}, "localhost:11"},
		{"--port 12", map[string]string{"PORT": "tcp://10.0.0.1:80"}, ":12"},
		{"--port 12 --host 127.0.0.1", map[string]string{listen: "0.0.0.0:11"}, "127.0.0.1:12"},
		{"--listen 13", map[string]string{listen: "0.0.0.0:11", host: "127.0.0.1"}, "127.0.0.1:13"},
		{"--listen 13", nil, "127.0.0.1:13"},
		{"--listen 13 --port 12", nil, "127.0.0.1:13"},
		{"--listen 13 --host ::", nil, "[::]:13"},
		{"--listen :13", nil, ":13"},
		{"--port 12", map[string]string{listen: "11"}, "127.0.0.1:12"},
		{"--listen [::1]:13 --host 10.0.0.1", nil, "[::1]:13"},
		{"--listen=[::1]:0", nil, "[::1]:0"},
		{"--listen [fe80::1%eth0]:13", nil, "[fe80::1%eth0]:13"},
		{"--host [::1]", nil, "[::1]:8080"},
		{"--port 0", nil, ":0"},
		{"--port 65535", nil, ":65535"},
		{"--port 0080", nil, ":80"},
		{"--listen runner.local:80", nil, "runner.local:80"},
	} {
		env := minimal(t)
		for k, v := range tt.env {
			env[k] = v
		}
		c, err := resolve(env, strings.Fields(tt.args)...)
		if err != nil {
			t.Errorf("%q %v: %v", tt.args, tt.env, err)
		} else if c.Listen != tt.want {
			t.Errorf("%q %v: got %s, want %s", tt.args, tt.env, c.Listen, tt.want)
		}
	}
}

func TestWrongConfigurationIsNamed(t *testing.T) { // A86
	file := filepath.Join(folder(t), "file")
	write(t, file, "")
	const address, port = "must be <host:port> or <port>", "must be a TCP port between 1 and 65535"
	for _, tt := range []struct {
		change string // VARIABLE=value, over the least configuration
		args   string
		want   []string
	}{
		{"MAESTRO_RUNNER_SESSION_ID=", "", []string{"runner-session-id", "MAESTRO_RUNNER_SESSION_ID"}},
		{"MAESTRO_RUNNER_SESSION_ID= \t", "", []string{"runner-session-id"}},
		{"MAESTRO_WORKSPACE_ROOT=", "", []string{"workspace-root", "MAESTRO_WORKSPACE_ROOT"}},
		{"MAESTRO_WORKSPACE_ROOT=" + file, "", []string{"not a directory"}},
		{"MAESTRO_WORKSPACE_ROOT=" + file + "s", "", []string{file + "s", "no such file"}},
		{"", "--listen localhost", []string{"--listen", address}},
		{"", "--listen ::1", []string{address}},
		{"", "--listen [::1]", []string{address}},
		{"", "--listen a:b:1", []string{address}},
		{"", "--listen localhost:", []string{port}},
		{"", "--listen localhost:http", []string{port}},
		{"", "--listen 65536", []string{port}},
		{"", "--port 99999999999999999999", []string{"--port", port}},
		{"", "--port +80", []string{port}},
		{"", "--port -1", []string{port}},
		{"", "--port 8o", []string{port}},
		{"PORT=tcp://10.0.0.1:80", "", []string{"PORT", port}},
		{"MAESTRO_HOSTED_RUNNER_LISTEN=x", "", []string{"MAESTRO_HOSTED_RUNNER_LISTEN", address}},
		{"", "--snapshot-root ../elsewhere", []string{"--snapshot-root", "workspace"}},
		{"", "--restore-manifest a/../../m.json", []string{"--restore-manifest", "workspace"}},
		{"", "--require-owner-header", []string{"--owner-instance-id", "MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID"}},
		{"", "--flush-timeout -1s", []string{"--flush-timeout"}},
		{"", "--flush-timeout soon", []string{"--flush-timeout"}},
		{"", "--colour red", []string{"unknown flag: --colour"}},
		{"", "--workspace-id --port 80", []string{"--workspace-id", "value is missing"}},
		{"", "--workspace-id", []string{"needs an argument", "--workspace-id"}},
	} {
		env := minimal(t)
		if name, value, ok := strings.Cut(tt.change, "="); ok {
			env[name] = value
		}
		_, err := resolve(env, strings.Fields(tt.args)...)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q %q: got %v, want it to say %q", tt.change, tt.args, err, want)
			}
		}
	}
}

func TestPathsAreRealAndCountFromTheWorkspace(t *testing.T) { // A87
	real := folder(t)
	link := filepath.Join(folder(t), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"REMOTE_RUNNER_SESSION_ID": "mrs_1", "WORKSPACE_ROOT": link}
	for _, tt := range []struct {
		args                string
		snapshots, manifest string
	}{
		{"", real + "/.maestro/runner-snapshots", ""},
		{"--snapshot-root snaps/./here --restore-manifest in/m.json", real + "/snaps/here", real + "/in/m.json"},
		{"--snapshot-root /var//snaps --restore-manifest /m.json", "/var/snaps", "/m.json"},
		{"--snapshot-root . --restore-manifest a/../m.json", real, real + "/m.json"},
	} {
		c, err := resolve(env, strings.Fields(tt.args)...)
		if err != nil {
			t.Errorf("%q: %v", tt.args, err)
			continue
		}
		if c.WorkspaceRoot != real || c.SnapshotRoot != tt.snapshots || c.RestoreManifest != tt.manifest {
			t.Errorf("%q: got %s, %s and %q; want %s, %s and %q", tt.args,
				c.WorkspaceRoot, c.SnapshotRoot, c.RestoreManifest, real, tt.snapshots, tt.manifest)
		}
	}
}

func TestRelativeWorkspaceBecomesAbsolute(t *testing.T) {
	root := folder(t)
	if err := os.Mkdir(filepath.Join(root, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	c, err := resolve(map[string]string{"MAESTRO_RUNNER_SESSION_ID": "mrs_1"}, "--workspace-root", "work")
	if want := filepath.Join(root, "work"); err != nil || c.WorkspaceRoot != want {
		t.Errorf("got %+v, %v; want %s", c, err, want)
	}
}

func TestSessionIsConfiguredOrRestoredOrNamedAfterTheRunner(t *testing.T) {
	restored := &contracts.Restored{SessionID: "restored"}
	for _, tt := range []struct {
		configured string
		restored   *contracts.Restored
		want       string
	}{
		{"configured", restored, "configured"},
		{"", restored, "restored"},
		{"", nil, "mrs_1"},
	} {
		c := Config{RunnerSessionID: "mrs_1", SessionID: tt.configured}
		if got := c.Session(tt.restored); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt, got, tt.want)
		}
	}
}

func TestEnvironmentKeepsWhatTheOperatorSet(t *testing.T) {
	c := Config{WorkspaceRoot: "/w"}
	got := c.Environment(func(string) string { return "" })
	want := []string{
		"MAESTRO_HOSTED_RUNNER_MODE=1", "MAESTRO_PROFILE=hosted-runner", "MAESTRO_WEB_REQUIRE_REDIS=0",
		"MAESTRO_WEB_REQUIRE_CSRF=0", "MAESTRO_WEB_REQUIRE_KEY=1", "MAESTRO_AGENT_DIR=/w/.maestro/agent",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = c.Environment(func(string) string { return "mine" })
	want = []string{"MAESTRO_HOSTED_RUNNER_MODE=1", "MAESTRO_WEB_REQUIRE_REDIS=0", "MAESTRO_WEB_REQUIRE_CSRF=0"}
	if !slices.Equal(got, want) {
		t.Errorf("all set: got %q, want %q", got, want)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSessionCanBeNamedInAPath(t *testing.T) {
	for id, want := range map[string]string{
		"mrs_41": "mrs_41", "x/../y": "x_.._y", "a b\x00é": "a_b__", strings.Repeat("x", 200): strings.Repeat("x", 128), ".": "_.", "..": "_..",
	} {
		c := Config{RunnerSessionID: id}
		if got := c.Session(nil); got != want {
			t.Errorf("runner %q: got session %q, want %q", id, got, want)
		}
	}
	c := Config{RunnerSessionID: "r", WorkspaceRoot: t.TempDir(), SessionID: "a/b"}
	if err := c.Resolve(func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "--maestro-session-id") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
