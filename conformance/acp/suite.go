// Package acp judges the ACP edge of a server: the Agent Client Protocol on a WebSocket. The
// server must have the conformance agent. Each scenario has a session of its own, in which a
// native client takes part over HTTP.
package acp

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

//go:embed rules.txt
var rulesText string

// Suite returns the suite about the edge. Its target is ws://HOST:PORT or wss://HOST:PORT.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Protocol: "acp", Title: "Rules of the ACP edge",
		About: "`maestro conformance --protocol acp` judges the ACP edge of a server, `/acp`, by these rules.\n" +
			"[conformance.md](conformance.md#acp) says how to run it.",
		Scenarios: scenarios(),
		Rules:     conformance.ParseRules(rulesText),
		Check:     check,
	}
}

func check(_ context.Context, c *conformance.Config, _ []conformance.Scenario) error {
	if u, err := url.Parse(c.Target); err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return fmt.Errorf("%w: %q is not ws://HOST:PORT", conformance.ErrTarget, c.Target)
	}
	return nil
}

type object = lines.Object

// A play is one scenario being played against the server.
type play struct {
	*lines.Play
	base string // http:// or https:// address of the server
	wire conformance.Wire
}

func scenario(name, rule, title string, story func(*play)) conformance.Scenario {
	return conformance.Scenario{Name: name, Title: title, Rules: []string{rule}, Run: func(s *conformance.Session) {
		u, _ := url.Parse(s.Config().Target) // check has accepted it
		base := "http" + strings.TrimPrefix(u.Scheme, "ws") + "://" + u.Host
		wire := conformance.NewWire(base, s.Config().Token)
		s.AtEnd(wire.Close)
		story(&play{&lines.Play{S: s, Rule: rule}, base, wire})
	}}
}

// A socket is a connection to the edge. It implements [conformance.Link].
type socket struct {
	*websocket.Conn
	id string // Acp-Connection-Id
}

const maxFrame = 16 << 20 // bytes of a frame from the server

// dial opens a connection. query is empty or begins with a question mark. If the server
// refuses the upgrade, dial returns its answer.
func (p *play) dial(query string, o websocket.DialOptions) (*socket, *http.Response) {
	if o.HTTPHeader == nil {
		o.HTTPHeader = p.credential()
	}
	conn, resp, err := websocket.Dial(p.S.Context(), p.base+"/acp"+query, &o)
	if err != nil {
		if resp == nil {
			p.Fail("expected an answer to the upgrade, got: %v", err)
		}
		return nil, resp
	}
	conn.SetReadLimit(maxFrame)
	return &socket{conn, resp.Header.Get("Acp-Connection-Id")}, resp
}

func (p *play) credential() http.Header {
	if p.S.Config().Token == "" {
		return http.Header{}
	}
	return http.Header{"Authorization": {"Bearer " + p.S.Config().Token}}
}

// Send sends a text.
func (s *socket) Send(ctx context.Context, text []byte) error {
	return s.Write(ctx, websocket.MessageText, text)
}

// SendRaw sends a line as a text.
func (s *socket) SendRaw(ctx context.Context, line []byte) error {
	return s.Send(ctx, bytes.TrimSuffix(line, []byte("\n")))
}

// Recv waits for the next text. The error of a close is a [*conformance.Closed].
func (s *socket) Recv(ctx context.Context) ([]byte, error) {
	_, text, err := s.Read(ctx)
	if end, closed := errors.AsType[websocket.CloseError](err); closed {
		return nil, &conformance.Closed{Code: int(end.Code), Reason: end.Reason}
	}
	return text, err
}

// CloseInput closes the connection normally.
func (s *socket) CloseInput() error { return s.Conn.Close(websocket.StatusNormalClosure, "") }

// Wait fails: no process belongs to a connection.
func (s *socket) Wait(context.Context) (int, error) { return 0, errors.ErrUnsupported }

// Diagnostics returns nothing.
func (s *socket) Diagnostics() string { return "" }

// Close ends the connection at once.
func (s *socket) Close() error { return s.CloseNow() }

// A client is an ACP client.
type client struct {
	*lines.Client
	p     *play
	sent  int // requests
	epoch string
	last  float64 // cursor
}

// connect opens a connection that the server must accept.
func (p *play) connect(query string) *client {
	s, resp := p.dial(query, websocket.DialOptions{})
	if s == nil {
		p.Fail("expected the upgrade to succeed, got status %d", resp.StatusCode)
	}
	return p.join(s)
}

func (p *play) join(s *socket) *client {
	c := &client{p: p}
	c.Client = p.Join(s, lines.Setup{Framed: "P16", Check: c.check})
	return c
}

// check judges the position of an update.
func (c *client) check(l lines.Line) {
	if l.Str("method") != "session/update" {
		return
	}
	cursor, ok := l.Num("params._meta.maestro.cursor")
	epoch := l.Str("params._meta.maestro.epoch")
	if !ok || epoch == "" || cursor < c.last || c.epoch != "" && epoch != c.epoch {
		c.p.S.Fail("P9", "expected an update at or after cursor %.0f of epoch %s, got %s", c.last, c.epoch, l)
	}
	c.last, c.epoch = cursor, epoch
}

// request sends a request and returns its id.
func (c *client) request(method string, params any) float64 {
	c.sent++
	c.Send(object{"jsonrpc": "2.0", "id": c.sent, "method": method, "params": params})
	return float64(c.sent)
}

// answer waits for the answer to a request. It returns the lines before it, too.
func (c *client) answer(id float64) ([]lines.Line, lines.Line) {
	return c.Until(fmt.Sprintf("the answer %.0f", id), func(l lines.Line) bool {
		n, ok := l.Num("id")
		return ok && n == id && !l.Has("method")
	})
}

// asks sends a request that must succeed.
func (c *client) asks(method string, params any) ([]lines.Line, lines.Line) {
	before, l := c.answer(c.request(method, params))
	c.p.FailIf(!l.Has("result"), "expected a result of %s, got %s", method, l)
	return before, l
}

// refused sends a request that must be refused.
func (c *client) refused(method string, params any) lines.Line {
	_, l := c.answer(c.request(method, params))
	c.p.FailIf(!l.Has("error.code") || l.Str("error.message") == "", "expected a refusal of %s, got %s", method, l)
	return l
}

var hello = object{"protocolVersion": 1, "clientInfo": object{"name": "conformance", "version": "1"}}

func prompt(session, text string) object {
	return object{"sessionId": session, "prompt": []any{object{"type": "text", "text": text}}}
}

// updates waits for an update of a kind whose content has a text.
func (c *client) updates(kind, text string) lines.Line {
	_, l := c.Until(kind+" with "+text, func(l lines.Line) bool { return isUpdate(l, kind, text) })
	return l
}

func isUpdate(l lines.Line, kind, text string) bool {
	return l.Str("params.update.sessionUpdate") == kind && strings.Contains(l.Str("params.update.content.text"), text)
}

// A native client takes part in a session over HTTP.
type native struct {
	p                   *play
	session, connection string
	token               string // of the connection
	dir                 string // of the server
}

// native connects a client to a session, and makes one for an empty name. It takes control,
// or watches.
func (p *play) native(session string, control bool) *native {
	n := &native{p: p}
	body := object{"role": "viewer"}
	if control {
		body = object{"takeControl": true}
	}
	if session != "" {
		body["sessionId"] = session
	}
	status, header, answer := n.post("/api/headless/connections", body)
	n.session, _ = answer["session_id"].(string)
	n.connection, _ = answer["connection_id"].(string)
	n.dir, _ = lines.At(answer, "snapshot.state.cwd").(string)
	n.token = header.Get("X-Maestro-Headless-Connection-Token")
	p.FailIf(status != http.StatusOK || n.session == "" || n.connection == "", "expected a native client to connect, got %d %v", status, answer)
	if session == "" {
		p.S.AtEnd(func() { // a failure leaves the session
			last := p.native(n.session, true)
			last.post("/api/headless/sessions/"+n.session+"/messages", object{"type": "shutdown"})
		})
	}
	return n
}

func (n *native) post(path string, body object) (status int, header http.Header, answer object) {
	request, _ := json.Marshal(body) // it can be encoded
	status, header, text := n.call(http.MethodPost, path, request)
	err := json.Unmarshal(text, &answer)
	n.p.FailIf(err != nil, "expected JSON from %s, got %d: %v", path, status, err)
	return status, header, answer
}

// gets returns what a route of the session answers.
func (n *native) gets(route string) (status int, text string) {
	status, _, body := n.call(http.MethodGet, "/api/headless/sessions/"+n.session+"/"+route, nil)
	return status, string(body)
}

func (n *native) call(method, path string, body []byte) (int, http.Header, []byte) {
	header := http.Header{"Content-Type": {"application/json"}}
	if n.connection != "" {
		header.Set("X-Maestro-Headless-Connection-Id", n.connection)
		header.Set("X-Maestro-Headless-Connection-Token", n.token)
	}
	resp, err := n.p.wire.Open(n.p.S.Context(), method, path, header, body)
	if err != nil {
		n.p.Fail("expected an answer of %s, got: %v", path, err)
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxFrame))
	n.p.FailIf(err != nil, "expected the whole answer of %s, got: %v", path, err)
	n.p.S.Record("native", "<", text)
	return resp.StatusCode, resp.Header, text
}

// sends sends a command that must succeed.
func (n *native) sends(cmd object) {
	status, _, answer := n.post("/api/headless/sessions/"+n.session+"/messages", cmd)
	n.p.FailIf(status != http.StatusOK, "expected %v to be accepted, got %d %v", cmd["type"], status, answer)
}

// begin makes a session with a native client and attaches an ACP client. more is added to
// the query.
func (p *play) begin(more string) (*native, *client) {
	n := p.native("", false)
	c := p.connect("?sessionId=" + n.session + more)
	c.asks("initialize", hello)
	_, l := c.asks("session/new", object{"cwd": n.dir, "mcpServers": []any{}})
	p.FailIf(l.Str("result.sessionId") != n.session, "expected session %s, got %s", n.session, l)
	return n, c
}
