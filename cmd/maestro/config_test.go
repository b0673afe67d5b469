package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configured returns the settings of serve for flags, variables and the text of a file.
func configured(t *testing.T, file string, env map[string]string, args ...string) (*settings, *cobra.Command, map[string]string, error) {
	t.Helper()
	s := &settings{}
	cmd := &cobra.Command{Use: "serve"}
	s.register(cmd)
	s.registerSessions(cmd)
	if file != "" {
		path := filepath.Join(t.TempDir(), "maestro.toml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	from, err := applySources(cmd,
		func(name string) (string, bool) { text, ok := env[name]; return text, ok },
		func(name string) error { delete(env, name); return nil })
	return s, cmd, from, err
}

func TestFlagsPrecedeVariablesAndVariablesPrecedeTheFile(t *testing.T) {
	env := map[string]string{
		"MAESTRO_LEASE_TTL": "7s", "MAESTRO_HEADLESS_CONNECTION_IDLE_MS": "9000",
		"MAESTRO_HEADLESS_SUBSCRIPTION_IDLE_MS": " 7000 ", "MAESTRO_FSYNC": "true", "MAESTRO_MAX_READ_BYTES": "5",
		"MAESTRO_ALLOW": "read\nbash(a,b)", "MAESTRO_ALLOW_HOST": "a,b",
	}
	file := `
		lease-ttl = "30s"
		max-read-bytes = 12
		max-commands = 3
		attach-rate = 1.5
		strict = true
		approvals = ["2:bash", "3"]
		deny = ["x", "y,z"]
		request-timeout = { approval = "10m", user_input = "never" }`
	s, _, from, err := configured(t, file, env, "--max-read-bytes", "4")
	if err != nil {
		t.Fatal(err)
	}
	if s.session.LeaseTTL != 7*time.Second || s.session.SubscriptionTTL != 7*time.Second || s.tools.MaxReadBytes != 4 || s.tools.MaxCommands != 3 {
		t.Errorf("got lease %v, subscription %v, read %d, commands %d, want 7s, 7s, 4, 3",
			s.session.LeaseTTL, s.session.SubscriptionTTL, s.tools.MaxReadBytes, s.tools.MaxCommands)
	}
	if !s.fsync || !s.session.Strict || s.rates.AttachRate != 1.5 || len(s.session.Votes) != 2 || s.session.Votes[1].Votes != 3 {
		t.Errorf("got fsync %t, strict %t, rate %v, votes %v", s.fsync, s.session.Strict, s.rates.AttachRate, s.session.Votes)
	}
	for what, got := range map[string][]string{
		"read|bash(a,b)": s.runtime.Allow, "a|b": s.access.Hosts, "x|y,z": s.runtime.Deny,
		"10m|never": {s.requests["approval"], s.requests["user_input"]},
	} {
		if strings.Join(got, "|") != what {
			t.Errorf("got %q, want %s", got, what)
		}
	}
	if from["max-read-bytes"] != "flag" || from["lease-ttl"] != "MAESTRO_LEASE_TTL" || !strings.HasSuffix(from["strict"], "maestro.toml") || from["idle-ttl"] != "" {
		t.Errorf("got sources %v", from)
	}
	if len(env) != 2 { // those of other implementations, which children may need
		t.Errorf("got %v left in the environment, want only the variables that end in _MS", env)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for want, c := range map[string]struct {
		file string
		env  map[string]string
	}{
		`no setting "lease_tll"; the nearest is "lease-ttl"`: {file: `lease_tll = "1s"`},
		`no setting "serve"; the nearest is "`:               {file: "[serve]\nlisten = 1"},
		`no setting "config"`:                                {file: `config = "other.toml"`},
		`fsync: strconv.ParseBool`:                           {file: `fsync = "maybe"`},
		`allow: want a list of texts, got 1`:                 {file: `allow = [1]`},
		`lease-ttl: want a text, a number`:                   {file: `lease-ttl = 2020-01-01`},
		`line 1`:                                             {file: `listen = `},
		`the file is longer than`:                            {file: strings.Repeat("#", maxConfigFile+1)},
		`MAESTRO_FSYNC="maybe"`:                              {env: map[string]string{"MAESTRO_FSYNC": "maybe"}},
		`_IDLE_MS="0": want a positive integer`:              {env: map[string]string{"MAESTRO_HEADLESS_CONNECTION_IDLE_MS": "0"}},
		`_IDLE_MS="1s": want a positive integer`:             {env: map[string]string{"MAESTRO_HEADLESS_CONNECTION_IDLE_MS": "1s"}},
		`_IDLE_MS="99999999999999999999": want`:              {env: map[string]string{"MAESTRO_HEADLESS_CONNECTION_IDLE_MS": "99999999999999999999"}},
	} {
		if _, _, _, err := configured(t, c.file, c.env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%v: got %v, want %q", c.file, c.env, err, want)
		}
	}
}

// TestPrintedSettingsAreAFile reads what config prints, and wants the same values.
func TestPrintedSettingsAreAFile(t *testing.T) {
	args := []string{
		"--allow", `bash("a":*)`, "--allow", "read", "--env-pass", "A,B", "--approvals", "2:x", "--request-timeout", "approval=1m,user_input=never",
		"--price", "3,15", "--attach-rate", "-1", "--model-url", "http://127.0.0.1:1/<&>", "--fsync", "--workspace", "a\tb\\c\u202e",
	}
	_, cmd, from, err := configured(t, "", nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	from["fsync"] = "file\nauth = \"off\"\x1b[2J"
	var printed bytes.Buffer
	if err := printSettings(&printed, cmd, from); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(printed.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("got characters that a terminal does not show in\n%q", printed.String())
	}
	_, again, _, err := configured(t, printed.String(), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, printed.String())
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if got, want := again.Flags().Lookup(f.Name).Value.String(), f.Value.String(); f.Name != "config" && got != want {
			t.Errorf("--%s: got %q, want %q", f.Name, got, want)
		}
	})
}

func TestConfigMasksSecretsAndNamesSources(t *testing.T) {
	t.Parallel()
	cmd := program(t, "config", "headless", "--model-url", "https://user:hunter2@models.example", "--agent", "acp:x --api-key sk-ant-api03-hunter2hunter2hunter2")
	cmd.Env = append(cmd.Env, "MAESTRO_IDLE_TIMEOUT=9s")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nidle-timeout = \"9s\" # from MAESTRO_IDLE_TIMEOUT\n", "\nagent = \"acp:x --api-key ", "\n# lease-ttl = \"45s\"\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got no %q in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "hunter2") {
		t.Errorf("got a secret in\n%s", out)
	}
	for _, variable := range []string{"MAESTRO_AGENT=acpx:x --api-key sk-ant-api03-hunter2hunter2hunter2", "MAESTRO_PRICE=sk-ant-api03-hunter2hunter2hunter2"} {
		cmd := program(t, "serve")
		cmd.Env = append(cmd.Env, variable)
		out, err := cmd.CombinedOutput()
		if code := exitCode(t, err); code != exitUsage || strings.Contains(string(out), "hunter2") {
			t.Errorf("%s: got exit code %d and\n%s\nwant the error without the secret", variable, code, out)
		}
	}
}

// TestSettingsAreNotInherited is about an agent that starts a maestro of its own.
func TestSettingsAreNotInherited(t *testing.T) {
	t.Parallel()
	workspace := t.TempDir()
	cmd := program(t, "headless")
	cmd.Env = append(cmd.Env, "MAESTRO_LISTEN=127.0.0.1:0", "MAESTRO_WORKSPACE="+workspace, "MAESTRO_OTHER=kept")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, `{"type":"init","approval_mode":"auto"}`)
	fmt.Fprintln(in, `{"type":"prompt","content":"env > env.txt"}`)
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), `"response_end"`); {
	}
	in.Close()
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	env, err := os.ReadFile(filepath.Join(workspace, "env.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(env); strings.Contains(text, "MAESTRO_LISTEN") || strings.Contains(text, "MAESTRO_WORKSPACE") || !strings.Contains(text, "MAESTRO_OTHER=kept") {
		t.Errorf("got the environment\n%s\nwant no setting of this server in it", text)
	}
}
