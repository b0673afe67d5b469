package conformance

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Where the HTTP surface is.
const (
	connectionsPath = "/api/headless/connections"
	sessionsPath    = "/api/headless/sessions"
	identityPath    = "/.well-known/evalops/remote-runner/identity"
	drainPath       = "/.well-known/evalops/remote-runner/drain"
	readyPath       = "/readyz"
	healthPath      = "/healthz"
)

// routeOf returns a route of a session; empty is the session itself.
func routeOf(session, route string) string {
	path := sessionsPath + "/" + url.PathEscape(session)
	if route != "" {
		path += "/" + route
	}
	return path
}

func (s *Session) route(route string) string { return routeOf(s.ID, route) }

// fields are the keys of a JSON object to be sent. One that is leftOut takes a
// key away that would be sent otherwise.
type fields = map[string]any

type absent struct{}

var leftOut = absent{}

func with(base, f fields) fields {
	merged := maps.Clone(base)
	for k, v := range f {
		if v == leftOut {
			delete(merged, k)
		} else {
			merged[k] = v
		}
	}
	return merged
}

// A Caller is one HTTP client played by a scenario. It presents in every call
// what the server gave it. It belongs to the scenario's goroutine.
type Caller struct {
	s    *Session
	name string // in the exchange, and as clientInfo.name
	role contracts.Role

	connection, subscription, token string
	streams                         []*Peer // of its subscriptions

	session string        // that of the connection
	beats   time.Duration // from one heartbeat to the next; zero for none
	beaten  time.Time     // the last heartbeat, or the answer with the connection
}

// caller returns a client that has said nothing yet.
func (s *Session) caller(name string, role contracts.Role) *Caller {
	c := &Caller{s: s, name: name, role: role}
	s.callers = append(s.callers, c)
	return c
}

// driver returns a controller with a subscription in a session of its own.
func (s *Session) driver() *Caller {
	c := s.controllerOnly()
	c.subscribed(nil)
	return c
}

// controllerOnly is driver without the subscription.
func (s *Session) controllerOnly() *Caller {
	c := s.caller("alice", contracts.RoleController)
	c.connected(nil)
	return c
}

// guest returns a viewer with a connection to the scenario's session.
func (s *Session) guest(name string) *Caller {
	c := s.caller(name, contracts.RoleViewer)
	c.connected(nil)
	return c
}

// introduction is what a client announces: what the scenario needs of its role.
func (c *Caller) introduction() fields {
	f := fields{"protocolVersion": contracts.ProtocolVersion, "role": string(c.role),
		"clientInfo": fields{"name": c.name, "version": "1.0"}}
	offers := fields{}
	if len(c.s.answers) > 0 {
		offers["serverRequests"] = c.s.answers
	}
	if len(c.s.operations) > 0 {
		offers["utilityOperations"] = c.s.operations
	}
	if c.role == contracts.RoleController && len(offers) > 0 {
		f["capabilities"] = offers
	}
	return f
}

// connect posts a connection to the scenario's session, or to a new one if
// there is none yet, and keeps what it is given.
func (c *Caller) connect(f fields) *Answer {
	body := c.introduction()
	if c.s.opened {
		body["sessionId"] = c.s.ID
	}
	if c.connection != "" {
		body["connectionId"] = c.connection
	}
	live := c.s.opened && f["sessionId"] == nil
	a := c.submit(connectionsPath, with(body, f))
	c.s.failIf(live && c.s.published() && a.Status == http.StatusNotFound && c.s.sameText(a.str("error"), textNoSession), "1.6:live",
		"%s: expected a connection to session %s, in which somebody is, got %s", a.what(), c.s.ID, a.said())
	if a.Status == http.StatusOK {
		a.shaped("1.6", "ConnectionAnswer")
		a.epoch()
		if !c.s.opened {
			c.s.ID, c.s.opened = a.str("session_id"), true
		}
		c.keep(a)
	}
	return a
}

// connected is connect that must succeed.
func (c *Caller) connected(f fields) *Answer { return c.connect(f).ok("1.6") }

// subscribe makes an explicit subscription and keeps what it is given.
func (c *Caller) subscribe(f fields) *Answer {
	body := c.introduction()
	if c.connection != "" {
		body = fields{"connectionId": c.connection, "role": string(c.role)}
	}
	a := c.submit(c.s.route("subscribe"), with(body, f))
	if a.Status == http.StatusOK {
		a.shaped("1.9", "SubscriptionAnswer")
		a.epoch()
		c.keep(a)
		c.subscription = a.str("subscription_id")
	}
	return a
}

func (c *Caller) subscribed(f fields) *Answer { return c.subscribe(f).ok("1.9") }

// keep takes what an answer gives a client, once it was found to agree with
// itself.
func (c *Caller) keep(a *Answer) {
	c.connection = a.str("connection_id")
	if token := a.Header.Get(tokenHeader); token != "" {
		c.token = token
	}
	held := a.at("controller_lease_granted") == true
	c.s.failIf(held != (a.at("controller_connection_id") == c.connection), "1.6",
		"%s: controller_lease_granted and controller_connection_id disagree: %s", a.what(), a.said())
	if end := a.at("lease_expires_at"); end != nil {
		instant(c.s, "1.6", end)
	}
	n := number(a.at("heartbeat_interval_ms"))
	c.s.failIf(n <= 0, "1.6", "%s: expected a positive heartbeat_interval_ms, got %d", a.what(), n)
	c.session, c.beats, c.beaten = c.s.ID, time.Duration(n)*time.Millisecond, time.Now()
	c.s.shows("1.6", a.snapshot(), fields{"session_id": c.s.ID})
}

// instant parses a time as the protocol writes it: RFC 3339, UTC, milliseconds.
func instant(s *Session, rule string, v any) time.Time {
	const form = "2006-01-02T15:04:05.000Z"
	text, _ := v.(string)
	at, err := time.Parse(form, text)
	s.failIf(err != nil, rule, "expected a time such as %s, got %s", form, show(v))
	return at
}

func (c *Caller) identity() http.Header {
	h := http.Header{}
	for name, value := range map[string]string{"X-Maestro-Headless-Connection-Id": c.connection,
		"X-Maestro-Headless-Subscriber-Id": c.subscription, tokenHeader: c.token} {
		if value != "" {
			h.Set(name, value)
		}
	}
	return h
}

// proof is the header that shows a connection to be the client's own.
func (c *Caller) proof() http.Header {
	if c.token == "" {
		return http.Header{}
	}
	return http.Header{tokenHeader: {c.token}}
}

// submit posts a JSON object with no other proof than the token.
func (c *Caller) submit(path string, body any) *Answer {
	return c.s.call(request{who: c.name, method: http.MethodPost, path: path, header: c.proof(), body: encode(body)})
}

func (c *Caller) sending(text []byte) request {
	return request{who: c.name, method: http.MethodPost, path: c.s.route("messages"), header: c.identity(), body: text}
}

func (c *Caller) post(cmd contracts.Command) *Answer { return c.postText(encodeCommand(cmd)) }

// postText is post for a message that no type of ours can express.
func (c *Caller) postText(text []byte) *Answer { return c.granted(c.s.call(c.sending(text))) }

// granted checks the answer to a message that was accepted.
func (c *Caller) granted(a *Answer) *Answer {
	if a.Status != http.StatusOK {
		return a
	}
	a.shaped("1.12", "MessageAnswer")
	for _, key := range []string{"ok", "success", "accepted"} {
		if v, said := a.Body[key]; said && v != true {
			c.s.fail("1.12", "%s: expected %s to be true, got %s", a.what(), key, a.said())
		}
	}
	if a.at("snapshot") != nil {
		a.snapshot()
	}
	return a
}

// effect returns the snapshot in the answer to a message, or the state after it if
// a published server answered without one.
func (a *Answer) effect() *Frame {
	if a.at("snapshot") == nil && a.s.published() { // there is advice about it already
		return a.s.state()
	}
	return a.snapshot()
}

func (c *Caller) posted(rule string, cmd contracts.Command) *Answer { return c.post(cmd).ok(rule) }

// prompt posts a prompt to the conformance agent until it is accepted.
func (c *Caller) prompt(content string) (a *Answer) {
	c.s.conformanceAgent()
	c.s.onceFree(c.name, func() bool {
		a = c.try(&contracts.Prompt{Content: content})
		return a.Status == http.StatusOK
	})
	if c.s.scripted() && strings.HasPrefix(content, triggerPrefix) {
		c.s.skipUnknownTrigger(a.effect().str("state.last_status"))
	}
	return a
}

// try posts a prompt that is granted, or refused because a run is still active.
func (c *Caller) try(cmd *contracts.Prompt) *Answer {
	a := c.post(cmd)
	if a.Status != http.StatusOK {
		a.refused("1.12", contracts.CodeRuntimeBusy, textBusy)
	}
	return a
}

// ask makes the agent ask, and waits until the question is there.
func (c *Caller) ask(kind contracts.RequestType, id string) {
	c.prompt(c.s.question(kind, id, toolFor(kind)))
	c.s.stateWith("R50", "the request "+id, func(f *Frame) bool { return pending(f, id) })
}

// waits fails unless a request waits as of a snapshot, or does not.
func (s *Session) waits(rule string, f *Frame, id string, want bool) {
	s.failIf(pending(f, id) != want, rule, "expected request %s among those that wait: %t, got %s", id, want, show(f.at("state.pending_requests")))
}

func pending(f *Frame, id string) bool {
	return slices.ContainsFunc(waitingIn(f), func(r waitingRequest) bool { return r.id == id })
}

// beat starts to send the heartbeats that are due. With a slow server, a scenario may take
// longer than a client may be silent.
func (s *Session) beat(ctx context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	for _, c := range s.callers {
		if c.beats == 0 || time.Since(c.beaten) < c.beats {
			continue
		}
		c.beaten = time.Now()
		r := request{who: c.name, method: http.MethodPost, path: routeOf(c.session, "heartbeat"), header: c.proof(),
			body: encode(fields{"connectionId": c.connection})}
		wg.Go(func() { _, _ = s.send(ctx, r) }) // ends with its answer or ctx; the connection may be gone
	}
	return &wg
}

// act posts what a connection does, which the body names, and checks the answer.
func (c *Caller) act(route string, body fields, rule, definition string) *Answer {
	a := c.submit(c.s.route(route), body)
	if a.Status == http.StatusOK {
		a.shaped(rule, definition)
	}
	return a
}

func (c *Caller) heartbeat(f fields) *Answer {
	return c.act("heartbeat", with(fields{"connectionId": c.connection}, f), "1.13", "HeartbeatAnswer")
}

func (c *Caller) disconnect(f fields) *Answer {
	return c.act("disconnect", with(fields{"connectionId": c.connection}, f), "A13", "DisconnectAnswer")
}

func (c *Caller) unsubscribe(subscription string) *Answer {
	a := c.act("unsubscribe", fields{"subscriptionId": subscription}, "1.10", "SuccessAnswer")
	c.s.failIf(a.noRoute(), "1.1:unsubscribe", "%s: expected a subscription to be ended, got %s", a.what(), a.said())
	if a.Status == http.StatusOK {
		a.has("1.10", fields{"success": true})
	}
	return a
}

// follow opens the stream of the client's subscription after a cursor.
func (c *Caller) follow(cursor int64) *Peer {
	p := c.s.follow(c.name, follow{subscription: c.subscription, cursor: &cursor, header: c.proof()})
	p.connection = c.connection
	c.streams = append(c.streams, p)
	return p
}

// attached returns a controller whose stream is being read from here on.
func (s *Session) attached() (*Caller, *Peer) {
	c := s.controllerOnly()
	return c, c.follow(c.subscribed(nil).snapshot().Cursor)
}

// hello says hello over HTTP. The answer comes on the client's streams.
func (c *Caller) hello(h *contracts.Hello) *Answer {
	named := *h
	named.ClientInfo = &contracts.ClientInfo{Name: c.name, Version: "1.0"}
	for _, p := range c.streams {
		p.watch.hellos++
	}
	return c.post(&named)
}

// finish drives until every stream has shown a last status, so that their logs
// end at the same entry.
func (c *Caller) finish(peers ...*Peer) {
	c.prompt("the end")
	endTogether(peers...)
}

func (s *Session) state() *Frame {
	return s.stateOf(s.ID).ok("1.8").shaped("1.8", "Snapshot").snapshot()
}

// stateOf asks for a session's state where the server has it: published servers
// have it at one of two routes.
func (s *Session) stateOf(id string) *Answer {
	ask := func(route string) *Answer {
		return s.call(request{who: "judge", method: http.MethodGet, path: routeOf(id, route)})
	}
	a := ask("state")
	if a.noRoute() {
		s.advise("1.1:states", "%s: expected the state, got %s", a.what(), a.said())
		return ask("")
	}
	return a
}

// noRoute reports whether a published server answers that there is no such route,
// as opposed to no such session, connection or subscription.
func (a *Answer) noRoute() bool {
	return a.s.published() && a.Status == http.StatusNotFound && !slices.Contains([]string{textNoSession, otherTexts[textNoSession],
		textNoConnection, textNoSubscriber, otherTexts[textNoSubscriber]}, a.str("error"))
}

// stateWith asks for the state until it is as wanted.
func (s *Session) stateWith(rule, what string, ok func(*Frame) bool) (f *Frame) {
	s.until(rule, "a state with "+what, func() (bool, string) {
		f = s.state()
		return ok(f), f.said()
	})
	return f
}

func entryOf(f *Frame, connection string) map[string]any {
	return entryWith(f, "state.connections", "connection_id", connection)
}

// entryWith returns the entry of a list that has an id, or nil.
func entryWith(f *Frame, list, key, id string) map[string]any {
	for _, e := range listOf(f, list) {
		if e[key] == id {
			return e
		}
	}
	return nil
}

func holderOf(f *Frame) any { return f.at("state.controller_connection_id") }
