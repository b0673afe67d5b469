package acpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// maxListing bounds the answer to a session list, in bytes.
const maxListing = 1 << 20

// maxUnread bounds the received events of one session that the editor has not read, in
// bytes, if this process is the server. It has many editors.
const maxUnread = 256 << 10

// An attachMode says how to attach to a session.
type attachMode struct {
	id      string
	create  bool
	history bool // with the history from its beginning
	answer  sessionAnswer
}

// A sessionAnswer is the answer to a request that attaches to a session.
type sessionAnswer struct {
	Meta      meta   `json:"_meta"`
	SessionID string `json:"sessionId,omitempty"` // of a new session
}

// A sessionRequest has the parameters of a session request. Of the MCP servers
// only their presence matters; some editors encode none as an object.
type sessionRequest struct {
	SessionID acp.SessionId   `json:"sessionId"`
	Cwd       string          `json:"cwd"`
	Servers   json.RawMessage `json:"mcpServers"`
}

// newSession makes a session, or attaches to the shared one. The history comes
// after the answer, because the editor must know the id first.
func (p *peer) newSession(ctx context.Context, id json.RawMessage, req *sessionRequest) (any, error) {
	w := attachMode{id: p.Session, create: p.Create, history: true}
	if w.id == "" {
		w.id, w.create = "sess_"+strings.ToLower(rand.Text()), true
	}
	w.answer.SessionID = w.id
	return nil, p.attach(ctx, id, req, w, true)
}

// attaching returns a function that attaches to a session: with its history, which
// is sent before the answer, or without.
func (p *peer) attaching(history bool) func(context.Context, json.RawMessage, *sessionRequest) (any, error) {
	return func(ctx context.Context, id json.RawMessage, req *sessionRequest) (any, error) {
		return nil, p.attach(ctx, id, req, attachMode{id: string(req.SessionID), history: history}, false)
	}
}

// attach attaches to a session. The attachment answers the request.
func (p *peer) attach(ctx context.Context, request json.RawMessage, at *sessionRequest, w attachMode, early bool) error {
	if w.id == "" {
		return invalid("sessionId is missing")
	}
	if !filepath.IsAbs(at.Cwd) {
		return errNoPath // before a server is started for it
	}
	s, err := p.Open(ctx, at.Cwd)
	if err != nil {
		return err
	}
	if err := p.checkDirectory(ctx, s, at.Cwd); err != nil {
		return err
	}
	if old := p.find(acp.SessionId(w.id)); old != nil {
		old.end()
	}
	if s.Ready != nil {
		if err := s.Ready(ctx, w.id, w.create && !p.View); err != nil {
			return explain(err, w.id)
		}
	}
	c, err := client.Dial(ctx, s.URL, p.dialing(s, w)...)
	if err != nil {
		return explain(err, w.id)
	}
	a := newAttachment(p, c, acp.SessionId(w.id))
	_ = json.Unmarshal(at.Servers, &a.unused) // an object means none
	a.request, a.answer = request, w.answer
	if err := p.enter(a); err != nil {
		_ = c.Close(false) // nothing has been done in the session yet
		return err
	}
	if early {
		a.greet()
	}
	p.serving.Go(a.follow) // ends with the session, with a.end, or with p.ctx
	return nil
}

var errNoPath = invalid("cwd is no absolute path")

// enter registers an attachment.
func (p *peer) enter(a *attachment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.attached) >= maxAttached:
		return failure("too many sessions are attached: close one first")
	case p.attached[a.id] != nil:
		return failure("the session is being attached already")
	}
	p.attached[a.id] = a
	return nil
}

// drop removes an attachment that has ended.
func (p *peer) drop(a *attachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.attached, a.id)
}

// dialing returns the client options for attaching.
func (p *peer) dialing(s Server, w attachMode) []client.Option {
	hello := contracts.Hello{
		Role:         contracts.RoleController,
		ClientInfo:   &contracts.ClientInfo{Name: p.name, Version: p.Version},
		Capabilities: &contracts.Capabilities{RawAgentEvents: true, People: true, ServerRequests: p.kinds},
	}
	takeover := contracts.TakeoverLater
	switch {
	case p.View:
		hello.Role, hello.Capabilities.ServerRequests, takeover = contracts.RoleViewer, nil, contracts.TakeoverRefuse
	case p.Approve:
		hello.Role, takeover = contracts.RoleApprover, contracts.TakeoverRefuse
		hello.Capabilities.ServerRequests = p.answerable()
	case p.Take:
		takeover = contracts.TakeoverForce
	}
	opts := []client.Option{
		client.WithHello(hello), client.WithTakeover(takeover), client.WithSession(w.id, w.create && !p.View), client.WithLogger(p.Log),
		client.WithTokenFile(s.TokenFile), client.WithDialer(s.Dial),
	}
	if s.Dial != nil {
		opts = append(opts, client.WithBuffer(maxUnread))
	}
	if w.history {
		opts = append(opts, client.WithHistory())
	}
	return opts
}

// explain returns a clearer error for a session that could not be opened.
func explain(err error, id string) error {
	e, closed := errors.AsType[*client.CloseError](err)
	if closed && e.Code == 4404 || errors.Is(err, &contracts.Error{Code: contracts.CodeStaleSession}) {
		return &contracts.Error{Code: contracts.CodeNotFound, Message: fmt.Sprintf("session %q not found", abridge.Head(id, maxName))}
	}
	return err
}

// closeSession detaches from a session, and stops the run of the editor's
// prompt.
func (p *peer) closeSession(_ context.Context, _ json.RawMessage, req *acp.CloseSessionRequest) (any, error) {
	a := p.find(req.SessionId)
	if a == nil {
		return nil, failure("the session is not attached")
	}
	if t := a.cancelTurn(); t != nil {
		select {
		case <-t.over:
		case <-a.over:
		}
	}
	a.end()
	return struct{}{}, nil
}

// checkDirectory refuses a directory that is not the server's workspace.
func (p *peer) checkDirectory(ctx context.Context, s Server, cwd string) error {
	work, err := p.workspace(ctx, s)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		real = filepath.Clean(cwd) // the server may be on another machine
	}
	if real != work && filepath.Clean(cwd) != work {
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: fmt.Sprintf("the server works in %s, not in %s: open that directory, or start a server for this one", work, abridge.Head(cwd, 4*maxName))}
	}
	return nil
}

// workspace returns a server's workspace. A server that we did not start is
// asked once.
func (p *peer) workspace(ctx context.Context, s Server) (string, error) {
	p.mu.Lock()
	known := p.places[s.URL]
	p.mu.Unlock()
	if s.Workspace != "" || known != "" {
		return s.Workspace + known, nil
	}
	c, err := client.Dial(ctx, s.URL, client.WithRole(contracts.RoleViewer), client.WithoutReconnect(),
		client.WithSession(p.Session, p.Session != "" && p.Create && !p.View),
		client.WithTokenFile(s.TokenFile), client.WithDialer(s.Dial))
	if err != nil {
		return "", fmt.Errorf("ask the server for its workspace: %w", explain(err, p.Session))
	}
	defer c.Close(false)
	for c.State().Cwd == "" {
		if _, err := c.Next(ctx); err != nil {
			return "", fmt.Errorf("ask the server for its workspace: %w", err)
		}
	}
	work := c.State().Cwd
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places[s.URL] = work
	return work, nil
}

// listSessions lists the sessions of the server for a directory.
func (p *peer) listSessions(ctx context.Context, _ json.RawMessage, req *acp.ListSessionsRequest) (any, error) {
	cwd := ""
	if req.Cwd != nil {
		cwd = *req.Cwd
	}
	if cwd != "" && !filepath.IsAbs(cwd) {
		return nil, errNoPath
	}
	s, err := p.Open(ctx, cwd)
	if err != nil {
		return nil, err
	}
	answer := acp.ListSessionsResponse{Sessions: []acp.SessionInfo{}}
	work, err := p.workspace(ctx, s)
	if err != nil {
		return nil, err
	}
	if cwd != "" && p.checkDirectory(ctx, s, cwd) != nil {
		return answer, nil // a server for another directory has none
	}
	var list *contracts.SessionList
	if s.List != nil {
		list = s.List()
	} else if list, err = fetch(ctx, s); err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	for _, e := range list.Sessions {
		answer.Sessions = append(answer.Sessions, acp.SessionInfo{
			SessionId: acp.SessionId(e.SessionID), Cwd: work, UpdatedAt: acp.Ptr(e.UpdatedAt),
		})
	}
	return answer, nil
}

// fetch gets the session list of a server.
func fetch(ctx context.Context, s Server) (*contracts.SessionList, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	u.Path = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(u.Path, "/ws"), "/api/headless"), "/") + "/api/headless/sessions"
	u.RawQuery = ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if s.TokenFile != "" {
		token, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	req.Close = true // no idle connection is left
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // the needed part was read
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	list := &contracts.SessionList{}
	return list, json.NewDecoder(io.LimitReader(res.Body, maxListing)).Decode(list)
}
