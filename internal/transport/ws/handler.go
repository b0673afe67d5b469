package ws

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

// Options configures a handler. A zero field except the first three means the
// default named beside it.
type Options struct {
	// Authorize returns the principal of a request. Required. It must check Host
	// and Origin: the handler checks neither.
	Authorize func(*http.Request) (contracts.Principal, error)

	// Open finds the session to attach to, or refuses. Required. It is called
	// before the upgrade. The session must hold no resources before Serve,
	// because the handler drops it without notice if the upgrade fails.
	Open func(ctx context.Context, att contracts.Attach) (Session, error)

	// ConnLimit counts the connections and the bytes of incomplete messages,
	// together with those of other transports. Required. Beyond the bounds of
	// connections, the answer is 503 or 429 before the upgrade; beyond those of
	// bytes, the close code is 1013 or 4429.
	ConnLimit *connlimit.Limiter

	// RateLimit limits how fast one principal may attach. Nil means one with
	// defaults. Beyond the limit, the answer is 429.
	RateLimit *ratelimit.Limiter

	MaxFrameBytes int           // bounds one reassembled message; contracts.MaxSocketBytes; a larger one gets 1009
	WriteTimeout  time.Duration // for the peer to take a write; contracts.DefaultWriteTimeout

	// Header adds headers to the answer of a successful upgrade; nil adds none.
	Header func(http.Header)

	// Foreign says that the clients speak another protocol, so they need not offer the
	// subprotocol.
	Foreign bool

	// Explain reports whether the request comes from a page that may learn why it is
	// refused. A page cannot read the answer to a refused upgrade, so the handler
	// upgrades the request, sends ws.error and ws.goodbye, and closes the socket with
	// the code of the refusal. At most 64 such sockets are open at a time; further pages
	// get an HTTP answer like other clients. If Explain is nil, all get an HTTP answer.
	Explain func(*http.Request) bool

	// Refused is called for each connection that was refused after the upgrade.
	// It may be nil.
	Refused func(session, principal string, refusal *contracts.Error)

	Log *slog.Logger // discards
}

// A Session is the session that a connection attaches to.
type Session interface {
	// Serve serves conn until it has ended. It must return soon after conn's
	// methods fail. ctx ends when the limiter is closed. If the connection is
	// still open, a *contracts.Error becomes the close code, and any other error
	// 1011.
	Serve(ctx context.Context, conn *Conn) error
}

var errInternal = &contracts.Error{Code: contracts.CodeInternal, Message: "Internal server error"}

// Handler upgrades requests and owns the resulting connections. Mount it for
// GET /api/headless/ws and GET /api/headless/sessions/{id}/ws.
//
// A connection outlives its request in a new goroutine. That goroutine holds
// neither the ResponseWriter nor the Request, so net/http's buffers and stack
// are freed (D3).
type Handler struct {
	opts      Options
	explained chan struct{} // a token for each socket of explain
}

// maxExplained bounds the sockets that are open only to say why they were refused.
const maxExplained = 64

// New returns a handler.
func New(opts Options) (*Handler, error) {
	if opts.Authorize == nil || opts.Open == nil || opts.ConnLimit == nil {
		return nil, errors.New("ws: Authorize, Open and ConnLimit are required")
	}
	opts.MaxFrameBytes = cmp.Or(max(opts.MaxFrameBytes, 0), contracts.MaxSocketBytes)
	opts.WriteTimeout = cmp.Or(max(opts.WriteTimeout, 0), contracts.DefaultWriteTimeout)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.RateLimit = cmp.Or(opts.RateLimit, ratelimit.New(ratelimit.Options{}))
	return &Handler{opts, make(chan struct{}, maxExplained)}, nil
}

// ServeHTTP refuses the request, or upgrades it and returns.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h.attach(w, r)
	if err == nil {
		return
	}
	refusal, refused := errors.AsType[*contracts.Error](err)
	if !refused {
		h.opts.Log.Error("cannot attach a WebSocket", "error", err)
	} else if h.explain(w, r, refusal) {
		return
	}
	httperr.Write(w, err)
}

// explain refuses a page by closing its socket. It reports false if it has not answered
// the request.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request, why *contracts.Error) bool {
	if h.opts.Explain == nil || !canHijack(w) || checkUpgrade(http.Header{}, r, h.opts.Foreign) != nil || !h.opts.Explain(r) {
		return false
	}
	select {
	case h.explained <- struct{}{}:
	default:
		return false
	}
	httperr.Tell(w, why)
	conn, err := h.accept(w, r, maxExplainedFrame)
	if err != nil {
		<-h.explained
		h.opts.Log.Debug("upgrade failed", "error", err) // the library has answered
		return true
	}
	go func() { // ends after WriteTimeout and a second at the latest
		defer func() { <-h.explained }()
		if !h.opts.Foreign {
			_ = conn.Write(refusalFrames(why)) // the close code is told in any case
		}
		conn.Close(why)
		conn.linger()
	}()
	return true
}

// maxExplainedFrame bounds what is read from a socket that was refused.
const maxExplainedFrame = 4 << 10

// refusalFrames returns the frames that refuse a handshake.
func refusalFrames(why *contracts.Error) []byte {
	var out []byte
	for _, frame := range []contracts.Frame{contracts.NewRefusal(nil, 0, why), contracts.NewGoodbye(why)} {
		if text, err := contracts.EncodeFrame(frame); err == nil {
			out = Form{}.AppendControl(out, text)
		}
	}
	return out
}

// attach upgrades the request and starts the connection, or returns the
// refusal.
func (h *Handler) attach(w http.ResponseWriter, r *http.Request) error {
	att, err := h.identify(w, r)
	if err != nil {
		return err
	}
	slot, err := h.opts.ConnLimit.Admit(att.Principal)
	if err != nil {
		return err
	}
	defer func() { slot.Leave() }() // a connection that takes the slot over sets it to nil
	session, err := h.opts.Open(r.Context(), att)
	if err != nil {
		return err
	}
	if !canHijack(w) {
		return errors.New("middleware hides the connection: its http.ResponseWriter needs the method Unwrap or Hijack")
	}
	conn, err := h.accept(w, r, h.opts.MaxFrameBytes)
	if err != nil {
		h.opts.Log.Debug("upgrade failed", "error", err) // the library has answered
		return nil
	}
	conn.slot, slot = slot, nil
	// Ends with the connection; Limiter.Close waits for it.
	go h.run(conn, session, att.SessionID, att.Principal.ID)
	return nil
}

// identify returns the attachment that a request asks for, with its principal.
// It checks what needs no secret first, so that a malformed request does not
// use up a ticket.
func (h *Handler) identify(w http.ResponseWriter, r *http.Request) (contracts.Attach, error) {
	if err := checkUpgrade(w.Header(), r, h.opts.Foreign); err != nil {
		return contracts.Attach{}, err
	}
	att, refusal := parseAttach(r.PathValue("id"), r.URL.RawQuery)
	if refusal != nil {
		return contracts.Attach{}, refusal
	}
	principal, err := h.opts.Authorize(r)
	if err != nil {
		return contracts.Attach{}, err
	}
	att.Principal = principal
	if err := confine(&att); err != nil {
		return contracts.Attach{}, err
	}
	return att, ratelimit.Refusal(w.Header(), h.opts.RateLimit.Attach(principal.ID))
}

// confine applies the principal's limits to the attachment.
func confine(att *contracts.Attach) error {
	p := att.Principal
	if att.Role != "" {
		if err := p.CheckRole(att.Role); err != nil {
			return err
		}
	}
	if p.Role != "" && att.Create {
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential does not allow making sessions"}
	}
	if p.SessionID == "" {
		return nil
	}
	if att.SessionID != "" && att.SessionID != p.SessionID {
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential is for another session"}
	}
	att.SessionID = p.SessionID
	return nil
}

// canHijack reports whether [http.ResponseController] finds a Hijack method. accept cannot
// tell: the library sends status 101 before it hijacks the connection.
func canHijack(w http.ResponseWriter) bool {
	for {
		switch v := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return false
		}
	}
}

// accept upgrades the request. A message has at most maxFrame bytes. Nothing may use w or
// r after it.
func (h *Handler) accept(w http.ResponseWriter, r *http.Request, maxFrame int) (*Conn, error) {
	// The library gets our subprotocol only: it ignores case when it compares,
	// and the other subprotocols may hold a credential.
	offered := slices.Contains(tokens(r.Header, "Sec-WebSocket-Protocol"), contracts.Subprotocol)
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	if r.Header.Del("Sec-WebSocket-Protocol"); offered {
		r.Header.Set("Sec-WebSocket-Protocol", contracts.Subprotocol)
	}
	if h.opts.Header != nil {
		h.opts.Header(w.Header())
	}
	t := newTap(h.opts.WriteTimeout, maxFrame)
	lib, err := websocket.Accept(&hijacker{w, t}, r, &websocket.AcceptOptions{
		Subprotocols:       []string{contracts.Subprotocol},
		InsecureSkipVerify: true, // Authorize has checked the Origin
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     t.onPing,
	})
	if err != nil {
		return nil, err
	}
	lib.SetReadLimit(-1) // the tap's scanner enforces the limit, with our close reason
	return &Conn{lib: lib, tap: t}, nil
}

// run serves a connection from its start to its end.
func (h *Handler) run(c *Conn, s Session, session, principal string) {
	defer c.slot.Leave()
	err := c.slot.Serve(c, h.opts.Log, func(ctx context.Context) error { return s.Serve(ctx, c) })
	h.report(c, session, principal, err)
	c.Close(reason(err))
	c.linger()
}

// report logs how a connection's session ended. It is not part of run, whose
// frame lies on the stack of every idle connection.
//
//go:noinline
func (h *Handler) report(c *Conn, session, principal string, err error) {
	refusal, refused := errors.AsType[*contracts.Error](err)
	if c.noRoom != nil { // the session may not return it
		refusal, refused = c.noRoom, true
	}
	if refused && h.opts.Refused != nil {
		h.opts.Refused(session, principal, refusal)
	}
	if err != nil && !refused && c.healthy() {
		h.opts.Log.Error("WebSocket failed", "session", session, "principal", principal, "error", err)
	} else {
		h.opts.Log.Debug("WebSocket ended", "session", session, "principal", principal, "error", err)
	}
}

// reason returns the close reason for a session that returned err.
func reason(err error) *contracts.Error {
	refusal, ok := errors.AsType[*contracts.Error](err)
	switch {
	case ok:
		return refusal
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return nil
	}
	return errInternal
}
