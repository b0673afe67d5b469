package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// server returns the server that h plays.
func (s *fakeServer) server(h http.HandlerFunc, opts ...Option) *Server {
	s.t.Helper()
	s.refuse(h)
	server, err := NewServer("ws://fake/api/headless/ws", append([]Option{WithDialer(s.dial)}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return server
}

func TestServerMakesRequests(t *testing.T) {
	for _, tt := range []struct {
		want, answer string
		do           func(*Server) (any, error)
	}{
		{"GET /api/headless/overview?after=x%2Fy&archived=true&limit=3&q=a+b&status=waiting%2Cfailed ", `{"sessions":[{"session_id":"m"}],"next":"n"}`,
			func(s *Server) (any, error) {
				page, err := s.Sessions(t.Context(), contracts.OverviewQuery{Text: "a b", After: "x/y", Archived: true, Limit: 3,
					Statuses: []contracts.SessionStatus{contracts.SessionWaiting, contracts.SessionFailed}})
				return page.Sessions[0].SessionID + page.Next, err
			}},
		{`PATCH /api/headless/sessions/m {"title":"x","archived":true}`, `{"session_id":"m"}`, func(s *Server) (any, error) {
			sum, err := s.UpdateSession(t.Context(), "m", contracts.SessionUpdate{Title: new("x"), Archived: new(true)})
			return sum.SessionID + "n", err
		}},
		{"DELETE /api/headless/sessions/m ", `{"session_id":"m","removed_at":"n"}`, func(s *Server) (any, error) {
			sum, err := s.DeleteSession(t.Context(), "m")
			return sum.SessionID + sum.RemovedAt, err
		}},
		{"POST /api/headless/sessions/m/restore ", `{"session_id":"mn"}`, func(s *Server) (any, error) {
			sum, err := s.RestoreSession(t.Context(), "m")
			return sum.SessionID, err
		}},
		{"GET /api/headless/sessions/m/connections ", `{"connections":[{"author":{"name":"m"},"since":"n"}]}`, func(s *Server) (any, error) {
			list, err := s.Connections(t.Context(), "m")
			return list.Connections[0].Author.Name + list.Connections[0].Since, err
		}},
		{"GET /api/headless/inbox ", `{"questions":[{"session_id":"m","request_id":"n"}]}`, func(s *Server) (any, error) {
			list, err := s.Inbox(t.Context())
			return list.Questions[0].SessionID + list.Questions[0].RequestID, err
		}},
		{`POST /api/headless/inbox/m/a%2Fb {"approved":true,"digest":"d"}`, `{"session_id":"m","request_id":"n"}`, func(s *Server) (any, error) {
			receipt, err := s.AnswerQuestion(t.Context(), "m", "a/b", contracts.InboxAnswer{Approved: new(true), Digest: "d"})
			return receipt.SessionID + receipt.RequestID, err
		}},
		{`POST /api/headless/sessions/m/shares {"role":"viewer"}`, `{"share_id":"m","token":"n"}`, func(s *Server) (any, error) {
			share, err := s.CreateShare(t.Context(), "m", contracts.ShareRequest{Role: contracts.RoleViewer})
			return share.ShareID + share.Token, err
		}},
		{"GET /api/headless/sessions/m/shares ", `{"shares":[{"share_id":"mn"}]}`, func(s *Server) (any, error) {
			list, err := s.Shares(t.Context(), "m")
			return list.Shares[0].ShareID, err
		}},
		{"GET /api/headless/sessions/m/offer ", `{"commands":[{"name":"m"}],"mode":"n"}`, func(s *Server) (any, error) {
			offer, err := s.Offer(t.Context(), "m")
			return offer.Commands[0].Name + offer.Mode, err
		}},
		{`POST /api/headless/ws-tickets {"login":true}`, `{"ticket":"m/n"}`, func(s *Server) (any, error) {
			path, err := s.LoginPath(t.Context())
			return strings.Replace(path, "/login?ticket=m%2Fn", "mn", 1), err
		}},
		{"GET /api/headless/overview ", `{"sessions":[],"next":"mn"}`, func(s *Server) (any, error) {
			page, err := s.Sessions(t.Context(), contracts.OverviewQuery{})
			return page.Next, err
		}},
		{"DELETE /api/headless/sessions/m/shares/x ", `{"success":true}`, func(s *Server) (any, error) {
			return "mn", s.RevokeShare(t.Context(), "m", "x")
		}},
	} {
		s := newFakeServer(t)
		server := s.server(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if got := r.Method + " " + r.URL.RequestURI() + " " + string(body); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := r.Header.Get("Authorization"); got != "Bearer secret" {
				t.Errorf("%s: got the credential %q", tt.want, got)
			}
			if got := r.Header.Get("Content-Type"); got != "application/json" || !r.Close {
				t.Errorf("%s: got a body of type %q and close %t, want JSON and that the connection ends", tt.want, got, r.Close)
			}
			_, _ = io.WriteString(w, tt.answer)
		}, WithToken("secret"))
		if got, err := tt.do(server); got != "mn" || err != nil {
			t.Errorf("%s: got %v, %v", tt.want, got, err)
		}
	}
}

func TestFailedRequestsAreDescribed(t *testing.T) {
	s := newFakeServer(t)
	try := func(h http.HandlerFunc) (*CloseError, string) {
		_, err := s.server(h).AnswerQuestion(t.Context(), "main", "q", contracts.InboxAnswer{})
		why, ok := errors.AsType[*CloseError](err)
		if !ok {
			t.Fatalf("got %v, want a CloseError", err)
		}
		return why, err.Error()
	}
	refuse := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://elsewhere/")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	why, text := try(refuse(404, `{"error":"ended","code":"request_not_found","details":[{"reason":"request_not_found","metadata":{"resolution":"denied"}}]}`))
	refused, _ := errors.AsType[*contracts.Error](error(why))
	if text != "refused with status 404: request_not_found: ended" || refused == nil || refused.Metadata["resolution"] != "denied" {
		t.Errorf("got %s, %+v", text, refused)
	}
	if why, text = try(refuse(302, "")); text != "refused with status 302: Found" || why.temporary() {
		t.Errorf("got %s: want no redirect, and no other attempt", text)
	}
	if path, err := s.server(refuse(401, "")).LoginPath(t.Context()); path != "" || err == nil {
		t.Errorf("got link %q and %v, want an error", path, err)
	}
	if why, _ = try(refuse(200, "{")); why.Code != codeProtocol {
		t.Errorf("got %+v, want a broken answer", why)
	}
	for _, id := range []string{"", ".", ".."} {
		if err := s.server(refuse(200, `{"success":true}`)).RevokeShare(t.Context(), "main", id); err == nil {
			t.Errorf("got share %q revoked, want a refusal of what names another route", id)
		}
	}
	for what, h := range map[string]http.HandlerFunc{
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"session_id":`)
		},
	} {
		if why, text = try(h); why.Code != codeLost || !why.temporary() || !strings.HasPrefix(text, "connection closed: 1006") || strings.Contains(text, "fake") {
			t.Errorf("%s: got %s, want a lost connection", what, text)
		}
	}
	if _, err := s.server(nil, WithTokenFile("/none")).Inbox(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot connect: read token") {
		t.Errorf("got %v, want that there is no token", err)
	}
	s.setDown(true)
	if why, _ = try(nil); why.Code != codeLost || !why.temporary() {
		t.Errorf("got %+v, want a lost connection", why)
	}
	if _, err := NewServer("http://fake/?ticket=t"); err == nil || strings.Contains(err.Error(), "ticket=t") {
		t.Errorf("got %v, want a refused ticket that is not shown", err)
	}
}

// A list is followed over lost connections, until the server refuses for good.
func TestListIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		attempt := 0
		server := s.server(func(w http.ResponseWriter, r *http.Request) {
			attempt++
			switch attempt {
			case 1:
				_, _ = io.WriteString(w, "retry: 2000\n\n"+`data: {"type":"questions","inbox":{"questions":[]}}`+"\n\n: ka\n\n"+
					`data: {"type":"question","question":{"request_id":"q1"}}`+"\n\n"+`data: {"type":"of tomorrow"}`+"\n\n")
			case 2:
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusServiceUnavailable)
			case 3: // silent
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			default:
				w.WriteHeader(http.StatusUnauthorized)
			}
		}, WithReconnect(Reconnect{First: time.Second}))
		var got []string
		began := time.Now()
		for u, err := range server.FollowInbox(t.Context()) {
			switch {
			case err != nil:
				got = append(got, err.Error())
			case u.Event != nil:
				got = append(got, u.Event.Type)
			default:
				got = append(got, fmt.Sprint(u.Err.(*CloseError).Code, u.Retry >= 500*time.Millisecond))
			}
		}
		want := []string{"questions", "question", "of tomorrow", "1006 true", "4503 true", "1006 true", "refused with status 401: Unauthorized"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if took := time.Since(began); took < 7*time.Second+listSilence || took > 12*time.Second+listSilence {
			t.Errorf("got an end after %s, want the pause that the server asked for and that of a silent server", took)
		}
	})
}

func TestListOfASlowCallerIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		taken := make(chan struct{})
		large := strings.Repeat("x", 1<<20)
		server := s.server(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery != "" {
				t.Errorf("got query %q, want none", r.URL.RawQuery)
			}
			for _, text := range []string{"first", large} {
				_, _ = io.WriteString(w, `data: {"type":"`+text+`"}`+"\n\n")
				w.(http.Flusher).Flush()
				<-taken
			}
		})
		var got []string
		for u, err := range server.FollowSessions(t.Context(), 0) {
			if err != nil || u.Event == nil {
				t.Fatalf("got %+v, %v, want the next event on the same connection", u, err)
			}
			got = append(got, u.Event.Type)
			if len(got) == 2 {
				break
			}
			time.Sleep(time.Hour) // a caller that takes its time is not a silent server
			taken <- struct{}{}
		}
		close(taken)
		if got[0] != "first" || got[1] != large {
			t.Errorf("got %d and %d bytes, want both events", len(got[0]), len(got[1]))
		}
	})
}

// A list that was followed for long is followed again after the first delay.
func TestOnlyALongConnectionEndsTheBackoffOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		stays := []time.Duration{0, 0, 8 * time.Second, 0}
		attempt := 0
		server := s.server(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			time.Sleep(stays[attempt])
			attempt++
		}, WithReconnect(Reconnect{First: time.Second, Max: 8 * time.Second}))
		full := []time.Duration{time.Second, 2 * time.Second, time.Second, 2 * time.Second}
		for u := range server.FollowInbox(t.Context()) {
			i := attempt - 1
			if u.Retry > full[i] || u.Retry < full[i]/2 {
				t.Errorf("after connection %d: got a delay of %v, want at most %v and at least half of it", i, u.Retry, full[i])
			}
			if attempt == len(stays) {
				break
			}
		}
	})
}

func TestCallerEndsAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		server := s.server(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery != "limit=5" {
				t.Errorf("got query %q", r.URL.RawQuery)
			}
			_, _ = io.WriteString(w, `data: {"type":"sessions","overview":{"sessions":[]}}`+"\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		for u, err := range server.FollowSessions(t.Context(), 5) {
			if err != nil || u.Event.Type != "sessions" {
				t.Fatalf("got %+v, %v", u, err)
			}
			time.Sleep(time.Hour) // a caller that takes its time is not a silent server
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []error
		for u, err := range server.FollowSessions(ctx, 5) {
			if u.Event != nil {
				cancel()
				continue
			}
			got = append(got, err)
		}
		if len(got) != 1 || !errors.Is(got[0], context.Canceled) {
			t.Errorf("got %v, want the end of the context", got)
		}
		s.setDown(true)
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		got = nil
		for u, err := range server.FollowSessions(ctx, 5) {
			if u.Err != nil {
				time.AfterFunc(u.Retry/2, cancel)
			}
			got = append(got, err)
		}
		if len(got) != 2 || got[0] != nil || !errors.Is(got[1], context.Canceled) {
			t.Errorf("before another attempt: got %v, want the end of the context", got)
		}
	})
}

func TestEventThatIsNotJSONEndsAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		server := s.server(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data: {\n\n") })
		var got []error
		for _, err := range server.FollowInbox(t.Context()) {
			got = append(got, err)
		}
		if why, ok := errors.AsType[*CloseError](errors.Join(got...)); len(got) != 1 || !ok || why.Code != codeProtocol {
			t.Errorf("got %v, want one broken event", got)
		}
	})
}
