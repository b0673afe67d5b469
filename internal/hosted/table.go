package hosted

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// A setting is one text setting of a runner: a flag, or the first of its
// variables that is not blank.
type setting struct {
	flag      string
	variables []string
	usage     string
	field     func(*Config) *string
}

// settings are all settings that may come from the environment.
var settings = []setting{
	{"runner-session-id", []string{"MAESTRO_RUNNER_SESSION_ID", "REMOTE_RUNNER_SESSION_ID"},
		"name of this runner (required)", func(c *Config) *string { return &c.RunnerSessionID }},
	{"workspace-root", []string{"MAESTRO_WORKSPACE_ROOT", "WORKSPACE_ROOT"},
		"directory that the agent works in (required)", func(c *Config) *string { return &c.WorkspaceRoot }},
	{"listen", []string{"MAESTRO_HOSTED_RUNNER_LISTEN"},
		"address to listen on, as host:port, or a port on 127.0.0.1", func(c *Config) *string { return &c.listen }},
	{"host", []string{"MAESTRO_HOSTED_RUNNER_HOST"},
		"host to listen on (default every interface; 127.0.0.1 if --listen has only a port)", func(c *Config) *string { return &c.host }},
	{"port", []string{"MAESTRO_HOSTED_RUNNER_PORT", "PORT"},
		"port to listen on; 0 means any free port (default " + defaultPort + ")", func(c *Config) *string { return &c.port }},
	{"owner-instance-id", []string{"MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID", "REMOTE_RUNNER_OWNER_INSTANCE_ID"},
		"generation of the runner's owner", func(c *Config) *string { return &c.OwnerInstanceID }},
	{"snapshot-root", []string{"MAESTRO_REMOTE_RUNNER_SNAPSHOT_ROOT", "REMOTE_RUNNER_SNAPSHOT_ROOT"},
		"directory for drain manifests (default " + defaultSnapshots + " in the workspace)", func(c *Config) *string { return &c.SnapshotRoot }},
	{"restore-manifest", []string{"MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST", "REMOTE_RUNNER_RESTORE_MANIFEST"},
		"manifest of the drained session to restore", func(c *Config) *string { return &c.RestoreManifest }},
	{"workspace-id", []string{"MAESTRO_REMOTE_RUNNER_WORKSPACE_ID", "MAESTRO_WORKSPACE_ID"},
		"name of the workspace", func(c *Config) *string { return &c.WorkspaceID }},
	{"agent-run-id", []string{"MAESTRO_AGENT_RUN_ID"},
		"name of the agent run", func(c *Config) *string { return &c.AgentRunID }},
	{"maestro-session-id", []string{"MAESTRO_SESSION_ID"},
		"session to serve (default the restored session, else the runner session id)", func(c *Config) *string { return &c.SessionID }},
	{"attach-audience", []string{"MAESTRO_ATTACH_AUDIENCE"},
		"required audience of JWTs", func(c *Config) *string { return &c.AttachAudience }},
}

// Register adds the flags of a hosted runner.
func (c *Config) Register(flags *pflag.FlagSet) {
	for _, s := range settings {
		flags.Var((*text)(s.field(c)), s.flag, s.usage+" ["+strings.Join(s.variables, ", ")+"]")
	}
	flags.BoolVar(&c.RequireOwnerHeader, "require-owner-header", false, "refuse clients that do not name the owner generation")
	flags.DurationVar(&c.FlushTimeout, "flush-timeout", defaultFlushTimeout, "time for a drain to stop and flush the session")
}

// A text is a flag whose value must not be another flag: in --host --port 80
// the value of --host is missing.
type text string

func (t *text) String() string { return string(*t) }
func (t *text) Type() string   { return "string" }

func (t *text) Set(value string) error {
	if strings.HasPrefix(value, "--") {
		return fmt.Errorf("a value is missing before %s", value)
	}
	*t = text(value)
	return nil
}

// read completes the configuration from the environment. It returns the parts
// of the listening address: flags precede variables, and listen precedes host
// and port.
func (c *Config) read(getenv func(string) string) []part {
	var flags, variables []part
	for _, s := range settings {
		field := s.field(c)
		*field = strings.TrimSpace(*field)
		variable, value := s.variable(getenv)
		switch s.flag {
		case "listen", "host", "port":
			flags = append(flags, part{s.flag, "--" + s.flag, *field})
			if s.flag != "listen" || *field == "" {
				variables = append(variables, part{s.flag, variable, value})
			}
		default:
			*field = cmp.Or(*field, value)
		}
	}
	return append(flags, variables...)
}

// variable returns the first of the setting's variables that is not blank.
func (s *setting) variable(getenv func(string) string) (name, value string) {
	for _, name := range s.variables {
		if value := strings.TrimSpace(getenv(name)); value != "" {
			return name, value
		}
	}
	return "", ""
}

// exports are the variables that the process sets for its children. A kept
// variable is not changed if it is set already.
var exports = []struct {
	name  string
	kept  bool
	value func(*Config) string
}{
	{"MAESTRO_HOSTED_RUNNER_MODE", false, func(*Config) string { return "1" }},
	{"MAESTRO_PROFILE", true, func(*Config) string { return "hosted-runner" }},
	{"MAESTRO_WEB_REQUIRE_REDIS", false, func(*Config) string { return "0" }},
	{"MAESTRO_WEB_REQUIRE_CSRF", false, func(*Config) string { return "0" }},
	{"MAESTRO_WEB_REQUIRE_KEY", true, func(*Config) string { return "1" }},
	{"MAESTRO_AGENT_DIR", true, func(c *Config) string { return filepath.Join(c.WorkspaceRoot, ownDir, "agent") }},
}

// Environment returns the variables that a resolved configuration sets for the
// process, as name=value in a fixed order. A child gets those that its
// allow-list names.
func (c *Config) Environment(getenv func(string) string) []string {
	var list []string
	for _, e := range exports {
		if !e.kept || getenv(e.name) == "" {
			list = append(list, e.name+"="+e.value(c))
		}
	}
	return list
}

// Variables returns the environment variables of a flag, the first one first. It returns
// nil for a flag that has none.
func Variables(flag string) []string {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.flag == flag })
	if i < 0 {
		return nil
	}
	return settings[i].variables
}

// names returns the flag and the first variable of a setting, for errors.
func names(flag string) string {
	return "--" + flag + " or " + Variables(flag)[0]
}

func missing(flag string) error {
	return fmt.Errorf("a hosted runner needs %s", names(flag))
}
