package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A Server is all sessions of a server that one credential may reach: their list, the
// inbox, shares, and who is connected. Its methods make HTTP requests and may be called
// from any goroutine. There is nothing to close.
//
// The error of a method is a [*CloseError]. If the server refused, errors.As also finds a
// [*contracts.Error] with the metadata of the refusal. The client does not repeat a
// request. All requests but CreateShare may be repeated: of several answers to one question
// only the first counts.
type Server struct {
	base *url.URL // of the routes, with /api/headless

	mu     sync.Mutex // guards the token in config, and calls of its header
	config config
}

// NewServer returns the server at base: its URL, or the URL of a WebSocket endpoint below
// it. Of the options it uses WithToken, WithTokenFile, WithHeader, WithDialer,
// WithReconnect and WithLogger. It makes no connection.
func NewServer(base string, opts ...Option) (*Server, error) {
	u, ticket, err := endpoint(base)
	if err == nil && ticket != "" {
		err = errors.New("server address: a ticket is for one connection, want a token")
	}
	if err != nil {
		return nil, err
	}
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	u.Path = strings.TrimSuffix(u.Path, "/ws")
	return &Server{base: u, config: newConfig(opts)}, nil
}

// Sessions returns a page of the sessions that q selects, those that need somebody first.
// Next of the page is After of the query for the next page.
func (s *Server) Sessions(ctx context.Context, q contracts.OverviewQuery) (*contracts.Overview, error) {
	values := url.Values{}
	var statuses []string
	for _, status := range q.Statuses {
		statuses = append(statuses, string(status))
	}
	for key, value := range map[string]string{"status": strings.Join(statuses, ","), "q": q.Text, "after": q.After} {
		if value != "" {
			values.Set(key, value)
		}
	}
	if q.Archived {
		values.Set("archived", "true")
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	return ask[contracts.Overview](ctx, s, http.MethodGet, values, nil, "overview")
}

// FollowSessions follows the list of sessions that are not archived and not deleted. Each
// connection begins with an event of type sessions, whose list has at most limit sessions;
// zero means 100. See [Server.FollowInbox].
func (s *Server) FollowSessions(ctx context.Context, limit int) iter.Seq2[ListUpdate[contracts.OverviewEvent], error] {
	values := url.Values{}
	if limit > 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	return followList[contracts.OverviewEvent](ctx, s, values, "overview", "events")
}

// UpdateSession sets the title of a session, or whether it is archived.
func (s *Server) UpdateSession(
	ctx context.Context, id string, u contracts.SessionUpdate,
) (*contracts.SessionSummary, error) {
	return ask[contracts.SessionSummary](ctx, s, http.MethodPatch, nil, &u, "sessions", id)
}

// DeleteSession deletes a session. The server removes it for good at RemovedAt of the
// summary; until then RestoreSession brings it back.
func (s *Server) DeleteSession(ctx context.Context, id string) (*contracts.SessionSummary, error) {
	return ask[contracts.SessionSummary](ctx, s, http.MethodDelete, nil, nil, "sessions", id)
}

// RestoreSession undoes DeleteSession.
func (s *Server) RestoreSession(ctx context.Context, id string) (*contracts.SessionSummary, error) {
	return ask[contracts.SessionSummary](ctx, s, http.MethodPost, nil, nil, "sessions", id, "restore")
}

// Connections says who is connected to a session.
func (s *Server) Connections(ctx context.Context, session string) (*contracts.ConnectionList, error) {
	return ask[contracts.ConnectionList](ctx, s, http.MethodGet, nil, nil, "sessions", session, "connections")
}

// Offer returns the commands and the mode of the agent of a session.
func (s *Server) Offer(ctx context.Context, session string) (*contracts.AgentOffer, error) {
	return ask[contracts.AgentOffer](ctx, s, http.MethodGet, nil, nil, "sessions", session, "offer")
}

// Inbox lists the open questions of all sessions that the principal may answer.
func (s *Server) Inbox(ctx context.Context) (*contracts.Inbox, error) {
	return ask[contracts.Inbox](ctx, s, http.MethodGet, nil, nil, "inbox")
}

// FollowInbox follows the inbox until ctx ends, the caller stops, or an error, which is the
// last element. It reconnects as [Dial] says; each connection begins with an event of type
// questions, which replaces what the caller knew. The caller ignores events of other types
// than it knows. While it handles an update, nothing is read; the server sends a new list
// to a client that is too slow.
func (s *Server) FollowInbox(ctx context.Context) iter.Seq2[ListUpdate[contracts.InboxEvent], error] {
	return followList[contracts.InboxEvent](ctx, s, nil, "inbox", "events")
}

// AnswerQuestion answers a question of the inbox. If somebody was faster, the error has
// the code request_not_found, and metadata that says how the question ended.
func (s *Server) AnswerQuestion(
	ctx context.Context, session, request string, a contracts.InboxAnswer,
) (*contracts.InboxReceipt, error) {
	return ask[contracts.InboxReceipt](ctx, s, http.MethodPost, nil, &a, "inbox", session, request)
}

// CreateShare makes a share of a session. Only its answer has the secret, Token.
func (s *Server) CreateShare(
	ctx context.Context, session string, r contracts.ShareRequest,
) (*contracts.ShareAnswer, error) {
	return ask[contracts.ShareAnswer](ctx, s, http.MethodPost, nil, &r, "sessions", session, "shares")
}

// Shares lists the shares of a session, the oldest first.
func (s *Server) Shares(ctx context.Context, session string) (*contracts.ShareList, error) {
	return ask[contracts.ShareList](ctx, s, http.MethodGet, nil, nil, "sessions", session, "shares")
}

// RevokeShare revokes a share of a session and ends its connections.
func (s *Server) RevokeShare(ctx context.Context, session, share string) error {
	_, err := ask[contracts.SuccessAnswer](ctx, s, http.MethodDelete, nil, nil, "sessions", session, "shares", share)
	return err
}

// LoginPath makes a link that logs a browser in with the rights of this client, once and
// within ten minutes. It returns the path and query of the link.
func (s *Server) LoginPath(ctx context.Context) (string, error) {
	made, err := ask[contracts.TicketAnswer](ctx, s, http.MethodPost, nil, &contracts.TicketRequest{Login: true}, "ws-tickets")
	if err != nil {
		return "", err
	}
	return "/login?ticket=" + url.QueryEscape(made.Ticket), nil
}

// ask makes a request. body is a pointer to a body type, or nil.
func ask[A any](ctx context.Context, s *Server, method string, query url.Values, body any, path ...string) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout) // an answer may open a session at rest
	defer cancel()
	res, why := s.request(ctx, method, query, body, path)
	if why != nil {
		return nil, why
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxFrame))
	if err != nil {
		return nil, &CloseError{Code: codeLost, Err: err}
	}
	answer := new(A)
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, &CloseError{Code: codeProtocol, Err: &protocolError{err}}
	}
	return answer, nil
}

// request makes a request and returns the response if its status is 200.
func (s *Server) request(
	ctx context.Context, method string, query url.Values, body any, path []string,
) (*http.Response, *CloseError) {
	target := s.base
	for _, part := range path {
		if part == "" || part == "." || part == ".." { // it would name another route
			const code = contracts.CodeBadRequest
			return nil, &CloseError{Code: code.CloseCode(), Reason: code, Message: "malformed id"}
		}
		target = target.JoinPath(url.PathEscape(part))
	}
	target.RawQuery = query.Encode()
	var text []byte
	var err error
	if body != nil {
		text, err = contracts.EncodeBody(body)
	}
	var req *http.Request
	if err == nil {
		req, err = http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(text))
	}
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
		s.mu.Lock()
		err = s.config.authorize(req.Header)
		s.mu.Unlock()
	}
	if err != nil {
		return nil, &CloseError{Code: codeLost, Err: err, undialed: true}
	}
	client := http.Client{Transport: s.config.transport(), CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	res, err := client.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if err != nil {
		op, ok := errors.AsType[*net.OpError](err)
		return nil, &CloseError{Code: codeLost, Err: cmp.Or(context.Cause(ctx), err), undialed: ok && op.Op == "dial"}
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	why, refused := refusedRequest(res)
	if refused != nil {
		why.Err = refused
	}
	return nil, why
}

// A ListUpdate is one item of a list that is followed.
type ListUpdate[E any] struct {
	Event *E            // nil if the connection was lost
	Err   error         // a *CloseError: why the connection was lost
	Retry time.Duration // delay until the next attempt
}

// listSilence is three times the interval at which the server sends something on the
// stream of a list.
const listSilence = 3 * contracts.DefaultHeartbeatInterval

// followList follows the stream of a list at path.
func followList[E any](ctx context.Context, s *Server, query url.Values, path ...string) iter.Seq2[ListUpdate[E], error] {
	return func(yield func(ListUpdate[E], error) bool) {
		tries := attempts{policy: s.config.reconnect, jitter: mathrand.Float64}
		for {
			began := time.Now()
			why := readList(ctx, s, query, path, func(event *E) bool {
				return yield(ListUpdate[E]{Event: event}, nil)
			})
			if why == nil {
				return
			}
			tries.ended(began)
			delay, more := tries.next(why.RetryAfter)
			switch {
			case ctx.Err() != nil:
				yield(ListUpdate[E]{}, context.Cause(ctx))
				return
			case !more || !why.temporary():
				yield(ListUpdate[E]{}, why)
				return
			}
			s.config.log.Info("connection lost", "cause", why, "retry", delay)
			if !yield(ListUpdate[E]{Err: why, Retry: delay}, nil) {
				return
			}
			if err := sleep.For(ctx, delay); err != nil {
				yield(ListUpdate[E]{}, err)
				return
			}
		}
	}
}

// readList passes the events of one connection on. It returns nil if yield stopped it,
// otherwise why the connection ended.
func readList[E any](ctx context.Context, s *Server, query url.Values, path []string, yield func(*E) bool) *CloseError {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silence := time.AfterFunc(openTimeout, func() { stop(errSilent) })
	defer silence.Stop()
	res, why := s.request(ctx, http.MethodGet, query, nil, path)
	if why != nil {
		return why
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxFrame)
	for {
		silence.Reset(listSilence)
		more := lines.Scan()
		silence.Stop() // the time that the caller takes does not count
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case !more:
			return &CloseError{Code: codeLost, Err: cmp.Or(context.Cause(ctx), lines.Err(), io.EOF)}
		case !ok:
			continue // a comment, the delay of browsers, or the end of an event
		}
		event := new(E)
		if err := json.Unmarshal(data, event); err != nil {
			return &CloseError{Code: codeProtocol, Err: &protocolError{fmt.Errorf("event of a list: %w", err)}}
		}
		if !yield(event) {
			return nil
		}
	}
}
