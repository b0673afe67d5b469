package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// attachment reads the body of an attaching request.
func (h *Handler) attachment(w http.ResponseWriter, r *http.Request, by contracts.Caller) (*contracts.AttachRequest, error) {
	req := new(contracts.AttachRequest)
	if err := h.body(w, r, req, false); err != nil {
		return nil, err
	}
	req.SessionID = strings.TrimSpace(req.SessionID)
	mode, err := approvalMode(r.Header)
	if err != nil {
		return nil, err
	}
	req.ApprovalMode = cmp.Or(req.ApprovalMode, mode)
	req.SessionID = cmp.Or(req.SessionID, by.Principal.SessionID)
	if err := checkSession(by.Principal, req.SessionID); err != nil {
		return nil, err
	}
	return req, h.fenceAttach(r, req)
}

// connect makes or renews a connection. It refuses an unknown session id; an
// empty one makes a new session.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	req, err := h.attachment(w, r, by)
	if err != nil {
		return nil, err
	}
	s, _, err := h.openSession(r, by, req, req.SessionID == "")
	if err == nil {
		err = reserve(r, s)
	}
	if err != nil {
		return nil, err
	}
	got, token, err := s.Connect(req, by)
	if err != nil {
		return nil, err
	}
	setSessionHeaders(w, s, token)
	return nil, answerWith(w, r, got, &got.Snapshot)
}

// answerWith sends body, whose last member is snapshot. The snapshot may be large,
// so it is not copied.
func answerWith(w http.ResponseWriter, r *http.Request, body any, snapshot *json.RawMessage) error {
	large := *snapshot
	*snapshot = json.RawMessage("{}")
	text, err := contracts.EncodeBody(body)
	if err != nil {
		return err
	}
	head, ok := bytes.CutSuffix(text, []byte("{}}"))
	if !ok {
		return errors.New("httpapi: the snapshot is not the last member of " + string(text))
	}
	connlimit.CountAnswer(r, len(large))
	httperr.WriteJSON(w, http.StatusOK, head, large, []byte("}"))
	return nil
}

// openSession finds or makes the session of an attaching client.
func (h *Handler) openSession(
	r *http.Request, by contracts.Caller, req *contracts.AttachRequest, create bool,
) (s Session, opened bool, err error) {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return nil, false, err
	}
	return h.opts.Find(r.Context(), Wanted{
		ID: req.SessionID, Create: create, Key: key, Principal: by.Principal, Role: by.Role, Runtime: req,
	})
}

// setSessionHeaders sets the header fields for facts that the bodies, whose
// members are fixed, cannot contain.
func setSessionHeaders(w http.ResponseWriter, s Session, token string) {
	w.Header().Set(headerEpoch, s.Epoch())
	if token != "" {
		w.Header().Set(contracts.HeaderConnectionToken, token)
	}
}

// create makes the session, or finds it. The client that makes it gets a
// connection, which its subscription then takes over.
func (h *Handler) create(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	req, err := h.attachment(w, r, by)
	if err != nil {
		return nil, err
	}
	s, opened, err := h.openSession(r, by, req, true)
	if err != nil {
		return nil, err
	}
	if !opened {
		return nil, show(w, r, s, s.State)
	}
	req.ConnectionID, by.ConnectionID = "", ""
	got, token, err := s.Connect(req, by)
	if err != nil {
		return nil, err
	}
	setSessionHeaders(w, s, token)
	connlimit.CountAnswer(r, len(got.Snapshot))
	httperr.WriteJSON(w, http.StatusOK, got.Snapshot)
	return nil, nil
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	if h.opts.List == nil {
		return nil, errNoRoute
	}
	return nil, answerLong(w, r, h.opts.List(by.Principal))
}

// state answers with the current state, or with the state as of a cursor.
func (h *Handler) state(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	q, err := readParams(r)
	if err != nil {
		return nil, err
	}
	at := q.integer("at")
	if q.err == nil && (at < 0 || at == 0 && q.text("at") != "") {
		q.refuse("the at must be a cursor from 1")
	}
	if q.err != nil {
		return nil, q.err
	}
	s, err := h.find(r, by)
	if err != nil {
		return nil, err
	}
	read := s.State
	if at > 0 {
		read = func() ([]byte, error) { return s.StateAt(r.Context(), uint64(at), by) }
	}
	return nil, show(w, r, s, read)
}

// connections answers with who is connected.
func (h *Handler) connections(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	s, err := h.find(r, by)
	if err != nil {
		return nil, err
	}
	list, err := s.Connections(by)
	if err != nil {
		return nil, err
	}
	return nil, answerLong(w, r, list)
}

// offer answers with the commands and the mode of the agent.
func (h *Handler) offer(_ http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	s, err := h.find(r, by)
	if err != nil {
		return nil, err
	}
	return bodyOf(s.Offer(by))
}

// show answers with the state that read returns.
func show(w http.ResponseWriter, r *http.Request, s Session, read func() ([]byte, error)) error {
	if err := reserve(r, s); err != nil {
		return err
	}
	text, err := read()
	if err != nil {
		return err
	}
	if err := connlimit.ReserveAnswer(r, len(text)); err != nil { // the state may be longer than SnapshotBytes said
		return err
	}
	setSessionHeaders(w, s, "")
	httperr.WriteJSON(w, http.StatusOK, text)
	return nil
}

func (h *Handler) subscribe(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	req, err := h.attachment(w, r, by)
	if err != nil {
		return nil, err
	}
	s, err := h.find(r, by)
	if err == nil {
		err = reserve(r, s)
	}
	if err != nil {
		return nil, err
	}
	got, token, err := s.Subscribe(req, by)
	if err != nil {
		return nil, err
	}
	setSessionHeaders(w, s, token)
	return nil, answerWith(w, r, got, &got.Snapshot)
}

func (h *Handler) unsubscribe(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	var req contracts.SubscriptionRequest
	if err := h.body(w, r, &req, false); err != nil {
		return nil, err
	}
	if req.SubscriptionID == "" {
		return nil, badRequest("Invalid request body: /subscriptionId Expected required property")
	}
	s, err := h.find(r, by)
	if err != nil {
		return nil, err
	}
	return &contracts.SuccessAnswer{Success: true}, s.Unsubscribe(req.SubscriptionID, by)
}

// onTarget serves a request about the connection or subscription that its body names,
// or else its headers.
func onTarget[A any](h *Handler, do func(Session, contracts.Caller) (A, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
		var req contracts.SubscriptionRequest
		if err := h.body(w, r, &req, true); err != nil {
			return nil, err
		}
		if req.ConnectionID != "" || req.SubscriptionID != "" {
			by.ConnectionID, by.SubscriptionID = req.ConnectionID, req.SubscriptionID
		}
		s, err := h.find(r, by)
		if err != nil {
			return nil, err
		}
		return do(s, by)
	}
}

func (h *Handler) send(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return nil, err
	}
	text, err := h.read(w, r)
	if err == nil && h.opts.Fence != nil {
		err = h.opts.Fence.CheckMessage()
	}
	if err != nil {
		return nil, err
	}
	s, err := h.find(r, by)
	if err != nil {
		return nil, err
	}
	return nil, s.Post(text, key, by, func(answer []byte) {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer))) // without it net/http would send chunks
		httperr.WriteJSON(w, http.StatusOK, answer)
		_ = http.NewResponseController(w).Flush() // an error says that the client has gone; it asks again
	})
}

// events answers with the event stream.
func (h *Handler) events(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
	if h.opts.Fence != nil {
		if err := h.opts.Fence.CheckOwner(r.Header.Get(headerOwner)); err != nil {
			return nil, err
		}
	}
	req, err := streamRequest(r, by)
	if err != nil {
		return nil, err
	}
	s, err := h.find(r, by)
	if err != nil {
		return nil, err
	}
	return nil, h.opts.Streams.Serve(w, r, s, req, by)
}

// streamRequest reads where a stream begins. A browser that reconnects repeats
// its first query, so Last-Event-ID overrides the cursor in the query (A59).
func streamRequest(r *http.Request, by contracts.Caller) (req contracts.StreamRequest, err error) {
	q, err := readParams(r)
	if err != nil {
		return req, err
	}
	req.SubscriptionID = cmp.Or(q.text("subscriptionId"), by.SubscriptionID)
	if q.text("cursor") != "" {
		req.Cursor = new(q.integer("cursor"))
	}
	if req.Epoch = q.text("epoch"); len(req.Epoch) > contracts.MaxIDBytes {
		q.refuse("malformed epoch")
	}
	req.Turns = int(q.turns())
	if epoch, cursor, ok := sse.ParseID(r.Header.Get("Last-Event-ID")); ok {
		req.Cursor, req.Epoch = &cursor, strings.Clone(epoch)
	}
	if req.SubscriptionID == "" && q.err == nil {
		if text := q.text("optOutNotifications"); text != "" && q.err == nil {
			req.OptOuts, q.err = optOuts(text)
		}
	}
	return req, q.err
}

// optOuts reads the notifications that a stream leaves out.
func optOuts(text string) (list []contracts.Notification, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n := contracts.Notification(strings.TrimSpace(word))
		if !slices.Contains(contracts.Notifications(), n) {
			return nil, badRequest("optOutNotifications: unknown notification")
		}
		if slices.Contains(list, n) {
			return nil, badRequest("optOutNotifications: a notification is there more than once")
		}
		list = append(list, n)
	}
	return list, nil
}
