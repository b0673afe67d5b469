package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// authRequired is the error code that asks the user to sign in.
const authRequired = -32000

// maxBarred bounds the text about signing in, in bytes.
const maxBarred = 2 << 10

// A named is a way to sign in to a program, or a working mode of it, such as
// asking before each change.
type named struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// An option is a setting of a session.
type option struct {
	ID       string          `json:"id"`
	Category string          `json:"category"`
	Current  string          `json:"currentValue"` // "" if it is no text
	Options  json.RawMessage `json:"options"`      // a flat list, or lists in groups
}

// A sessionResult is the result of creating, loading or resuming a session.
type sessionResult struct {
	SessionID string `json:"sessionId"`
	Modes     struct {
		Current   string      `json:"currentModeId"`
		Available list[named] `json:"availableModes"`
	} `json:"modes"`
	Models struct { // of agents that predate options
		Current string `json:"currentModelId"`
	} `json:"models"`
	Options list[option] `json:"configOptions"`
}

// handshake prepares the program for prompts.
func (p *peer) handshake(ctx context.Context) error {
	if err := p.initialize(ctx); err != nil {
		return err
	}
	begun, err := p.open(ctx, p.servers())
	if err != nil {
		return p.withSignInHint(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = begun.SessionID
	p.modes, p.models = begun.Modes.Available.kept, shown(begun.Models.Current, maxLabel)
	p.setMode(begun.Modes.Current)
	p.used = settingsOf(begun.Options)
	p.costKnown = p.costKnown || !p.resumed
	p.greeted = true
	return nil
}

// An introduction is the result of initialize.
type introduction struct {
	Version json.RawMessage       `json:"protocolVersion"`
	Can     acp.AgentCapabilities `json:"agentCapabilities"`
	Info    struct {
		Name string `json:"name"`
	} `json:"agentInfo"`
	Auth list[named] `json:"authMethods"`
}

// readsItself has the programs, by agentInfo.name, that are not offered
// fs/read_text_file. Gemini CLI (0.61) takes the answer that a file does not
// exist for a failed read, and could not create a file.
var readsItself = map[string]bool{"gemini-cli": true}

// initialize exchanges versions and capabilities. A program is identified by
// its answer only, so for one in readsItself a second request withdraws the
// capability.
func (p *peer) initialize(ctx context.Context) error {
	init, err := p.introduce(ctx, true)
	if err == nil && readsItself[init.Info.Name] {
		init, err = p.introduce(ctx, false)
	}
	e, refused := errors.AsType[*rpc.Error](err)
	if refused && e.Code != authRequired {
		return fmt.Errorf("it does not speak the Agent Client Protocol as it should: it answers %s with %w", acp.AgentMethodInitialize, err)
	}
	p.mu.Lock()
	p.introduced = err == nil || refused
	p.mu.Unlock()
	if err != nil {
		return p.withSignInHint(err)
	}
	if got := strings.TrimSpace(string(init.Version)); got != fmt.Sprint(acp.ProtocolVersionNumber) {
		return &contracts.Error{
			Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorProtocol,
			Message: fmt.Sprintf("the agent speaks version %s of the Agent Client Protocol, not version %d",
				cmp.Or(abridge.Bytes(got, 40), "none"), acp.ProtocolVersionNumber),
		}
	}
	p.can, p.auth = init.Can, init.Auth.kept
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = cmp.Or(shown(init.Info.Name, maxLabel), p.name)
	return nil
}

func (p *peer) introduce(ctx context.Context, reads bool) (init introduction, err error) {
	err = p.call(ctx, acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber,
		ClientInfo:      &acp.Implementation{Name: "maestro", Title: new("Maestro"), Version: p.a.opts.Version},
		ClientCapabilities: acp.ClientCapabilities{
			Fs: acp.FileSystemCapabilities{ReadTextFile: reads, WriteTextFile: true}, Terminal: true,
			Elicitation: &acp.ElicitationCapabilities{Form: &acp.ElicitationFormCapabilities{}, Url: &acp.ElicitationUrlCapabilities{}},
		},
	}, &init)
	return init, err
}

// open continues the session of an earlier process if there is one and the
// program can, and otherwise creates one.
func (p *peer) open(ctx context.Context, servers []acp.McpServer) (sessionResult, error) {
	if id := p.a.session(); id != "" {
		begun, err := p.reopen(ctx, acp.SessionId(id), servers)
		if err == nil {
			begun.SessionID, p.resumed = id, true
			return begun, nil
		}
		e, refused := errors.AsType[*rpc.Error](err)
		switch {
		case refused && e.Code == authRequired:
			return begun, err
		case !refused && !errors.Is(err, errCannotReopen): // it hangs or has ended, so this process cannot be used
			return begun, &lostError{err}
		}
		p.a.forget(err)
	}
	var begun sessionResult
	err := p.call(ctx, acp.AgentMethodSessionNew, acp.NewSessionRequest{Cwd: p.a.opts.Dir, McpServers: servers}, &begun)
	if err == nil && begun.SessionID == "" {
		err = errors.New("the agent made a session without an id")
	}
	return begun, err
}

var errCannotReopen = errors.New("it keeps no sessions")

// A lostError says that a process was lost while it restored a session.
type lostError struct{ cause error }

func (e *lostError) Error() string { return "go on with the earlier conversation: " + e.cause.Error() }

func (e *lostError) Unwrap() error { return e.cause }

// reopen continues a session. It prefers to resume, because loading repeats the
// history. Repeated messages are dropped, like all messages between runs.
func (p *peer) reopen(ctx context.Context, id acp.SessionId, servers []acp.McpServer) (begun sessionResult, err error) {
	err = errCannotReopen
	if p.can.SessionCapabilities.Resume != nil {
		err = p.call(ctx, acp.AgentMethodSessionResume,
			acp.ResumeSessionRequest{SessionId: id, Cwd: p.a.opts.Dir, McpServers: servers}, &begun)
	}
	if p.can.LoadSession && err != nil && ctx.Err() == nil {
		err = p.call(ctx, acp.AgentMethodSessionLoad,
			acp.LoadSessionRequest{SessionId: id, Cwd: p.a.opts.Dir, McpServers: servers}, &begun)
	}
	return begun, err
}

// withSignInHint adds to an error that asks the user to sign in how to do so.
func (p *peer) withSignInHint(err error) error {
	e, ok := errors.AsType[*rpc.Error](err)
	if !ok || e.Code != authRequired {
		return err
	}
	var names []string
	for _, m := range p.auth {
		names = append(names, fmt.Sprintf("%s (%s)", cmp.Or(m.Name, m.ID), m.ID))
	}
	text := "the agent wants you to sign in first: " + e.Error()
	if len(names) > 0 {
		text += "; it offers " + strings.Join(names, ", ")
	}
	text += ". Sign in with the agent's own program, or pass its key with --env-pass"
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorFatal, Message: shown(text, maxBarred)}
}

// model returns the current model, or the program's name. The caller holds p.mu.
func (p *peer) model() string { return cmp.Or(p.used.model, p.models, p.name) }

// settings are the options of a session that are used.
type settings struct {
	model    string
	thinking string   // id of the option for the thinking level
	levels   []string // its values
}

// maxSetting bounds the values of an option, in bytes. One with more is not used.
const maxSetting = 64 << 10

func settingsOf(all list[option]) (s settings) {
	for _, o := range all.kept {
		switch category := acp.SessionConfigOptionCategory(o.Category); {
		case len(o.Options) > maxSetting || len(o.ID) > maxPath:
		case category == acp.SessionConfigOptionCategoryModel && s.model == "":
			s.model = shown(o.Current, maxLabel)
		case category == acp.SessionConfigOptionCategoryThoughtLevel && s.thinking == "":
			s.thinking, s.levels = o.ID, o.values()
		}
	}
	return s
}

// values returns the possible values of an option.
func (o option) values() []string {
	type value struct {
		Value   string  `json:"value"`
		Options []value `json:"options"` // of a group
	}
	var list []value
	decode(o.Options, &list)
	var values []string
	for _, v := range list {
		if v.Value != "" {
			values = append(values, v.Value)
		}
		for _, inner := range v.Options {
			values = append(values, inner.Value)
		}
	}
	return values
}

// setThinking sets the requested thinking level if the session has an option
// with that value. Otherwise clients are told.
func (p *peer) setThinking(ctx context.Context) {
	p.a.mu.Lock()
	level := p.a.thinking
	p.a.mu.Unlock()
	if level == p.level {
		return
	}
	p.mu.Lock()
	used := p.used
	p.mu.Unlock()
	err := errors.New("it has no such setting")
	if slices.Contains(used.levels, string(level)) {
		bounded, cancel := context.WithTimeoutCause(ctx, p.a.wait.ready, errors.New("it does not answer"))
		defer cancel()
		var result json.RawMessage
		result, err = p.conn.Call(bounded, acp.AgentMethodSessionSetConfigOption, acp.SetSessionConfigOptionRequest{
			ValueId: &acp.SetSessionConfigOptionValueId{
				SessionId: acp.SessionId(p.session), ConfigId: acp.SessionConfigId(used.thinking), Value: acp.SessionConfigValueId(level),
			},
		})
		if err == nil {
			p.mu.Lock()
			p.takeOptions(result)
			p.mu.Unlock()
		}
	}
	if ctx.Err() != nil { // the run was interrupted; the next one tries again
		return
	}
	if p.level = level; err != nil {
		p.a.notes.AddOnce(fmt.Sprintf("The agent does not take the thinking level %s: %s", level, err.Error()))
		p.a.publishNotes()
	}
}

// servers returns the MCP servers that the program supports, in the form of the
// protocol. Clients are told why the others are left out.
func (p *peer) servers() []acp.McpServer {
	taken := []acp.McpServer{} // the protocol requires a list, not null
	for _, s := range p.a.opts.Servers {
		switch {
		case s.Command != "":
			command, args := s.Command, append([]string{}, s.Args...)
			switch { // the protocol has no field for a working directory
			case s.Dir == "":
			case runtime.GOOS == "windows":
				p.a.notes.AddOnce(fmt.Sprintf("MCP server %s starts where the agent has it start, not in %s: the protocol has no word for it", s.Name, s.Dir))
			default:
				command, args = "/bin/sh", append([]string{"-c", `cd "$1" && shift && exec "$@"`, "sh", s.Dir, s.Command}, s.Args...)
			}
			taken = append(taken, acp.McpServer{Stdio: &acp.McpServerStdio{
				Name: s.Name, Command: command, Args: args,
				Env: sorted(s.Env, func(name, value string) acp.EnvVariable { return acp.EnvVariable{Name: name, Value: value} }),
			}})
		case s.URL == "":
			p.a.notes.AddOnce(fmt.Sprintf("MCP server %s is left out: it has neither a command nor a URL", s.Name))
		case p.can.McpCapabilities.Http:
			taken = append(taken, acp.McpServer{Http: &acp.McpServerHttpInline{
				Type: "http", Name: s.Name, Url: s.URL,
				Headers: sorted(s.Headers, func(name, value string) acp.HttpHeader { return acp.HttpHeader{Name: name, Value: value} }),
			}})
		default:
			p.a.notes.AddOnce(fmt.Sprintf("MCP server %s is left out: the agent reaches no servers over HTTP", s.Name))
		}
	}
	return taken
}

// sorted returns the variables or headers in a map in the form of the protocol, by name.
func sorted[T any](values map[string]string, of func(name, value string) T) []T {
	list := []T{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, of(name, values[name]))
	}
	return list
}
