package double

import (
	"cmp"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// prefix begins every path of the protocol.
const prefix = "/api/headless/"

// maxKept bounds what is remembered of the past: stored replies, and ids of
// connections that are gone.
const maxKept = 1024

// A call is one HTTP request whose body has been read. Its methods run under
// Server.mu.
type call struct {
	s    *Server
	req  *http.Request
	id   string // the session in the path
	body []byte
}

// A reply is a whole HTTP response.
type reply struct {
	status int
	epoch  string // header X-Maestro-Headless-Epoch; empty for none
	token  string // header X-Maestro-Headless-Connection-Token; empty for none
	header http.Header
	code   contracts.Code // of a refusal
	body   []byte
}

// An act answers a call.
type act func(*call) reply

// routes are the paths, with {id} for a session, their methods and what they
// do. The two that take over the response are not among them.
var routes = map[string]map[string]act{
	prefix + "connections":               {"POST": (*call).connect},
	prefix + "sessions":                  {"POST": (*call).create, "GET": (*call).list},
	prefix + "sessions/{id}":             {"GET": (*call).state},
	prefix + "sessions/{id}/state":       {"GET": (*call).state},
	prefix + "sessions/{id}/subscribe":   {"POST": (*call).subscribe},
	prefix + "sessions/{id}/unsubscribe": {"POST": (*call).unsubscribe},
	prefix + "sessions/{id}/messages":    {"POST": (*call).message},
	prefix + "sessions/{id}/message":     {"POST": (*call).message},
	prefix + "sessions/{id}/heartbeat":   {"POST": (*call).heartbeat},
	prefix + "sessions/{id}/disconnect":  {"POST": (*call).disconnect},
	wellKnown + "identity":               {"GET": (*call).identity},
	wellKnown + "drain":                  {"POST": (*call).drain},
	"/healthz":                           {"GET": (*call).healthz},
	"/readyz":                            {"GET": (*call).readyz},
}

// sessionIDs are the ids a path may name.
var sessionIDs = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// ServeHTTP answers everything but stdio. Sockets and streams live in the call.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path, id, e := match(req.URL.EscapedPath())
	if e == nil {
		e = s.trusted(req)
	}
	switch {
	case e != nil:
		refuseHTTP(w, s, e)
		return
	case path == prefix+"ws" || path == prefix+"sessions/{id}/ws":
		s.upgrade(w, req, id)
		return
	case path == prefix+"sessions/{id}/events" && req.Method == http.MethodGet:
		s.events(w, &call{s: s, req: req, id: id})
		return
	}
	methods := routes[path]
	if s.lacks(path, req.Method) {
		methods = nil
	}
	if path == prefix+"sessions/{id}/events" {
		methods = map[string]act{"GET": nil}
	}
	do, ok := methods[req.Method]
	switch {
	case methods == nil, !ok && s.has(WrongMethodNotFound):
		refuseHTTP(w, s, refuse(contracts.CodeNotFound, "", "Not found"))
		return
	case !ok:
		w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
		refuseHTTP(w, s, refuse(contracts.CodeMethodNotAllowed, "", "Method not allowed"))
		return
	}
	body, e := s.readBody(w, req)
	if e != nil {
		refuseHTTP(w, s, e)
		return
	}
	s.mu.Lock()
	a := do(&call{s: s, req: req, id: id, body: body})
	s.mu.Unlock()
	a.write(w)
}

// lacks reports whether habits leave a route out.
func (s *Server) lacks(path, method string) bool {
	switch path {
	case prefix + "sessions/{id}/state":
		return s.has(BareState)
	case prefix + "sessions", prefix + "sessions/{id}/unsubscribe", prefix + "sessions/{id}/message":
		return s.has(FewRoutes)
	}
	return false
}

// trusted refuses names that are not this server's, and writes on behalf of
// pages that are not (D10).
func (s *Server) trusted(req *http.Request) *contracts.Error {
	host, _, err := net.SplitHostPort(req.Host)
	if err != nil {
		host = req.Host
	}
	origin := req.Header.Get("Origin")
	switch {
	case s.has(TrustsPages):
	case host != "localhost" && !net.ParseIP(host).IsLoopback():
		return refuse(contracts.CodeAccessDenied, "", "The host is not one of this server's")
	case req.Method != http.MethodGet && origin != "" && origin != "http://"+req.Host:
		return refuse(contracts.CodeAccessDenied, "", "The origin is not allowed")
	}
	return nil
}

// match finds the pattern and the session of an escaped path.
func match(path string) (pattern, id string, e *contracts.Error) {
	rest, ok := strings.CutPrefix(path, prefix+"sessions/")
	if !ok {
		return path, "", nil
	}
	first, rest, more := strings.Cut(rest, "/")
	id, err := url.PathUnescape(first)
	if err != nil || !sessionIDs.MatchString(id) {
		return "", "", refuse(contracts.CodeBadRequest, "", "Invalid session id")
	}
	pattern = prefix + "sessions/{id}"
	if more {
		pattern += "/" + rest
	}
	return pattern, id, nil
}

// readBody reads a body of acceptable size. The rest of a longer one is read
// too, within reason, so that the refusal arrives and not a reset.
func (s *Server) readBody(w http.ResponseWriter, req *http.Request) ([]byte, *contracts.Error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, contracts.MaxSocketBytes+1))
	if err != nil {
		return nil, refuse(contracts.CodeBadRequest, "", "the body ended early")
	}
	if len(body) <= contracts.MaxSocketBytes {
		return body, nil
	}
	if s.has(HangsUpOnLarge) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // the refusal gets lost
		panic(http.ErrAbortHandler)
	}
	_, _ = io.CopyN(io.Discard, req.Body, 16*contracts.MaxSocketBytes) // what is left is not wanted
	return nil, refuse(contracts.CodePayloadTooLarge, "", "Payload too large")
}

func (a reply) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, a.header)
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	if a.epoch != "" {
		h.Set("X-Maestro-Headless-Epoch", a.epoch)
	}
	if a.token != "" {
		h.Set("X-Maestro-Headless-Connection-Token", a.token)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that left needs no answer
}

func ok(v any) reply { return reply{status: http.StatusOK, body: encodeValue(v)} }

// no is the reply that refuses (1.4).
func (s *Server) no(e *contracts.Error) reply {
	a := reply{status: e.Code.HTTPStatus(), code: e.Code, header: http.Header{}}
	if (a.status == 503 || a.status == 429) && !s.has(NoRetryAfter) {
		a.header.Set("Retry-After", "1")
	}
	details := e.Details()
	if e.Code == contracts.CodeRuntimeNotReady || e.Code == contracts.CodeRuntimeOwnedElsewhere {
		details[0].Domain = "maestro.hosted_runner"
	}
	if s.has(ForbidsAll) && slices.Contains([]contracts.Code{contracts.CodeRuntimeBusy, contracts.CodeRequestNotFound, contracts.CodeRequestTypeMismatch,
		contracts.CodeUnsupportedCapability}, e.Code) {
		a.status = http.StatusForbidden
	}
	code := string(e.Code)
	if s.has(CodeIsStatusName) || s.has(CodeOnly) {
		code = map[int]string{400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS"}[a.status]
	}
	body := map[string]any{"error": e.Message, "error_type": e.Code, "code": cmp.Or(code, "UNKNOWN"),
		"retryable": e.Code.Retryable(), "details": details}
	for habit, key := range map[Defect]string{NoRetryable: "retryable", NoDetails: "details", CodeOnly: "error_type"} {
		if s.has(habit) {
			delete(body, key)
		}
	}
	a.body = encodeValue(body)
	return a
}

func refuseHTTP(w http.ResponseWriter, s *Server, e *contracts.Error) { s.no(e).write(w) }

// once does what an Idempotency-Key has not done yet, and repeats the reply of
// what it has. A refusal to be retried is not kept.
func (c *call) once(scope string, do func() reply) reply {
	key := c.req.Header.Get("Idempotency-Key")
	if key == "" || c.s.has(ForgetsKeys) {
		return do()
	}
	if len(key) > 128 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return c.s.no(refuse(contracts.CodeBadRequest, "", "Idempotency-Key must be at most 128 printable bytes"))
	}
	key = scope + " " + key
	if kept, found := c.s.replies[key]; found {
		return kept
	}
	a := do()
	if !a.code.Retryable() {
		c.s.replies[key] = a
		c.s.keys = append(c.s.keys, key)
	}
	if len(c.s.keys) > maxKept {
		delete(c.s.replies, c.s.keys[0])
		c.s.keys = c.s.keys[1:]
	}
	return a
}

// named returns the value of a header that has several spellings, which must
// not disagree.
func (c *call) named(names ...string) (string, *contracts.Error) {
	value := ""
	for _, family := range []string{"x-maestro-", "x-composer-", "x-evalops-"} {
		for _, name := range names {
			v := c.req.Header.Get(family + name)
			if c.s.has(OldSpellings) && (family == "x-evalops-" || strings.Contains(name, "subscription")) {
				continue
			}
			if v != "" && value != "" && v != value && !c.s.has(AnyHeaders) {
				return "", refuse(contracts.CodeBadRequest, "", "Headers disagree about "+name)
			}
			value = cmp.Or(value, v)
		}
	}
	return value, nil
}

// ids returns the connection and the subscription that the headers name.
func (c *call) ids() (conn, sub string, e *contracts.Error) {
	if conn, e = c.named("headless-connection-id"); e == nil {
		sub, e = c.named("headless-subscriber-id", "headless-subscription-id")
	}
	return conn, sub, e
}

// room finds the session in the path.
func (c *call) room() (*room, *contracts.Error) {
	if e := c.s.boundTo(c.id); e != nil {
		return nil, e
	}
	r := c.s.rooms[c.id]
	if r == nil {
		return nil, refuse(contracts.CodeStaleSession, "", "Headless session not found")
	}
	r.expire()
	return r, nil
}

// state shows the session.
func (c *call) state() reply {
	r, e := c.room()
	if e != nil {
		return c.s.no(e)
	}
	a := reply{status: http.StatusOK, body: r.snapshot(r.head)}
	if !c.s.has(NoEpochHeader) && !c.s.has(NoEpochs) {
		a.epoch = r.epoch
	}
	return a
}

// list shows the sessions, the latest first.
func (c *call) list() reply {
	rooms := slices.SortedFunc(maps.Values(c.s.rooms), func(a, b *room) int { return b.updated.Compare(a.updated) })
	entries := []map[string]any{}
	for _, r := range rooms {
		entries = append(entries, map[string]any{"session_id": r.id, "open": true, "updated_at": stamp(r.updated), "cursor": r.head,
			"is_responding": r.state.IsResponding, "connection_count": len(r.clients), "pending_request_count": len(r.questions)})
	}
	return ok(map[string]any{"sessions": entries})
}

// stamp renders a time as the wire does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (c *call) healthz() reply {
	if c.s.has(PlainHealth) {
		return reply{status: http.StatusOK, header: http.Header{"Content-Type": {"text/plain"}}, body: []byte("ok")}
	}
	return ok(map[string]bool{"ok": true})
}

// find returns a connection made over HTTP.
func (r *room) find(id string) *client {
	return at(r.clients, func(k *client) bool { return k.web && k.id == id })
}

// findSub returns a subscription made over HTTP.
func (r *room) findSub(id string) *subscription {
	for _, k := range r.clients {
		if s := at(k.subs, func(s *subscription) bool { return s.id == id }); s != nil {
			return s
		}
	}
	return nil
}

// at returns the first element that satisfies f, or nil.
func at[T any](list []*T, f func(*T) bool) *T {
	if i := slices.IndexFunc(list, f); i >= 0 {
		return list[i]
	}
	return nil
}

func staleConnection() *contracts.Error {
	return refuse(contracts.CodeStaleConnection, "", "Headless connection not found")
}

func staleSubscription() *contracts.Error {
	return refuse(contracts.CodeStaleSubscription, "", "Headless subscriber not found")
}

// proven refuses a connection token that is not the connection's. None is fine.
func (c *call) proven(k *client) *contracts.Error {
	token := c.req.Header.Get("X-Maestro-Headless-Connection-Token")
	if token != "" && token != k.token && !c.s.has(TokenNotChecked) && !c.s.has(NoTokens) {
		return refuse(contracts.CodeAccessDenied, "", "The connection token is not that of the connection")
	}
	return nil
}
