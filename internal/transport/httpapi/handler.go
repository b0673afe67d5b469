package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// RateLimiter limits requests; see [ratelimit.Limiter]. An attaching request
// counts as an attachment, any other as a request.
type RateLimiter interface {
	Request(principalID string) (wait time.Duration)
	Attach(principalID string) (wait time.Duration)
}

// A Handler serves the attach surface. It is safe for concurrent use.
type Handler struct {
	opts    Options
	decoder contracts.Decoder
}

// New returns a handler.
func New(opts Options) (*Handler, error) {
	if opts.Authorize == nil || opts.Find == nil || opts.Streams == nil {
		return nil, errors.New("httpapi: Authorize, Find and Streams are required")
	}
	opts.MaxBodyBytes = cmp.Or(max(opts.MaxBodyBytes, 0), contracts.MaxSocketBytes)
	return &Handler{opts: opts, decoder: contracts.Decoder{Strict: opts.Strict}}, nil
}

// Routes adds all routes to mux. A known path with a wrong method is answered
// with 405 and the allowed methods, an unknown path with 404, both with the
// body of a refusal.
func (h *Handler) Routes(mux *http.ServeMux) {
	const session = "/api/headless/sessions/{id}"
	asks, attaches := h.authenticated(RateLimiter.Request), h.authenticated(RateLimiter.Attach)
	mount(mux, "/api/headless/connections", httperr.Methods{"POST": attaches(h.connect)})
	mount(mux, "/api/headless/sessions", httperr.Methods{"POST": attaches(h.create), "GET": asks(h.list), "HEAD": asks(h.list)})
	h.overviewRoutes(mux, session, reads(asks(h.state)))
	mount(mux, session+"/state", reads(asks(h.state)))
	mount(mux, session+"/subscribe", httperr.Methods{"POST": attaches(h.subscribe)})
	mount(mux, session+"/unsubscribe", httperr.Methods{"POST": asks(h.unsubscribe)})
	mount(mux, session+"/events", httperr.Methods{"GET": attaches(h.events)}) // a stream does not end, so there is no HEAD
	mount(mux, session+"/history", reads(asks(h.history(contracts.HistoryEntries))))
	mount(mux, session+"/turns", reads(asks(h.history(contracts.HistoryTurns))))
	mount(mux, session+"/search", reads(asks(h.history(contracts.HistorySearch))))
	mount(mux, session+"/connections", reads(asks(h.connections)))
	mount(mux, session+"/offer", reads(asks(h.offer)))
	mount(mux, session+"/messages", httperr.Methods{"POST": asks(h.send)})
	mount(mux, session+"/message", httperr.Methods{"POST": asks(h.send)})
	mount(mux, session+"/heartbeat", httperr.Methods{"POST": asks(onTarget(h, Session.Heartbeat))})
	mount(mux, session+"/disconnect", httperr.Methods{"POST": asks(onTarget(h, Session.Disconnect))})
	mux.Handle("/healthz", reads(healthz))
	mux.Handle("/readyz", reads(h.readyz))
	mux.HandleFunc("/", h.noRoute)
	if h.opts.Page != nil {
		mux.Handle("/assets/", h.opts.Page)
		mux.Handle("/inbox", h.opts.Page)
		mux.Handle("/sw.js", h.opts.Page)
		mux.Handle("/manifest.webmanifest", h.opts.Page)
	}
}

func mount(mux *http.ServeMux, path string, can httperr.Methods) {
	mux.Handle(path, can)
	mux.Handle(path+"/{$}", can) // some clients end every path with a slash
}

func reads(do http.HandlerFunc) httperr.Methods { return httperr.Methods{"GET": do, "HEAD": do} }

// An endpoint serves one request. It returns a body type or an error to be sent,
// or nil after it has answered.
type endpoint func(w http.ResponseWriter, r *http.Request, by contracts.Caller) (body any, err error)

// A limit is the method of a RateLimiter that counts a request.
type limit func(r RateLimiter, principalID string) (wait time.Duration)

// authenticated wraps endpoints with what they have in common: authentication,
// rate limit and headers. count is the limit that their requests count for.
func (h *Handler) authenticated(count limit) func(endpoint) http.HandlerFunc {
	return func(do endpoint) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var body any
			by, err := h.begin(w, r, count)
			if err == nil {
				body, err = do(w, r, by)
			}
			answer(w, http.StatusOK, body, err)
		}
	}
}

// begin admits a request, and returns its sender.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, count limit) (by contracts.Caller, err error) {
	p, err := h.opts.Authorize(r)
	if err == nil && h.opts.Rates != nil {
		err = ratelimit.Refusal(w.Header(), count(h.opts.Rates, p.ID))
	}
	if err != nil {
		return by, err
	}
	if by, err = caller(r.Header); err != nil {
		return by, err
	}
	by.Principal = p
	session := r.PathValue("id")
	if err := checkSession(p, session); err != nil {
		return by, err
	}
	return by, h.fence(r, session)
}

// checkSession refuses a session id that is malformed or not for the principal.
func checkSession(p contracts.Principal, id string) error {
	switch {
	case id == "":
	case !contracts.ValidID(id):
		return badRequest("malformed session id")
	case p.SessionID != "" && id != p.SessionID:
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential is for another session"}
	}
	return nil
}

// find opens the session in the path.
func (h *Handler) find(r *http.Request, by contracts.Caller) (Session, error) {
	s, _, err := h.opts.Find(r.Context(), Wanted{ID: r.PathValue("id"), Principal: by.Principal})
	return s, err
}

// body decodes a request's body into a body type. It refuses an empty body
// unless mayBeEmpty.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, into any, mayBeEmpty bool) error {
	text, err := h.read(w, r)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		if mayBeEmpty {
			return nil
		}
		return badRequest("Invalid request body: empty")
	}
	return h.decoder.Body(text, into)
}

// read reads a request's body. A larger body than allowed is refused by its
// Content-Length, or when too many bytes have arrived; the client can read the
// refusal (A75).
func (h *Handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	text, err := connlimit.ReadBody(w, r, h.opts.MaxBodyBytes)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return nil, err
	}
	return text, nil
}

// reserve reserves memory for an answer with the state, before the state is
// encoded. The answer stays in memory until the client has read it.
func reserve(r *http.Request, s Session) error { return connlimit.ReserveAnswer(r, s.SnapshotBytes()) }

// answer sends err as a refusal, or a body type unless it is nil.
func answer(w http.ResponseWriter, status int, body any, err error) {
	var text []byte
	if err == nil && body != nil {
		text, err = contracts.EncodeBody(body)
	}
	switch {
	case err != nil:
		httperr.Write(w, err)
	case body != nil:
		httperr.WriteJSON(w, status, text)
	}
}

// welcome is the text for a person who opens the address of a server without a page in a browser.
// It is the same on every server, because the reader has shown no credential.
const welcome = `This is a Maestro server: a coding agent that one client at a time drives, and any number watch.

There is nothing to click here. Attach from a terminal:

    maestro attach ADDRESS

ADDRESS is that of this page. What the server printed when it started is the same line with
all that is needed, such as where its token is.
`

var errNoRoute = &contracts.Error{Code: contracts.CodeNotFound, Message: "route not found"}

// noRoute serves paths without a route. A browser at / gets the page or the welcome
// text, every other request a refusal.
func (h *Handler) noRoute(w http.ResponseWriter, r *http.Request) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.URL.Path == "/" {
		w.Header().Add("Vary", "Accept")
	}
	if r.URL.Path != "/" || !reads || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		httperr.Write(w, errNoRoute)
		return
	}
	if h.opts.Page != nil {
		h.opts.Page.ServeHTTP(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	_, _ = w.Write([]byte(welcome)) // an error says that the browser has gone
}

// healthz answers that the process runs.
func healthz(w http.ResponseWriter, _ *http.Request) {
	httperr.WriteJSON(w, http.StatusOK, []byte(`{"ok":true}`))
}

// ErrNotAttaching is the refusal of [Options.Ready] of a session that drains or has ended.
var ErrNotAttaching = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "not accepting new attachments"}

// readyz says whether clients may attach, or why not. It says nothing else, because probes
// carry no credential.
func (h *Handler) readyz(w http.ResponseWriter, _ *http.Request) {
	var refusal *contracts.Error
	draining := false
	if h.opts.Ready != nil {
		refusal, draining = h.opts.Ready()
	}
	if refusal == nil {
		httperr.WriteJSON(w, http.StatusOK, []byte(`{"ok":true,"ready":true,"draining":false}`))
		return
	}
	httperr.WriteWith(w, refusal, fmt.Sprintf(`"draining":%t,"ok":false,"ready":false,`, draining))
}

// A Session is a session as its HTTP clients use it. A *contracts.Error is a
// refusal: the call has changed nothing.
type Session interface {
	sse.Session

	// State returns the encoded current snapshot.
	State() ([]byte, error)

	// StateAt returns the encoded state as of a cursor. It may wait until ctx ends.
	StateAt(ctx context.Context, cursor uint64, by contracts.Caller) ([]byte, error)

	// SnapshotBytes returns the approximate length of the encoded snapshot, or
	// zero before the first one is encoded.
	SnapshotBytes() int

	// Connect makes or renews a connection. token is the secret of a new one.
	Connect(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.ConnectionAnswer, token string, err error)

	// Subscribe makes a subscription, and its connection if there is none.
	Subscribe(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.SubscriptionAnswer, token string, err error)

	// Unsubscribe ends a subscription. Ending the last one ends its connection.
	Unsubscribe(id string, by contracts.Caller) error

	// Post admits the command in text and calls reply with the encoded answer,
	// or returns a refusal. The command's effects begin after reply returns.
	// Calls with the same key admit the command once.
	Post(text []byte, key string, by contracts.Caller, reply func(answer []byte)) error

	// Answer answers a pending question without a connection. ended is false if the
	// question needs more votes.
	Answer(answer *contracts.ServerRequestResponse, by contracts.Caller) (cursor uint64, ended bool, err error)

	// History reads a page of the history. It may wait until ctx ends.
	History(ctx context.Context, req *contracts.HistoryRequest, by contracts.Caller) (*contracts.HistoryPage, error)

	// Connections says who is connected.
	Connections(by contracts.Caller) (*contracts.ConnectionList, error)

	// Offer returns the commands and the mode of the agent.
	Offer(by contracts.Caller) (*contracts.AgentOffer, error)

	Heartbeat(by contracts.Caller) (*contracts.HeartbeatAnswer, error)
	Disconnect(by contracts.Caller) (*contracts.DisconnectAnswer, error)
}

// A Wanted says which session a request needs, and whether to make it.
type Wanted struct {
	ID        string // empty: a new session, or the only one
	Create    bool   // make the session if it is unknown
	Socket    bool   // for a WebSocket, whose clients may leave the choice to the server
	Key       string // idempotency key of a request that makes a session without an id: a repeated request finds that session
	Principal contracts.Principal
	Role      contracts.Role           // the role that the headers request
	Runtime   *contracts.AttachRequest // the requested properties of a new runtime; nil if there are none
}

// Options configures a handler. Authorize, Find and Streams are required.
type Options struct {
	// Authorize returns the principal of a request. It checks Host and Origin as
	// well.
	Authorize func(*http.Request) (contracts.Principal, error)

	// Find opens the session of a request. opened says that this call started
	// its runtime.
	Find func(ctx context.Context, want Wanted) (session Session, opened bool, err error)

	// List lists the sessions that a principal may reach. Nil answers 404.
	List func(contracts.Principal) *contracts.SessionList

	// Overview serves the routes of the overview and of the inbox. Nil answers 404.
	Overview Overview

	// Notifier serves the routes of notifications. Nil answers 404.
	Notifier Notifier

	// Fence refuses requests that a hosted runner may not serve. It may be nil.
	Fence Fence

	// Ready returns why clients may not attach, or nil, and whether the process is
	// draining. A nil function means ready.
	Ready func() (refusal *contracts.Error, draining bool)

	// Page serves a browser at /, /inbox and the files below /assets/. Nil shows a text at /.
	Page http.Handler

	Streams *sse.Streams
	Rates   RateLimiter // limits the requests of one principal; nil means no limit

	MaxBodyBytes int  // bounds a request body; zero means contracts.MaxSocketBytes; a larger one gets 413
	Strict       bool // refuse unknown keys and nulls (D13)
}
