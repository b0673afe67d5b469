package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/agent/llm"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/mcp"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/session"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
	"github.com/seed-028515a8/maestro/internal/wiring"
	"github.com/seed-028515a8/maestro/utility"
)

const defaultListen = "127.0.0.1:8787"

// settings are the values of the flags of the commands that run a session.
type settings struct {
	agent, workspace, stateDir string
	listen, auth               string
	protocol                   string
	turns                      int               // of history that the local client begins with
	sockets                    map[string]string // paths of Unix sockets, by protocol
	chord                      chordFlags
	readyFile                  string
	readyStdout, eofExit       bool
	fsync, hosted              bool // hosted: the command is hosted-runner
	child                      bool // another program started the command, and may show what it logs
	profile                    string
	retainAge                  time.Duration
	retainBytes, historyMemory int64
	tlsCert, tlsKey, jwtKey    string
	controlTokenFile           string
	metricsTokenFile           string
	pprof                      string
	logLevel, logFormat        string
	connectionTokens           string
	drainRequests              string
	mcpConfig                  string
	requests                   map[string]string // duration or never, by type of request

	maxSessions, maxKept   int // sessions that are open, and on the disk in one scope
	lineBytes, headerBytes int
	header, read, idle     time.Duration
	undo                   time.Duration // from the deletion of a session to its removal
	notify                 string        // path of the configuration of notifications; empty for none
	pages                  string        // directory of pages for browsers; empty for none
	config                 string        // path of the file of --config; empty for none

	// Flags set these options directly. The other options are set where the values
	// are used.
	runtime agent.Options
	session hub.Options
	tools   utility.Options
	clients connlimit.Options
	rates   ratelimit.Options
	access  auth.Options
	hecate  wire.Options

	hecateVocabulary string
}

func (s *settings) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.workspace, "workspace", ".", "directory that the agent works in")
	s.registerShared(cmd)
}

// registerShared adds the flags of every command that runs a session.
func (s *settings) registerShared(cmd *cobra.Command) {
	f := cmd.Flags()
	s.child = cmd.Name() == "headless" || cmd.Name() == "acp"
	f.StringVar(&s.agent, "agent", "shell", "agent: shell, script:FILE, conformance, headless:CMD, acp:CMD, heddle:CMD, chord:CMD or llm:PROVIDER/MODEL")
	f.StringVar(&s.stateDir, "state-dir", "", "directory for journals and the token")
	f.StringVar(&s.mcpConfig, "mcp-config", "", "JSON file with the MCP servers that an acp: or llm: agent may use")
	f.StringArrayVar(&s.runtime.Allow, "allow", nil, "tool calls of an llm: agent that need no approval, such as 'bash(git status:*)' or read")
	f.StringArrayVar(&s.runtime.Ask, "ask", nil, "tool calls of an llm: agent that need approval")
	f.StringArrayVar(&s.runtime.Deny, "deny", nil, "tool calls of an llm: agent that never run")
	f.StringVar(&s.runtime.ModelURL, "model-url", "", "address of the model provider of an llm: agent, such as http://127.0.0.1:11434; /v1 is added if there is no path; default: ANTHROPIC_BASE_URL or OPENAI_BASE_URL, else the address of the provider")
	f.IntVar(&s.runtime.MaxIterations, "max-iterations", 100, "turns of the model for one prompt of an llm: agent; 0 means 100")
	f.BoolVar(&s.runtime.NoRetries, "no-retries", false, "an llm: agent ends its run when the model's provider fails; otherwise it asks again up to 4 times")
	f.Int64Var(&s.runtime.ContextTokens, "context-tokens", 200_000, "context size of an llm: agent's model; the agent summarizes the history before it is full; 0 means 200000")
	f.Int64Var(&s.runtime.MaxTokens, "max-tokens", 0, "longest reply of an llm: agent's model; 0 means the provider's default")
	f.TextVar(&s.runtime.Price, "price", llm.Price{}, "price of the model's tokens, as `IN,OUT[,CACHE_READ[,CACHE_WRITE]]` in US dollars for a million; without it costs are reported as 0")
	f.StringVar(&s.auth, "auth", "token", "token, or off on a loopback address")
	f.StringVar(&s.readyFile, "ready-file", "", "write address, session and token file to this file as JSON, as soon as the server accepts connections")
	f.BoolVar(&s.session.Strict, "strict", false, "refuse unknown keys and nulls in requests")
	f.BoolVar(&s.fsync, "fsync", false, "show events only after they are synced to disk")
	f.StringVar(&s.profile, "protocol-profile", string(contracts.ProfileSeed), "seed, or public to leave out newer fields")
	f.StringSliceVar(&s.runtime.EnvPass, "env-pass", nil, "pass this environment variable to the agent's processes although it looks like a credential")
	f.DurationVar(&s.session.LeaseTTL, "lease-ttl", contracts.DefaultLeaseTTL, "time after which a silent controller loses control")
	f.DurationVar(&s.session.HeartbeatInterval, "heartbeat-interval", contracts.DefaultHeartbeatInterval, "time between heartbeats")
	f.DurationVar(&s.session.SubscriptionTTL, "subscription-ttl", contracts.DefaultSubscriptionTTL, "time in which a lost connection can be resumed")
	f.StringSliceVar(&s.access.Hosts, "allow-host", nil, "host name by which clients may reach the server, besides loopback names")
	f.StringSliceVar(&s.access.Origins, "allow-origin", nil, "web origin whose pages may attach, besides the server's own")
	f.Int64Var(&s.retainBytes, "retain-bytes", 256<<20, "size of a session's journal in bytes; it may take twice that while entries come faster than the disk syncs them, and three times the size of the session's state")
	f.Int64Var(&s.historyMemory, "history-memory", 256<<20, "memory for the newest entries of all sessions; clients that need older entries read from disk")
	f.DurationVar(&s.retainAge, "retain-age", 0, "age of the entries in a session's journal; 0 means no limit")
	f.StringVar(&s.tlsCert, "tls-cert", "", "certificate file (PEM); serves HTTPS")
	f.StringVar(&s.tlsKey, "tls-key", "", "key file of the certificate (PEM)")
	f.BoolVar(&s.access.BehindTLS, "behind-tls", false, "a proxy serves HTTPS to browsers: mark cookies as secure")
	f.StringVar(&s.jwtKey, "jwt-key", "", "file with the key that verifies JWTs (PEM, JWKS or a secret); accepts JWTs besides the token")
	f.StringVar(&s.access.Issuer, "jwt-issuer", "", "required issuer of JWTs")
	f.StringVar(&s.access.Audience, "jwt-audience", "", "required audience of JWTs")
	f.StringVar(&s.access.ScopeClaim, "jwt-scope-claim", "maestro_scope", "claim of JWTs that names the scope of their sessions")
	f.StringVar(&s.metricsTokenFile, "metrics-token-file", "", "file with a credential that may read the metrics and nothing else; created if missing")
	f.StringVar(&s.connectionTokens, "connection-tokens", "", "required or optional: whether HTTP requests about a connection must present its token; default: required, but optional with --auth off and in hosted-runner")
	f.StringVar(&s.logLevel, "log-level", "", "least level of log lines on standard error: debug, info, warn or error; default: info; on a terminal, and for headless and acp, warn")
	f.StringVar(&s.logFormat, "log-format", "text", "format of log lines: text or json")
	f.StringVar(&s.pprof, "pprof", "", "also serve Go profiles on this loopback address")
	s.registerLimits(f)
	registerConfig(cmd, &s.config)
	for flag, values := range map[string][]string{"log-level": logLevels, "log-format": logFormats, "auth": auths, "protocol-profile": profiles} {
		complete(cmd, flag, cobra.ShellCompDirectiveNoFileComp, values...)
	}
	complete(cmd, "agent", cobra.ShellCompDirectiveNoSpace, "shell", "script:", "conformance", "headless:", "acp:", "heddle:", "chord:", "llm:anthropic/", "llm:openai/", "llm:openai-chat/")
}

// registerLimits adds the flags about what clients may use.
func (s *settings) registerLimits(f *pflag.FlagSet) {
	s.maxSessions, s.maxKept = defaultSessions, wiring.DefaultKept
	f.IntVar(&s.session.MaxFrameBytes, "max-frame-bytes", contracts.MaxSocketBytes, "longest message of a network client")
	f.IntVar(&s.lineBytes, "max-line-bytes", contracts.MaxLineBytes, "longest line on standard input")
	f.IntVar(&s.clients.Connections, "max-connections", 16384, "connections at a time; a sixteenth is reserved for credentials that are neither for one session nor for viewing")
	f.IntVar(&s.clients.PrincipalConnections, "max-principal-connections", 0, "connections of one principal except the owner; 0 means half of --max-connections")
	f.IntVar(&s.clients.AddressConnections, "max-address-connections", 0, "connections of one address that wait for a request; 0 means three quarters of --max-connections")
	f.IntVar(&s.clients.Unfinished, "max-unfinished-bytes", 0, "memory for incomplete messages and bodies, a quarter reserved as for --max-connections; 0 means 32 times --max-frame-bytes. Unread answers with a state may take four times as much")
	f.IntVar(&s.clients.PrincipalUnfinished, "max-principal-unfinished-bytes", 0, "memory as for --max-unfinished-bytes of one principal except the owner; 0 means a quarter of it")
	f.IntVar(&s.session.MaxControllers, "max-controllers", 64, "connections of a session with the role controller")
	f.Float64Var(&s.rates.AttachRate, "attach-rate", 512, "attachments per second of one principal, on average; negative means no limit")
	f.IntVar(&s.rates.AttachBurst, "attach-burst", 2048, "attachments of one principal at once")
	f.Float64Var(&s.rates.RequestRate, "request-rate", 200, "HTTP requests per second of one principal, on average; negative means no limit")
	f.IntVar(&s.rates.RequestBurst, "request-burst", 1000, "HTTP requests of one principal at once")
	f.DurationVar(&s.session.HandshakeTimeout, "handshake-timeout", contracts.DefaultHandshakeTimeout, "time for a client to send hello")
	f.DurationVar(&s.clients.WriteTimeout, "write-timeout", contracts.DefaultWriteTimeout, "time for a client to accept written data")
	f.DurationVar(&s.header, "header-timeout", 5*time.Second, "time for a client to send the header of a request")
	f.DurationVar(&s.read, "read-timeout", 30*time.Second, "time for a client to send a whole request")
	f.DurationVar(&s.idle, "idle-timeout", 2*time.Minute, "time between two requests on one connection")
	f.IntVar(&s.headerBytes, "max-header-bytes", 32<<10, "longest header of a request")
	f.IntVar(&s.tools.MaxCommands, "max-commands", 32, "utility commands of a session at a time, at most 256")
	f.DurationVar(&s.tools.MaxRunTime, "max-command-time", 0, "longest time of a utility command; 0 means no limit")
	f.IntVar(&s.tools.MaxWatches, "max-watches", 64, "file watches of a session at a time, at most 256")
	f.IntVar(&s.tools.MaxWatchedDirs, "max-watched-dirs", 50_000, "directories in the file watches of all sessions")
	f.Int64Var(&s.tools.MaxReadBytes, "max-read-bytes", 2<<20, "longest file that a client can read")
	f.Var(&parsedFlag{set: func(text string) error {
		rule, err := voteRule(text)
		s.session.Votes = append(s.session.Votes, rule)
		return err
	}}, "approvals", "approvals by `N[:TOOL]` distinct principals for calls of the tool, in whose name * stands for any text; without a tool for all calls")
	f.BoolVar(&s.session.RequireDigest, "require-digest", false, "refuse answers to approvals without the digest of the request")
	f.StringToStringVar(&s.requests, "request-timeout", nil, "time for an answer to a type of question, such as approval=10m or user_input=never")
}

// defaultSessions is how many sessions may be open by default.
const defaultSessions = 1024

// registerSessions adds the flags of the commands that have more than one session.
func (s *settings) registerSessions(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&s.session.IdleTTL, "idle-ttl", 30*time.Minute, "time after which an unused session is suspended and leaves memory; 0 means never")
	f.IntVar(&s.maxSessions, "max-sessions", defaultSessions, "open sessions at a time")
	f.DurationVar(&s.undo, "undo-period", 10*time.Minute, "time in which a deleted session can be restored; then its journal is removed")
	f.StringVar(&s.notify, "notify", "", "file (JSON) with the receivers of notifications about questions that wait")
	f.IntVar(&s.maxKept, "max-kept-sessions", wiring.DefaultKept, "sessions of one scope on disk")
}

// registerSockets adds the flags for clients of other protocols.
func (s *settings) registerSockets(cmd *cobra.Command) {
	s.sockets = map[string]string{}
	for _, p := range protocols {
		cmd.Flags().Var(&parsedFlag{set: func(addr string) error {
			path, err := socketPath(addr)
			s.sockets[p.name] = path
			return err
		}}, "listen-"+p.name, "also serve clients of the "+p.name+" protocol on the Unix socket `unix:PATH`")
	}
}

// registerServer adds the flags of the commands that only serve the network.
func (s *settings) registerServer(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.readyStdout, "ready-stdout", false, "print the JSON of --ready-file, before any other output")
	cmd.Flags().BoolVar(&s.eofExit, "exit-on-stdin-eof", false, "end when standard input is closed")
}

// complete registers the values of a flag for completion by the shell.
func complete(cmd *cobra.Command, flag string, how cobra.ShellCompDirective, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, how)); err != nil {
		panic(err) // the flag is registered above
	}
}

// check completes the settings and returns a usage error for a value that is not allowed.
func (s *settings) check(cmd *cobra.Command) error {
	if err := s.sensible(cmd.Flags()); err != nil {
		return usage{err}
	}
	for _, name := range s.runtime.EnvPass {
		if _, ok := os.LookupEnv(name); !ok {
			s.log().Warn("--env-pass names a variable that is not set", "name", name)
		}
	}
	if root := defaultStateRoot(); s.stateDir == root || s.stateDir == "" && s.listen != "" {
		if err := claimTemporary(root); err != nil {
			return err
		}
	}
	return s.absolute() // clients and harnesses run in other directories
}

// The values of flags that take one of a few words. Empty stands for a default
// that depends on other flags.
var (
	auths         = []string{"token", "off"}
	profiles      = []string{string(contracts.ProfileSeed), string(contracts.ProfilePublic)}
	logLevels     = []string{"debug", "info", "warn", "error"}
	logFormats    = []string{"text", "json"}
	tokenPolicies = []string{"", "required", "optional"}
	drains        = []string{"", "keep", "cancel"}
)

// oneOf refuses a value that is none of the words.
func oneOf(flag, value string, words []string) error {
	if slices.Contains(words, value) {
		return nil
	}
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
	last := len(words) - 1
	return fmt.Errorf("--%s %q: want %s or %s", flag, value, strings.Join(words[:last], ", "), words[last])
}

// zeroMeans are the flags whose zero means no limit or a default.
var zeroMeans = []string{
	"idle-ttl", "retain-age", "flush-timeout", "max-command-time", "max-iterations", "context-tokens", "max-tokens", "turns",
	"max-principal-connections", "max-address-connections", "max-unfinished-bytes", "max-principal-unfinished-bytes",
}

// checkNumbers refuses the first whole number or duration, by name, that is
// negative, or zero where zero has no meaning.
func checkNumbers(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if err != nil || !slices.Contains([]string{"int", "int64", "duration"}, f.Value.Type()) {
			return
		}
		value, zero := f.Value.String(), slices.Contains(zeroMeans, f.Name)
		switch negative := strings.HasPrefix(value, "-"); {
		case zero && negative:
			err = fmt.Errorf("--%s %s must not be negative", f.Name, value)
		case !zero && (negative || value == "0" || value == "0s"):
			err = fmt.Errorf("--%s %s must be positive", f.Name, value)
		}
	})
	return err
}

func (s *settings) sensible(flags *pflag.FlagSet) error {
	if err := cmp.Or(oneOf("auth", s.auth, auths), oneOf("protocol", cmp.Or(s.protocol, "maestro"), protocolNames()), s.checkAgent(flags.Changed), s.addresses(),
		oneOf("hecate-vocabulary", cmp.Or(s.hecateVocabulary, vocabularies[0]), vocabularies), oneOf("protocol-profile", s.profile, profiles), oneOf("log-level", cmp.Or(s.logLevel, "info"), logLevels), oneOf("log-format", s.logFormat, logFormats),
		oneOf("connection-tokens", s.connectionTokens, tokenPolicies), oneOf("drain-requests", s.drainRequests, drains),
		checkNumbers(flags)); err != nil {
		return err
	}
	c := &s.clients
	s.session.MaxConnections = c.Connections
	c.Unfinished = cmp.Or(c.Unfinished, 32*s.session.MaxFrameBytes)
	c.PrincipalUnfinished = cmp.Or(c.PrincipalUnfinished, c.Unfinished/4)
	var err error
	s.session.RequestTimeout, err = s.requestTimeouts()
	switch {
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return errors.New("--tls-cert and --tls-key need each other")
	case s.turns > contracts.MaxHistoryTurns:
		return fmt.Errorf("--turns must be at most %d", contracts.MaxHistoryTurns)
	case s.turns > 0 && protocolNamed(s.protocol) != nil:
		return errors.New("--turns needs --protocol maestro")
	case s.auth == "off" && (s.jwtKey != "" || s.metricsTokenFile != ""):
		return errors.New("--jwt-key and --metrics-token-file have no effect with --auth off")
	case s.auth == "off" && slices.ContainsFunc(s.session.Votes, func(r hub.VoteRule) bool { return r.Votes > 1 }):
		return errors.New("--approvals of several principals need --auth token: without it all clients are one principal")
	case c.PrincipalUnfinished < 2*s.session.MaxFrameBytes || c.Unfinished < c.PrincipalUnfinished: // a message that grows is in memory twice
		return errors.New("--max-principal-unfinished-bytes must be at least twice --max-frame-bytes, and at most --max-unfinished-bytes")
	case s.tools.MaxCommands > session.MaxCommands || s.tools.MaxWatches > session.MaxWatches: // snapshots would not show them all
		return fmt.Errorf("--max-commands and --max-watches must not be more than %d and %d", session.MaxCommands, session.MaxWatches)
	}
	return err
}

// voteRule parses N or N:TOOL.
func voteRule(text string) (hub.VoteRule, error) {
	number, name, named := strings.Cut(text, ":")
	votes, err := strconv.Atoi(number)
	if err != nil || votes < 1 || votes > hub.MaxVotes || named && name == "" {
		return hub.VoteRule{}, fmt.Errorf("want N or N:TOOL, with N from 1 to %d", hub.MaxVotes)
	}
	return hub.VoteRule{Votes: votes, Tool: name}, nil
}

// requestTimeouts returns how long the given types of requests wait. Negative
// means without limit.
func (s *settings) requestTimeouts() (map[contracts.RequestType]time.Duration, error) {
	timeouts := map[contracts.RequestType]time.Duration{}
	for name, text := range s.requests {
		kind := contracts.RequestType(name)
		if !slices.Contains(contracts.RequestTypes(), kind) {
			return nil, fmt.Errorf("--request-timeout %s: want one of %q", name, contracts.RequestTypes())
		}
		if text == "never" {
			timeouts[kind] = -1
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("--request-timeout %s=%s: want a positive duration or never", name, text)
		}
		timeouts[kind] = d
	}
	return timeouts, nil
}

// minContext is the smallest context size. The instructions and the tools take about
// half of it.
const minContext = 4096

// narrow are the flags for some kinds of agents only.
var narrow = []struct {
	flags, kinds []string
}{
	{[]string{"allow", "ask", "deny", "model-url", "max-iterations", "no-retries", "context-tokens", "max-tokens", "price"}, []string{"llm"}},
	{[]string{"mcp-config"}, []string{"acp", "llm"}},
}

// checkAgent refuses an unknown agent, wrong values of its flags, and flags for agents
// of another kind, because a rule that no agent reads would protect nothing.
func (s *settings) checkAgent(given func(flag string) bool) error {
	spec := cmp.Or(s.agent, defaultModel+"named-by-the-client")
	if err := agent.Check(spec, agent.Options{}); err != nil {
		return fmt.Errorf("--agent %q: %w", mask.Text(spec), err)
	}
	kind, _, _ := strings.Cut(spec, ":")
	for _, n := range narrow {
		for _, flag := range n.flags {
			if given(flag) && !slices.Contains(n.kinds, kind) {
				return fmt.Errorf("--%s is for %s: agents, and the agent is %s", flag, strings.Join(n.kinds, ": and "), kind)
			}
		}
	}
	r := &s.runtime
	for _, part := range []struct {
		flag string
		set  agent.Options
	}{
		{"model-url", agent.Options{ModelURL: r.ModelURL}},
		{"allow", agent.Options{Allow: r.Allow}}, {"ask", agent.Options{Ask: r.Ask}}, {"deny", agent.Options{Deny: r.Deny}},
	} {
		if err := agent.Check(spec, part.set); err != nil {
			return fmt.Errorf("--%s: %w", part.flag, err)
		}
	}
	if r.ContextTokens != 0 && r.ContextTokens < minContext {
		return fmt.Errorf("--context-tokens %d: want %d or more, or 0 for 200000", r.ContextTokens, minContext)
	}
	return nil
}

// addresses completes and checks the listening addresses.
func (s *settings) addresses() (err error) {
	_, passed := systemdName(s.listen) // its address is checked when the process listens
	if !passed {
		s.listen, err = completeAddress("listen", s.listen)
	}
	if err != nil {
		return err
	}
	if s.pprof, err = completeAddress("pprof", s.pprof); err != nil {
		return err
	}
	switch {
	case s.auth == "off" && s.listen != "" && !passed && !onLoopback(s.listen):
		return errNotLoopback("--auth off", s.listen)
	case s.pprof != "" && !onLoopback(s.pprof):
		return errNotLoopback("--pprof", s.pprof)
	}
	return nil
}

// absolute makes the paths independent of the current directory.
func (s *settings) absolute() error {
	for _, path := range []*string{&s.stateDir, &s.readyFile, &s.jwtKey, &s.tlsCert, &s.tlsKey, &s.controlTokenFile, &s.metricsTokenFile, &s.mcpConfig, &s.pages} {
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

// defaultStateRoot returns the default directory of all state.
func defaultStateRoot() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "maestro")
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return filepath.Join(os.TempDir(), fmt.Sprintf("maestro-%d", os.Getuid()))
	}
	return filepath.Join(home, ".local", "state", "maestro")
}

// claimTemporary makes the directory of all state if it is in the temporary directory of
// the system. It refuses one that another user has made, who could know the token in it
// and replace files.
func claimTemporary(root string) error {
	if filepath.Dir(root) != filepath.Clean(os.TempDir()) {
		return nil
	}
	_ = os.Mkdir(root, 0o700) // who writes to it gets the error
	if info, err := os.Lstat(root); err == nil && !isOurs(info) {
		return fmt.Errorf("the state directory %s was made by another user, or others may write to it: set HOME or --state-dir", root)
	}
	return nil
}

func tokenFile(root string) string { return filepath.Join(root, "token") }

// mcpServers returns the MCP servers for agents: those of --mcp-config, and the one of
// the platform in the environment.
func (s *settings) mcpServers(getenv func(string) string) ([]mcp.Server, error) {
	var servers []mcp.Server
	var err error
	if s.mcpConfig != "" {
		if servers, err = mcp.Load(s.mcpConfig); err != nil {
			return nil, err
		}
	}
	platform, err := mcp.Platform(getenv)
	switch {
	case err != nil:
		return nil, err
	case platform == nil:
		return servers, nil
	case slices.ContainsFunc(servers, func(other mcp.Server) bool { return other.Name == platform.Name }):
		return nil, fmt.Errorf("--mcp-config: the name %q is the platform's", platform.Name)
	}
	return append(servers, *platform), nil
}

// setPolicy sets the options that depend on the command and on --protocol-profile.
// Flags override them:
//
//	                     serve, headless   hosted-runner   with --protocol-profile public
//	--connection-tokens  required          optional        the same
//	--drain-requests                       keep            cancel
//	start of the agent   in the journal    in the journal  in the state only, of a hosted-runner
//	newer fields         sent              sent            left out
//
// With --auth off connection tokens are optional everywhere.
func (s *settings) setPolicy() {
	profile := contracts.Profile(s.profile)
	public := profile == contracts.ProfilePublic
	s.session.Profile, s.runtime.Profile = profile, profile
	s.tools.Hosted, s.runtime.Hosted = s.hosted, s.hosted
	s.session.Quiet = public && s.hosted
	s.session.RequireTokens = s.auth != "off" && !s.hosted // many clients of control planes were made for servers without connection tokens
	if s.connectionTokens != "" {
		s.session.RequireTokens = s.connectionTokens == "required"
	}
	s.session.DrainCancels = public
	if s.drainRequests != "" {
		s.session.DrainCancels = s.drainRequests == "cancel"
	}
}
