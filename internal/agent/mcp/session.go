package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// olderRevision is the newest revision that starts with initialize.
const olderRevision = "2025-11-25"

// Bounds on a server's tools.
const (
	maxTools       = 512
	maxPages       = 64
	maxSchemaBytes = 64 << 10
	maxDescription = 16 << 10
	maxToolsBytes  = 4 << 20 // descriptions and schemas of all tools of a server
	maxToolName    = 256
)

// relistPause is the minimum time between two lists of tools, because some
// servers report a change whenever they are asked for the list. After failed
// lists it grows like the pause between connection attempts.
const relistPause = time.Second

// closePatience is how long an orderly close may take before the connection is
// cut.
const closePatience = 2 * time.Second

var (
	errLapsed = errors.New("the server has ended its reports of changes")
	errEnded  = errors.New("the connection ended")
)

// A session is one connection to a server. Its goroutine, run, serves it until
// its end.
//
// The end has two steps: stopping ends calls and questions and tells the
// server, and life cuts everything.
type session struct {
	link  *link
	since time.Time

	client *sdk.ClientSession // nil before the connection is made
	pipe   *pipe              // nil over HTTP
	web    *web               // nil for a program

	stopping context.Context
	stop     context.CancelCauseFunc
	life     context.Context
	cut      context.CancelFunc

	changed chan struct{} // 1-buffered; a token means that the tools must be listed again; never closed
	over    chan struct{} // closed when the session has ended, if run was started

	useful atomic.Bool // a call was answered
	lapsed atomic.Bool // the server does not report changes of its tools any more
}

// open makes a connection and lists the tools. answered says whether a program
// has sent an answer.
func (l *link) open(ctx context.Context, revision string) (s *session, answered bool, err error) {
	s = &session{link: l, since: time.Now(), changed: make(chan struct{}, 1), over: make(chan struct{})}
	s.stopping, s.stop = context.WithCancelCause(l.set.life)
	s.life, s.cut = context.WithCancel(context.Background())
	transport, err := s.transport()
	if err != nil {
		s.stop(err)
		s.cut()
		return nil, false, err
	}
	free := context.AfterFunc(ctx, s.abort) // the library does not apply ctx everywhere
	client, err := s.newClient().Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err == nil {
		s.client = client
		err = s.list(ctx)
	}
	free()
	if err == nil && ctx.Err() == nil {
		return s, true, nil
	}
	s.stop(errUnwanted)
	s.close()
	return nil, s.pipe != nil && s.pipe.answered.Load(), s.reason(err)
}

// transport returns the transport to the server; it starts a program.
func (s *session) transport() (sdk.Transport, error) {
	l := s.link
	if l.server.Command != "" {
		p, err := newPipe(l)
		s.pipe = p
		return p, err
	}
	s.web = newWeb(s)
	return &sdk.StreamableClientTransport{
		Endpoint: l.server.URL, HTTPClient: s.web.client(), MaxEventSize: contracts.MaxLineBytes,
	}, nil
}

// newClient returns the library's client. There is one per connection, so that
// requests to it are known to come from this server.
func (s *session) newClient() *sdk.Client {
	client := sdk.NewClient(&sdk.Implementation{Name: "maestro", Version: s.link.set.opts.Version}, &sdk.ClientOptions{
		Logger: s.link.log,
		Capabilities: &sdk.ClientCapabilities{
			//lint:ignore SA1019 servers of the older revisions ask for it
			RootsV2:     &sdk.RootCapabilities{},
			Elicitation: &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}, URL: &sdk.URLElicitationCapabilities{}},
		},
		ElicitationHandler: func(ctx context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return s.elicit(ctx, req.Params), nil
		},
		ElicitationCompleteHandler: func(_ context.Context, req *sdk.ElicitationCompleteNotificationRequest) {
			s.link.completed(req.Params.ElicitationID)
		},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { s.relist() },
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			s.link.progress(req.Params)
		},
	})
	client.AddReceivingMiddleware(s.refuseSampling)
	root := &url.URL{Scheme: "file", Path: filepath.ToSlash(s.link.set.opts.Dir)}
	//lint:ignore SA1019 servers of the older revisions ask for it
	client.AddRoots(&sdk.Root{URI: root.String(), Name: filepath.Base(s.link.set.opts.Dir)})
	return client
}

// run serves the session until its end.
func (s *session) run() {
	defer close(s.over)
	var wg sync.WaitGroup
	defer wg.Wait()
	gone := make(chan error, 1)
	wg.Go(func() { // ends with the connection, at the latest by close
		gone <- s.client.Wait()
		s.stop(errEnded)
	})
	for failures := 0; s.stopping.Err() == nil; {
		select {
		case <-s.changed:
		case <-s.stopping.Done():
			continue
		}
		if s.refresh(failures > 0) {
			failures = 0
		} else {
			failures++
			s.again()
		}
		_ = sleep.For(s.stopping, max(relistPause, backoff(failures))) // the condition of the loop has its error
	}
	var err error
	select {
	case err = <-gone:
	default:
	}
	cause := context.Cause(s.stopping)
	s.close()
	switch {
	case errors.Is(cause, errClosed):
	case errors.Is(cause, errLapsed):
		s.link.lost(s, cause)
	default:
		s.link.lost(s, s.reason(cmp.Or(err, cause)))
	}
}

// close ends the connection in order, or cuts it after closePatience. It
// returns when nothing of the session is left.
func (s *session) close() {
	if s.client != nil {
		late := time.AfterFunc(closePatience, s.abort)
		_ = s.client.Close() // waits for running requests, which have been told to end
		late.Stop()
	}
	if s.pipe != nil {
		s.pipe.End(exitGrace, errUnwanted)
		<-s.pipe.Done()
	}
	s.cut()
	if s.web != nil {
		s.web.next.CloseIdleConnections()
	}
}

func (s *session) abort() {
	s.cut()
	if s.pipe != nil {
		s.pipe.Kill(errUnwanted)
	}
}

// reason returns why a connection ended or was not made. Call it after the end.
func (s *session) reason(err error) error {
	if cause := context.Cause(s.stopping); errors.Is(cause, errFlood) { // other errors are a consequence of the flood
		return cause
	}
	switch {
	case s.web != nil:
		if trouble := s.web.trouble.Load(); trouble != nil { // the library keeps the text only
			return &fault{words: trouble.words, detail: err}
		}
		if s.client == nil && ended(err) { // after an answer; otherwise trouble would be set
			return &fault{"what it answered is not MCP", err}
		}
	case ended(err) && s.pipe != nil:
		if cause := s.pipe.failure(); cause != nil {
			return fmt.Errorf("%w: %w", errEnded, cause)
		}
	}
	return err
}

// relist makes run list the tools again soon.
func (s *session) relist() {
	if s.pipe != nil {
		s.pipe.relisting.Store(false)
	}
	s.again()
}

func (s *session) again() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// refresh lists the tools again and reports whether it succeeded. It tells
// clients of a failure unless quiet.
func (s *session) refresh(quiet bool) bool {
	ctx, cancel := context.WithTimeout(s.stopping, s.link.set.opts.connectTimeout)
	defer cancel()
	err := s.list(ctx)
	if err != nil && !quiet && s.stopping.Err() == nil {
		err = s.reason(err)
		s.link.say("has other tools now, but does not list them: "+why(err), err)
	}
	return err == nil
}

// list reads the tools that the server offers, and leaves out invalid ones.
func (s *session) list(ctx context.Context) error {
	tools := []Tool{}
	var left []string // left out
	seen := map[string]bool{}
	room := maxToolsBytes
	caps := s.client.InitializeResult().Capabilities
	more := caps != nil && caps.Tools != nil
	params := &sdk.ListToolsParams{}
	for page := 0; more && page < maxPages; page++ {
		res, err := s.client.ListTools(ctx, params)
		if err != nil {
			return err
		}
		for _, t := range res.Tools {
			tool, err := toolOf(s.link.server.Name, t)
			size := len(tool.Description) + len(tool.Schema)
			switch {
			case err != nil:
				left = append(left, label(t.Name)+" ("+err.Error()+")")
			case seen[tool.FullName]:
			case len(tools) >= maxTools || room < size:
				left = append(left, label(t.Name)+" (too many)")
			default:
				room -= size
				seen[tool.FullName] = true
				tools = append(tools, tool)
			}
		}
		more = res.NextCursor != "" && len(tools) < maxTools
		params = &sdk.ListToolsParams{Cursor: res.NextCursor}
	}
	if changes := s.link.setTools(tools); changes != "" {
		text := "has other tools now: " + s.link.hide(changes) // in any case: at most once in relistPause
		s.link.note(text, nil)
		s.link.set.publish(s.link.title + " " + text)
	}
	if len(left) > 0 {
		s.link.say(fmt.Sprintf("has %s that nobody is offered: %s", toolCount(len(left)), s.link.hide(label(strings.Join(left, ", ")))), nil)
	}
	return nil
}

// toolOf checks and converts a tool of a server.
func toolOf(server string, t *sdk.Tool) (Tool, error) {
	if t.Name == "" || len(t.Name) > maxToolName {
		return Tool{}, errors.New("no name, or too long a one")
	}
	schema, err := schemaOf(t.InputSchema)
	if err != nil {
		return Tool{}, err
	}
	tool := Tool{
		Server: server, Name: t.Name, FullName: fullName(server, t.Name),
		Title: label(t.Title), Description: abridge.Head(clean(t.Description), maxDescription), Schema: schema,
	}
	if a := t.Annotations; a != nil {
		tool.Title = cmp.Or(tool.Title, label(a.Title))
		tool.ReadOnly, tool.Idempotent = a.ReadOnlyHint, a.IdempotentHint
	}
	tool.Title = cmp.Or(tool.Title, label(t.Name))
	return tool, nil
}

// schemaOf returns the schema of a tool's arguments, which must be that of an
// object.
func schemaOf(schema any) (json.RawMessage, error) {
	fields, ok := schema.(map[string]any)
	if schema != nil && !ok {
		return nil, errors.New("its schema is no object")
	}
	whole := map[string]any{"type": "object"}
	maps.Copy(whole, fields)
	if whole["type"] != "object" {
		return nil, errors.New("its arguments are no object")
	}
	text, err := json.Marshal(whole)
	if err == nil && len(text) > maxSchemaBytes {
		err = errors.New("its schema is too long")
	}
	return text, err
}

const (
	namePrefix   = "mcp__"
	nameDivider  = "__"
	maxToolBytes = 64 // accepted by every model provider
	nameHash     = 8  // hex digits
)

// fullName returns the name of a server's tool for models: mcp__server__tool,
// of letters, digits, underscores and hyphens. If characters were replaced, or
// the name is too long or ambiguous, it ends in a hash of both names. The name
// depends on nothing else, so that a rule for a tool stays valid.
func fullName(server, tool string) string {
	name := namePrefix + server + nameDivider + tool
	clean := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, name)
	ambiguous := strings.Contains(server, nameDivider) || strings.HasSuffix(server, "_")
	if clean == name && len(name) <= maxToolBytes && !ambiguous {
		return name
	}
	sum := sha256.Sum256([]byte(server + "\x00" + tool))
	suffix := "_" + hex.EncodeToString(sum[:])[:nameHash]
	return clean[:min(len(clean), maxToolBytes-len(suffix))] + suffix
}
