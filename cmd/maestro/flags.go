package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/agent/llm"
	"github.com/seed-028515a8/maestro/agent/mcp"
	"github.com/seed-028515a8/maestro/contracts"
)

const defaultListen = "127.0.0.1:8787"

// settings is what the commands that run a session are told.
type settings struct {
	agent, workspace, stateDir string
	listen, auth               string
	readyFile                  string
	readyStdout, eofExit       bool
	strict, fsync              bool
	profile                    string
	envPass                    []string
	leaseTTL, heartbeat        time.Duration
	subscription, retainAge    time.Duration
	idleTTL                    time.Duration
	retainBytes, historyMemory int64
	hosts, origins             []string
	tlsCert, tlsKey            string
	behindTLS                  bool
	jwtKey, jwtIssuer          string
	jwtAudience, jwtScopeClaim string
	controlTokenFile           string
	pprof                      string
	logLevel, logFormat        string
	connectionTokens           string
	drainRequests              string
	mcpConfig                  string
	allow, ask, deny           []string
	modelURL                   string
	maxIterations              int
	contextTokens, maxTokens   int64
	price                      llm.Price
	limits                     limits
}

func (s *settings) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.workspace, "workspace", ".", "directory that the agent works in")
	s.registerShared(cmd)
}

// registerShared adds the flags of every command that runs a session.
func (s *settings) registerShared(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.agent, "agent", "shell", "agent: shell, script:FILE, conformance, headless:CMD, acp:CMD or llm:PROVIDER/MODEL")
	f.StringVar(&s.stateDir, "state-dir", "", "directory for journals and the token")
	f.StringVar(&s.mcpConfig, "mcp-config", "", "JSON file with the MCP servers that an acp: or llm: agent may use")
	f.StringArrayVar(&s.allow, "allow", nil, "tool calls of an llm: agent that need no approval, such as 'bash(git status:*)' or read")
	f.StringArrayVar(&s.ask, "ask", nil, "tool calls of an llm: agent that need approval")
	f.StringArrayVar(&s.deny, "deny", nil, "tool calls of an llm: agent that never run")
	f.StringVar(&s.modelURL, "model-url", "", "address of the model provider of an llm: agent, such as http://127.0.0.1:11434; /v1 is added if there is no path; default: ANTHROPIC_BASE_URL or OPENAI_BASE_URL, else the address of the provider")
	f.IntVar(&s.maxIterations, "max-iterations", 100, "turns of the model for one prompt of an llm: agent; 0 means 100")
	f.Int64Var(&s.contextTokens, "context-tokens", 200_000, "context size of an llm: agent's model; the agent summarizes the history before it is full; 0 means 200000")
	f.Int64Var(&s.maxTokens, "max-tokens", 0, "longest reply of an llm: agent's model; 0 means the provider's default")
	f.TextVar(&s.price, "price", llm.Price{}, "price of the model's tokens, as `IN,OUT[,CACHE_READ[,CACHE_WRITE]]` in US dollars for a million; without it costs are reported as 0")
	f.StringVar(&s.auth, "auth", "token", "token, or off on a loopback address")
	f.StringVar(&s.readyFile, "ready-file", "", "write address, session and token file to this file as JSON, as soon as the server accepts connections")
	f.BoolVar(&s.strict, "strict", false, "refuse unknown keys and nulls in requests")
	f.BoolVar(&s.fsync, "fsync", false, "show events only after they are synced to disk")
	f.StringVar(&s.profile, "protocol-profile", string(contracts.ProfileSeed), "seed, or public to leave out newer fields")
	f.StringSliceVar(&s.envPass, "env-pass", nil, "pass this environment variable to the agent's processes although it looks like a credential")
	f.DurationVar(&s.leaseTTL, "lease-ttl", contracts.DefaultLeaseTTL, "time after which a silent controller loses control")
	f.DurationVar(&s.heartbeat, "heartbeat-interval", contracts.DefaultHeartbeatInterval, "time between heartbeats")
	f.DurationVar(&s.subscription, "subscription-ttl", contracts.DefaultSubscriptionTTL, "time in which a lost connection can be resumed")
	f.StringSliceVar(&s.hosts, "allow-host", nil, "host name by which clients may reach the server, besides loopback names")
	f.StringSliceVar(&s.origins, "allow-origin", nil, "web origin whose pages may attach, besides the server's own")
	f.Int64Var(&s.retainBytes, "retain-bytes", 256<<20, "size of a session's journal in bytes; it may take twice that while entries come faster than the disk syncs them, and three times the size of the session's state")
	f.Int64Var(&s.historyMemory, "history-memory", 256<<20, "memory for the newest entries of all sessions; clients that need older entries read from disk")
	f.DurationVar(&s.retainAge, "retain-age", 0, "age of the entries in a session's journal; 0 means no limit")
	f.StringVar(&s.tlsCert, "tls-cert", "", "certificate file (PEM); serves HTTPS")
	f.StringVar(&s.tlsKey, "tls-key", "", "key file of the certificate (PEM)")
	f.BoolVar(&s.behindTLS, "behind-tls", false, "a proxy serves HTTPS to browsers: mark cookies as secure")
	f.StringVar(&s.jwtKey, "jwt-key", "", "file with the key that verifies JWTs (PEM, JWKS or a secret); accepts JWTs besides the token")
	f.StringVar(&s.jwtIssuer, "jwt-issuer", "", "required issuer of JWTs")
	f.StringVar(&s.jwtAudience, "jwt-audience", "", "required audience of JWTs")
	f.StringVar(&s.jwtScopeClaim, "jwt-scope-claim", "maestro_scope", "claim of JWTs that names the scope of their sessions")
	f.StringVar(&s.connectionTokens, "connection-tokens", "", "required or optional: whether HTTP requests about a connection must present its token; default: required, but optional with --auth off and in hosted-runner")
	f.StringVar(&s.logLevel, "log-level", "info", "least level of log lines on standard error: debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "format of log lines: text or json")
	f.StringVar(&s.pprof, "pprof", "", "also serve Go profiles on this loopback address")
	s.limits.register(cmd)
	complete(cmd, "agent", cobra.ShellCompDirectiveNoSpace, "shell", "script:", "conformance", "headless:", "acp:", "llm:anthropic/", "llm:openai/", "llm:openai-chat/")
	complete(cmd, "log-level", cobra.ShellCompDirectiveNoFileComp, "debug", "info", "warn", "error")
	complete(cmd, "log-format", cobra.ShellCompDirectiveNoFileComp, "text", "json")
	complete(cmd, "auth", cobra.ShellCompDirectiveNoFileComp, "token", "off")
	complete(cmd, "protocol-profile", cobra.ShellCompDirectiveNoFileComp, string(contracts.ProfileSeed), string(contracts.ProfilePublic))
}

// registerServer adds the flags of the commands that only serve the network.
func (s *settings) registerServer(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.readyStdout, "ready-stdout", false, "print the JSON of --ready-file, before any other output")
	cmd.Flags().BoolVar(&s.eofExit, "exit-on-stdin-eof", false, "end when standard input is closed")
}

// complete tells the shell what a flag of cmd may be.
func complete(cmd *cobra.Command, flag string, how cobra.ShellCompDirective, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, how)); err != nil {
		panic(err) // the flag is registered above
	}
}

// A variable is what the environment can say instead of a flag.
type variable struct {
	name, flag string
	unit       string // what makes a flag's value of the number
}

// variables are those that other implementations of the protocol read.
var variables = []variable{
	{"MAESTRO_HEADLESS_CONNECTION_HEARTBEAT_INTERVAL_MS", "heartbeat-interval", "ms"},
	{"MAESTRO_HEADLESS_CONNECTION_IDLE_MS", "lease-ttl", "ms"},
	{"MAESTRO_HEADLESS_SUBSCRIPTION_IDLE_MS", "subscription-ttl", "ms"},
	{"MAESTRO_HEADLESS_RUNTIME_IDLE_MS", "idle-ttl", "ms"},
	{"MAESTRO_HEADLESS_UTILITY_FILE_READ_MAX_BYTES", "max-read-bytes", ""},
}

// fromEnvironment sets the flags of cmd that were not given and that the
// environment names. Anything but a positive integer is wrong usage.
func fromEnvironment(cmd *cobra.Command, getenv func(string) string) error {
	for _, v := range variables {
		flag, text := cmd.Flags().Lookup(v.flag), strings.TrimSpace(getenv(v.name))
		if flag == nil || flag.Changed || text == "" {
			continue
		}
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n <= 0 {
			return usage{fmt.Errorf("%s=%q: want a positive integer", v.name, text)}
		}
		if err := flag.Value.Set(text + v.unit); err != nil {
			return usage{fmt.Errorf("%s=%q: %w", v.name, text, err)}
		}
	}
	return nil
}

// check completes the settings from the environment and returns a usage error
// if they make no sense.
func (s *settings) check(cmd *cobra.Command) error {
	if err := fromEnvironment(cmd, os.Getenv); err != nil {
		return err
	}
	if err := s.sensible(cmd.Flags().Changed); err != nil {
		return usage{err}
	}
	for _, name := range s.envPass {
		if _, ok := os.LookupEnv(name); !ok {
			s.log().Warn("--env-pass names a variable that is not set", "name", name)
		}
	}
	return s.absolute() // what is told to clients and harnesses holds wherever those run
}

func (s *settings) sensible(given func(flag string) bool) error {
	if s.auth != "token" && s.auth != "off" {
		return fmt.Errorf("--auth %q: want token or off", s.auth)
	}
	if err := s.checkAgent(given); err != nil {
		return err
	}
	if err := s.addresses(); err != nil {
		return err
	}
	if p := contracts.Profile(s.profile); p != contracts.ProfileSeed && p != contracts.ProfilePublic {
		return fmt.Errorf("--protocol-profile %q: want seed or public", s.profile)
	}
	if _, known := logLevels[s.logLevel]; !known {
		return fmt.Errorf("--log-level %q: want debug, info, warn or error", s.logLevel)
	}
	if s.logFormat != "text" && s.logFormat != "json" {
		return fmt.Errorf("--log-format %q: want text or json", s.logFormat)
	}
	if (s.tlsCert == "") != (s.tlsKey == "") {
		return errors.New("--tls-cert and --tls-key need each other")
	}
	if s.auth == "off" && s.jwtKey != "" {
		return errors.New("--jwt-key has no effect with --auth off")
	}
	switch s.connectionTokens {
	case "", "required", "optional":
	default:
		return fmt.Errorf("--connection-tokens %q: want required or optional", s.connectionTokens)
	}
	if s.drainRequests != "" && s.drainRequests != "keep" && s.drainRequests != "cancel" {
		return fmt.Errorf("--drain-requests %q: want keep or cancel", s.drainRequests)
	}
	if err := cmp.Or(
		notNegative(map[string]time.Duration{"idle-ttl": s.idleTTL, "retain-age": s.retainAge}),
		positive(map[string]time.Duration{"lease-ttl": s.leaseTTL, "heartbeat-interval": s.heartbeat, "subscription-ttl": s.subscription}),
		positive(map[string]int64{"retain-bytes": s.retainBytes, "history-memory": s.historyMemory}),
	); err != nil {
		return err
	}
	return s.limits.check()
}

// minContext is the smallest context that a model can be said to have: the
// instructions and the tools alone take about half of it.
const minContext = 4096

// narrow are the flags that are for some kinds of agents only.
var narrow = []struct {
	flags, kinds []string
}{
	{[]string{"allow", "ask", "deny", "model-url", "max-iterations", "context-tokens", "max-tokens", "price"}, []string{"llm"}},
	{[]string{"mcp-config"}, []string{"acp", "llm"}},
}

// checkAgent refuses an agent that is none, and what is given for it but wrong or
// for agents of another kind: a rule that nobody reads would protect nothing.
func (s *settings) checkAgent(given func(flag string) bool) error {
	if err := agent.Check(s.agent, agent.Options{}); err != nil {
		return fmt.Errorf("--agent %q: %w", s.agent, err)
	}
	kind, _, _ := strings.Cut(s.agent, ":")
	for _, n := range narrow {
		for _, flag := range n.flags {
			if given(flag) && !slices.Contains(n.kinds, kind) {
				return fmt.Errorf("--%s is for %s: agents, and the agent is %s", flag, strings.Join(n.kinds, ": and "), kind)
			}
		}
	}
	for _, part := range []struct {
		flag string
		said agent.Options
	}{
		{"model-url", agent.Options{ModelURL: s.modelURL}},
		{"allow", agent.Options{Allow: s.allow}}, {"ask", agent.Options{Ask: s.ask}}, {"deny", agent.Options{Deny: s.deny}},
	} {
		if err := agent.Check(s.agent, part.said); err != nil {
			return fmt.Errorf("--%s: %w", part.flag, err)
		}
	}
	switch {
	case s.maxIterations < 0 || s.maxTokens < 0:
		return errors.New("--max-iterations and --max-tokens must not be negative")
	case s.contextTokens != 0 && s.contextTokens < minContext:
		return fmt.Errorf("--context-tokens %d: want %d or more, or 0 for 200000", s.contextTokens, minContext)
	}
	return nil
}

// addresses completes where to listen.
func (s *settings) addresses() (err error) {
	if s.listen, err = completeAddress("listen", s.listen); err != nil {
		return err
	}
	if s.pprof, err = completeAddress("pprof", s.pprof); err != nil {
		return err
	}
	switch {
	case s.auth == "off" && s.listen != "" && !onLoopback(s.listen):
		return errOpenDoor(s.listen)
	case s.pprof != "" && !onLoopback(s.pprof):
		return errOpenProfiles(s.pprof)
	}
	return nil
}

// absolute makes the paths independent of the current directory.
func (s *settings) absolute() error {
	for _, path := range []*string{&s.stateDir, &s.readyFile, &s.jwtKey, &s.tlsCert, &s.tlsKey, &s.controlTokenFile, &s.mcpConfig} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	file, isScript := strings.CutPrefix(s.agent, "script:")
	if !isScript {
		return nil
	}
	abs, err := filepath.Abs(file)
	s.agent = "script:" + abs
	return err
}

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

func (s *settings) log() *slog.Logger {
	opts := &slog.HandlerOptions{Level: logLevels[s.logLevel]}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

// defaultStateRoot is where state is kept when nobody says otherwise.
func defaultStateRoot() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "maestro")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), fmt.Sprintf("maestro-%d", os.Getuid()))
	}
	return filepath.Join(home, ".local", "state", "maestro")
}

func tokenFile(root string) string { return filepath.Join(root, "token") }

// mcpServers returns the MCP servers that the operator names: those of the
// platform, by the environment, and those of the configuration.
func (s *settings) mcpServers(getenv func(string) string) ([]mcp.Server, error) {
	var servers []mcp.Server
	if s.mcpConfig != "" {
		listed, err := mcp.Load(s.mcpConfig)
		if err != nil {
			return nil, err
		}
		servers = listed
	}
	platform, err := mcp.Platform(getenv)
	switch {
	case err != nil:
		return nil, err
	case platform == nil:
		return servers, nil
	}
	for _, other := range servers {
		if other.Name == platform.Name {
			return nil, fmt.Errorf("--mcp-config: the name %q is the platform's", other.Name)
		}
	}
	return append(servers, *platform), nil
}
