package double_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/conformance/double"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is one server and what a check asks of it. What goes wrong in a check
// is kept, because a check of a defect is to go wrong.
type site struct {
	ctx      context.Context
	base     string
	patience time.Duration // until what does not come is given up
	wrongs   []string
}

// open starts a server with a defect, or with none. Leases last as long as
// those who wait for their end can. What a server without defects owes is waited
// for as long as on a busy machine it may take.
func open(t *testing.T, d double.Defect, ttl time.Duration) *site {
	t.Helper()
	server := httptest.NewServer(double.New(double.Options{Defect: d, Heartbeat: 100 * time.Millisecond, LeaseTTL: ttl}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	patience := 15 * time.Second
	if d != "" {
		patience = 2 * time.Second
	}
	return &site{ctx: ctx, base: server.URL + "/api/headless/", patience: patience}
}

// want notes that something is not as it should be.
func (s *site) want(ok bool, format string, args ...any) {
	if !ok {
		s.wrongs = append(s.wrongs, fmt.Sprintf(format, args...))
	}
}

// An answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (a answer) text(key string) string {
	s, _ := a.body[key].(string)
	return s
}

func (a answer) at(keys ...string) any {
	var v any = a.body
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

// call makes a request; headers are name and value in turn.
func (s *site) call(method, path, body string, headers ...string) answer {
	req, err := http.NewRequestWithContext(s.ctx, method, s.base+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.want(false, "%s %s: %v", method, path, err)
		return answer{}
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	text, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(text, &a.body) != nil {
		s.want(false, "%s %s: %s (%v)", method, path, text, err)
	}
	return a
}

func (s *site) post(path, body string, headers ...string) answer {
	return s.call("POST", path, body, headers...)
}

const (
	asConnection = "x-maestro-headless-connection-id"
	asSubscriber = "x-maestro-headless-subscriber-id"
)

// start makes a session with a controller.
func (s *site) start() (path, conn string) {
	a := s.post("connections", `{"protocolVersion":"2026-04-02","clientInfo":{"name":"a"}}`)
	s.want(a.status == 200, "connections: got %d %v", a.status, a.body)
	return "sessions/" + a.text("session_id") + "/", a.text("connection_id")
}

func (s *site) prompt(path, conn, text string, headers ...string) answer {
	return s.post(path+"messages", `{"type":"prompt","content":`+strconv.Quote(text)+`}`, append(headers, asConnection, conn)...)
}

// An event is one event of a stream, or a comment.
type event struct {
	id, kind, message, comment string
	cursor                     float64
	body                       map[string]any
}

// A stream is an open event stream.
type stream struct {
	s     *site
	lines *bufio.Scanner
	stop  context.CancelFunc
	resp  *http.Response
}

func (s *site) stream(path, query string, headers ...string) *stream {
	ctx, stop := context.WithCancel(s.ctx)
	req, err := http.NewRequestWithContext(ctx, "GET", s.base+path+"events"+query, nil)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		panic(err)
	}
	s.want(resp.StatusCode == 200 && resp.Header.Get("Content-Type") == "text/event-stream", "events: got %d", resp.StatusCode)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return &stream{s, lines, stop, resp}
}

func (t *stream) close() {
	t.stop()
	_ = t.resp.Body.Close()
}

// next reads one event; false is the end of the stream.
func (t *stream) next() (e event, ok bool) {
	for t.lines.Scan() {
		name, value, _ := strings.Cut(t.lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "retry":
			t.lines.Scan()
		case "data":
			_ = json.Unmarshal([]byte(value), &e.body)
			a := answer{body: e.body}
			e.kind = a.text("type")
			e.message, _ = a.at("message", "type").(string)
			e.cursor, _ = a.at("cursor").(float64)
			if c, ok := a.at("snapshot", "cursor").(float64); ok {
				e.cursor = c
			}
		case "":
			if value != "" {
				e.comment = value
				t.lines.Scan()
			}
			return e, true
		}
	}
	return e, false
}

// find reads on to an event.
func (t *stream) find(what string, f func(event) bool) (event, bool) {
	for range 200 {
		e, ok := t.next()
		if !ok || f(e) {
			t.s.want(ok, "got the end of the stream, want %s", what)
			return e, ok
		}
	}
	t.s.want(false, "got 200 events, none of them %s", what)
	return event{}, false
}

// status reads on to a status, and returns what came before it.
func (t *stream) status(text string) (before []event) {
	t.find("status "+text, func(e event) bool {
		before = append(before, e)
		return e.message == "status" && answer{body: e.body}.at("message", "message") == text
	})
	return before
}

// checks are what each defect breaks.
var checks = map[double.Defect]func(*site){
	double.BareEventIDs: func(s *site) {
		path, _ := s.start()
		state := s.call("GET", path+"state", "")
		t := s.stream(path, "")
		defer t.close()
		e, _ := t.next()
		want := fmt.Sprintf("%s.%v", state.header.Get("X-Maestro-Headless-Epoch"), e.cursor)
		s.want(e.id == want, "got id %q, want %q", e.id, want)
	},
	double.ReplaysOneTooMany: func(s *site) {
		path, conn := s.start()
		at := s.prompt(path, conn, "one").at("cursor")
		s.prompt(path, conn, "two")
		t := s.stream(path, fmt.Sprintf("?cursor=%v", at))
		defer t.close()
		last := at.(float64)
		for _, e := range t.status("Prompt: two") {
			s.want(e.cursor > last, "got cursor %v after %v", e.cursor, last)
			last = e.cursor
		}
	},
	double.LosesBetween: func(s *site) {
		path, conn := s.start()
		t := s.stream(path, "?cursor=0")
		defer t.close()
		t.find("its own announcement", func(e event) bool { return e.message == "connection_info" })
		s.prompt(path, conn, "between")
		s.prompt(path, conn, "fence")
		done := time.AfterFunc(s.patience, t.stop)
		defer done.Stop()
		t.status("Prompt: between")
	},
	double.IgnoresLastEventID: func(s *site) {
		path, conn := s.start()
		s.prompt(path, conn, "one")
		state := s.call("GET", path, "")
		s.want(state.status == 404, "trailing slash: got %d", state.status)
		state = s.call("GET", strings.TrimSuffix(path, "/"), "")
		id := fmt.Sprintf("%s.%v", state.header.Get("X-Maestro-Headless-Epoch"), state.at("cursor"))
		s.prompt(path, conn, "two")
		t := s.stream(path, "?cursor=0", "Last-Event-ID", id)
		defer t.close()
		for _, e := range t.status("Prompt: two") {
			s.want(e.cursor > state.at("cursor").(float64), "got %v, want only what is after %v", e, id)
		}
	},
	double.BeginsWithReplay: func(s *site) {
		path, _ := s.start()
		t := s.stream(path, "")
		defer t.close()
		e, _ := t.next()
		s.want(e.kind == "snapshot", "got %v, want a snapshot", e)
	},
	double.HeartbeatsWithID: func(s *site) {
		path, _ := s.start()
		t := s.stream(path, "")
		defer t.close()
		e, _ := t.find("a heartbeat", func(e event) bool { return e.kind == "heartbeat" })
		s.want(e.id == "", "got id %q of a heartbeat, want none", e.id)
	},
	double.NeverBeats: func(s *site) {
		path, _ := s.start()
		t := s.stream(path, "?optOutNotifications=heartbeat")
		defer t.close()
		done := time.AfterFunc(s.patience, t.stop)
		defer done.Stop()
		t.find("a comment", func(e event) bool {
			s.want(e.kind != "heartbeat", "got a heartbeat, want comments")
			return e.comment == "ka"
		})
	},
	double.StreamsShare: func(s *site) {
		path, conn := s.start()
		sub := s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`).text("subscription_id")
		first, second := s.stream(path, "?subscriptionId="+sub), s.stream(path, "?subscriptionId="+sub)
		defer first.close()
		defer second.close()
		done := time.AfterFunc(s.patience, first.stop)
		defer done.Stop()
		ended := true
		for {
			if _, ok := first.next(); !ok {
				ended = s.ctx.Err() == nil && done.Stop()
				break
			}
		}
		s.want(ended, "got a first stream that goes on, want it ended")
	},
	double.IgnoresQueryOptOuts: func(s *site) {
		path, conn := s.start()
		t := s.stream(path, "?optOutNotifications=status")
		defer t.close()
		s.prompt(path, conn, "quiet")
		t.find("the end of the response", func(e event) bool {
			s.want(e.message != "status", "got a status in spite of the opt-out")
			return e.message == "response_end"
		})
	},
	double.NoEpochHeader: func(s *site) {
		path, _ := s.start()
		a := s.call("GET", path+"state", "")
		s.want(a.header.Get("X-Maestro-Headless-Epoch") != "", "got no epoch")
	},
	double.ImplicitDrives: func(s *site) {
		path, conn := s.start()
		s.post(path+"disconnect", `{"connectionId":"`+conn+`"}`)
		t := s.stream(path, "")
		defer t.close()
		a := s.post(path+"subscribe", `{"role":"controller"}`)
		s.want(a.status == 200, "got %d, want the lease to be free", a.status)
	},
	double.RefusedStays: func(s *site) {
		path, conn := s.start()
		s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`)
		a := s.post(path+"subscribe", `{"role":"controller"}`)
		s.want(a.status == 409, "got %d, want 409", a.status)
		n := s.call("GET", path+"state", "").at("state", "connection_count")
		s.want(n == 1.0, "got %v connections, want 1", n)
	},
	double.WrongLeaseCode: func(s *site) {
		path, conn := s.start()
		s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`)
		b := s.post(path+"subscribe", `{"takeControl":true}`)
		s.want(b.status == 200 && b.at("controller_lease_granted") == true, "take-over: got %d %v", b.status, b.body)
		a := s.prompt(path, conn, "late")
		s.want(a.status == 409 && a.text("code") == "controller_lease_held" &&
			a.text("error") == "Controller lease is currently held by another connection", "got %d %v", a.status, a.body)
	},
	double.DeafToHeartbeats: func(s *site) {
		path, conn := s.start()
		first := s.post(path+"heartbeat", `{"connectionId":"`+conn+`"}`).text("lease_expires_at")
		var second answer
		for range 500 { // the wire has milliseconds
			if second = s.post(path+"heartbeat", `{"connectionId":"`+conn+`"}`); second.text("lease_expires_at") > first {
				break
			}
		}
		s.want(second.text("lease_expires_at") > first, "got %v after %v, want later", second.body, first)
		s.want(len(second.body) == 5, "got %v, want five keys", second.body)
	},
	double.NeverExpires: func(s *site) {
		path, _ := s.start()
		t := s.stream(path, "")
		defer t.close()
		done := time.AfterFunc(s.patience, t.stop)
		defer done.Stop()
		t.find("a snapshot without the holder", func(e event) bool {
			_, there := answer{body: e.body}.at("snapshot", "state", "controller_connection_id").(string)
			return e.kind == "snapshot" && !there
		})
	},
	double.KeepsLease: func(s *site) {
		path, conn := s.start()
		s.post(path+"disconnect", `{"connectionId":"`+conn+`"}`)
		a := s.post(path+"subscribe", `{}`)
		s.want(a.status == 200, "got %d %v, want the lease", a.status, a.body)
	},
	double.TalkativeDisconnect: func(s *site) {
		path, conn := s.start()
		one := s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`).text("subscription_id")
		two := s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`).text("subscription_id")
		for _, subs := range [][]string{{one, two}, {}} {
			a := s.post(path+"disconnect", ``, asConnection, conn)
			got, _ := json.Marshal(a.body)
			want, _ := json.Marshal(map[string]any{"success": true, "connection_id": conn,
				"controller_connection_id": nil, "disconnected_subscription_ids": subs})
			s.want(bytes.Equal(got, want), "got %s, want %s", got, want)
		}
	},
	double.MintsConnections: func(s *site) {
		path, _ := s.start()
		a := s.post(path+"subscribe", `{"connectionId":"mine","takeControl":true}`)
		s.want(a.status == 404 && a.text("code") == "stale_connection", "got %d %v", a.status, a.body)
	},
	double.ChangesRoles: func(s *site) {
		path, conn := s.start()
		a := s.post(path+"subscribe", `{"connectionId":"`+conn+`","role":"viewer"}`)
		s.want(a.status == 409 && a.text("code") == "role_conflict", "got %d %v", a.status, a.body)
	},
	double.RoleByHeader: func(s *site) {
		path, _ := s.start()
		viewer := s.post(path+"subscribe", `{"role":"viewer"}`)
		s.want(viewer.at("controller_lease_granted") == false, "got %v", viewer.body)
		a := s.prompt(path, viewer.text("connection_id"), "no", "x-maestro-headless-role", "controller")
		s.want(a.status == 403 && a.text("code") == "access_denied", "got %d %v", a.status, a.body)
	},
	double.AnonymousMayPost: func(s *site) {
		path, _ := s.start()
		a := s.post(path+"messages", `{"type":"prompt","content":"who"}`)
		s.want(a.status == 404, "got %d, want 404", a.status)
	},
	double.ForgetsKeys: func(s *site) {
		path, conn := s.start()
		a := s.prompt(path, conn, "once", "Idempotency-Key", "k")
		b := s.prompt(path, conn, "once", "Idempotency-Key", "k")
		s.want(a.at("cursor") == b.at("cursor"), "got cursors %v and %v, want one execution", a.at("cursor"), b.at("cursor"))
	},
	double.StaleAnswers: func(s *site) {
		path, conn := s.start()
		a := s.prompt(path, conn, "now")
		s.want(a.at("snapshot", "cursor") == a.at("cursor") && a.at("snapshot", "state", "last_status") == "Prompt: now", "got %v", a.body)
	},
	double.CodeIsStatusName: func(s *site) {
		a := s.call("GET", "sessions/none/state", "")
		s.want(a.status == 404 && a.text("code") == a.text("error_type"), "got %v", a.body)
	},
	double.NoRetryAfter: func(s *site) {
		path, conn := s.start()
		var a answer
		for range 9 {
			a = s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`)
		}
		s.want(a.status == 429 && a.header.Get("Retry-After") != "", "got %d %v", a.status, a.header)
	},
	double.HangsUpOnLarge: func(s *site) {
		path, conn := s.start()
		a := s.prompt(path, conn, strings.Repeat("x", 3<<20))
		s.want(a.status == 413 && a.text("code") == "payload_too_large", "got %d", a.status)
	},
	double.WrongMethodNotFound: func(s *site) {
		path, _ := s.start()
		a := s.call("DELETE", path+"state", "")
		s.want(a.status == 405 && a.header.Get("Allow") == "GET", "got %d, Allow %q", a.status, a.header.Get("Allow"))
	},
	double.TrustsPages: func(s *site) {
		path, conn := s.start()
		a := s.prompt(path, conn, "from a page", "Origin", "https://elsewhere.example")
		s.want(a.status == 403 && a.text("code") == "access_denied", "got %d %v", a.status, a.body)
	},
	double.SilentFutureCursor: func(s *site) {
		path, _ := s.start()
		t := s.stream(path, "?cursor=99999")
		defer t.close()
		e, _ := t.next()
		s.want(e.kind == "reset" && e.body["reason"] == "replay_gap", "got %v", e)
	},
	double.IgnoresEpoch: func(s *site) {
		path, _ := s.start()
		t := s.stream(path, "", "Last-Event-ID", "elsewhere.1")
		defer t.close()
		e, _ := t.next()
		s.want(e.kind == "reset", "got %v", e)
	},
	double.HelloOKToAll: func(s *site) {
		path, conn := s.start()
		sub := s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`).text("subscription_id")
		other := s.post(path+"subscribe", `{"role":"viewer"}`).text("subscription_id")
		own, t := s.stream(path, "?subscriptionId="+sub), s.stream(path, "?subscriptionId="+other)
		defer own.close()
		defer t.close()
		s.post(path+"messages", `{"type":"hello"}`, asConnection, conn, asSubscriber, sub)
		s.prompt(path, conn, "fence")
		own.find("hello_ok", func(e event) bool { return e.message == "hello_ok" })
		for _, e := range t.status("Prompt: fence") {
			s.want(e.message != "hello_ok", "got hello_ok for another's hello")
		}
	},
	double.IgnoresOptOuts: func(s *site) {
		path, conn := s.start()
		sub := s.post(path+"subscribe", `{"connectionId":"`+conn+`","optOutNotifications":["status"]}`).text("subscription_id")
		t := s.stream(path, "?subscriptionId="+sub)
		defer t.close()
		s.prompt(path, conn, "quiet")
		t.find("the end of the response", func(e event) bool {
			s.want(e.message != "status", "got a status in spite of the opt-out")
			return e.message == "response_end"
		})
	},
	double.ViewerMayPrompt: func(s *site) {
		path, _ := s.start()
		viewer := s.post(path+"subscribe", `{"role":"viewer"}`)
		a := s.prompt(path, viewer.text("connection_id"), "no")
		s.want(a.status == 403 && a.text("error") == "Viewer headless connections cannot send messages", "got %d %v", a.status, a.body)
	},
	double.GrantsLeaseTwice: func(s *site) {
		path, conn := s.start()
		s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`)
		a := s.post(path+"subscribe", `{}`)
		s.want(a.status == 409, "got %d, want 409", a.status)
	},
	double.LoserKeepsDriving: func(s *site) {
		path, conn := s.start()
		s.post("connections", `{"sessionId":"`+strings.Split(path, "/")[1]+`","takeControl":true}`)
		a := s.prompt(path, conn, "still me")
		s.want(a.status == 409, "got %d, want 409", a.status)
	},
	double.TokenNotChecked: func(s *site) {
		path, conn := s.start()
		a := s.prompt(path, conn, "mine", "X-Maestro-Headless-Connection-Token", "wrong")
		s.want(a.status == 403, "got %d, want 403", a.status)
	},
	double.ExtraKey: func(s *site) {
		path, _ := s.start()
		t := s.stream(path, "?cursor=0")
		defer t.close()
		e, _ := t.find("a message", func(e event) bool { return e.kind == "message" })
		s.want(len(e.body) == 3, "got %v, want three keys", e.body)
	},
	double.NullOptional: func(s *site) {
		path, _ := s.start()
		a := s.call("GET", path+"state", "")
		state, _ := a.at("state").(map[string]any)
		_, there := state["last_error"]
		s.want(!there, "got %v, want no last_error", state["last_error"])
	},
	double.NoTypeCheck: func(s *site) {
		path, conn := s.start()
		s.prompt(path, conn, `__maestro_conformance_approval__:{"request_id":"q","tool":"t","args":{}}`)
		a := s.post(path+"messages", `{"type":"server_request_response","request_id":"q","request_type":"tool_retry"}`, asConnection, conn)
		s.want(a.status == 409 && a.text("code") == "request_type_mismatch", "got %d %v", a.status, a.body)
	},
	double.TwoRuns: func(s *site) {
		path, conn := s.start()
		s.prompt(path, conn, "__maestro_conformance_hang__:{}")
		a := s.prompt(path, conn, "too")
		s.want(a.status == 409 && a.text("code") == "runtime_busy", "got %d %v", a.status, a.body)
	},
	double.KeepsRequests: func(s *site) {
		path, conn := s.start()
		s.prompt(path, conn, `__maestro_conformance_approval__:{"request_id":"q","tool":"t","args":{}}`)
		s.post(path+"messages", `{"type":"interrupt"}`, asConnection, conn)
		t := s.stream(path, "?cursor=0")
		defer t.close()
		e, _ := t.find("the resolution or the snapshot", func(e event) bool {
			return e.message == "server_request_resolved" || e.kind == "snapshot"
		})
		s.want(e.kind == "message", "got %v before any resolution", e)
	},
}

func TestEveryHTTPDefectBreaksItsPromiseAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	for _, d := range double.HTTPDefects() {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			check := checks[d]
			if check == nil {
				t.Fatal("got no check for the defect, want one")
			}
			ttl := time.Minute
			if d == double.NeverExpires {
				ttl = 200 * time.Millisecond
			}
			sound := open(t, "", ttl)
			check(sound)
			for _, wrong := range sound.wrongs {
				t.Errorf("without the defect: %s", wrong)
			}
			broken := open(t, d, ttl)
			check(broken)
			if len(broken.wrongs) == 0 {
				t.Error("got nothing wrong with the defect, want the check to see it")
			}
		})
	}
}

func TestWhatCannotBeUnderstoodIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, "", time.Minute)
	path, conn := s.start()
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", path + "events?optOutNotifications=nonsense", "", 400, "bad_request"},
		{"GET", path + "events?cursor=1.5", "", 400, "bad_request"},
		{"GET", path + "events?subscriptionId=sub_none", "", 404, "stale_subscription"},
		{"GET", "sessions/a%2Fb/state", "", 400, "bad_request"},
		{"GET", "sessions/" + strings.Repeat("x", 129) + "/state", "", 400, "bad_request"},
		{"GET", "nothing", "", 404, "not_found"},
		{"POST", "connections", "", 400, "bad_request"},
		{"POST", "connections", "[]", 400, "bad_request"},
		{"POST", "connections", `{"sessionId":"none"}`, 404, "stale_session"},
		{"POST", "connections", `{"role":"owner"}`, 400, "bad_request"},
		{"POST", "connections", `{"takeControl":"yes"}`, 400, "bad_request"},
		{"POST", "connections", `{"approvalMode":"never"}`, 400, "bad_request"},
		{"POST", "connections", `{"optOutNotifications":["status","status"]}`, 400, "bad_request"},
		{"POST", "connections", `{"enableClientTools":true}`, 400, "bad_request"},
		{"POST", "connections", `{"role":"viewer","capabilities":{"serverRequests":["user_input"]}}`, 400, "bad_request"},
		{"POST", path + "unsubscribe", "{}", 400, "bad_request"},
		{"POST", path + "unsubscribe", `{"subscriptionId":"sub_none"}`, 404, "stale_subscription"},
		{"POST", path + "heartbeat", "{}", 404, "stale_connection"},
		{"POST", path + "disconnect", `{"connectionId":"conn_none"}`, 404, "stale_connection"},
	} {
		a := s.call(c.method, c.path, c.body)
		if a.status != c.status || a.text("code") != c.code {
			t.Errorf("%s %s %s: got %d %v, want %d %s", c.method, c.path, c.body, a.status, a.body, c.status, c.code)
		}
	}
	for body, want := range map[string]int{`{"type":"prompt"}`: 400, `{"type":"nonsense"}`: 400, `{"type":"prompt","content":"x","extra":null}`: 200,
		`{"type":"utility_file_read","read_id":"r","path":"x"}`: 501, `{"type":"server_request_response","request_id":"no","request_type":"approval"}`: 404} {
		if a := s.post(path+"message", body, asConnection, conn); a.status != want {
			t.Errorf("message %s: got %d %v, want %d", body, a.status, a.body, want)
		}
	}
	if a := s.prompt(path, conn, "x", "x-composer-headless-connection-id", "other"); a.status != 400 {
		t.Errorf("headers that disagree: got %d, want 400", a.status)
	}
	if a := s.prompt(path, conn, "x", "Idempotency-Key", strings.Repeat("k", 129)); a.status != 400 {
		t.Errorf("long key: got %d, want 400", a.status)
	}
	for _, wrong := range s.wrongs {
		t.Error(wrong)
	}
}

// TestSubscriptionsAreMailboxes follows one subscription through two streams.
func TestSubscriptionsAreMailboxes(t *testing.T) {
	t.Parallel()
	s := open(t, "", time.Minute)
	path, conn := s.start()
	a := s.post(path+"subscribe", `{"connectionId":"`+conn+`"}`)
	sub := a.text("subscription_id")
	first := s.stream(path, "?subscriptionId="+sub)
	s.prompt(path, conn, "one")
	first.status("Prompt: one")
	first.close()
	s.detached(path)
	s.prompt(path, conn, "two")
	second := s.stream(path, "?subscriptionId="+sub)
	defer second.close()
	for _, e := range second.status("Prompt: two") {
		if e.kind == "snapshot" || textOf(e) == "Prompt: one" {
			t.Errorf("got %v again, want only what was missed", e)
		}
	}
	again := s.post(path+"unsubscribe", `{"subscriptionId":"`+sub+`"}`)
	n := s.call("GET", path+"state", "").at("state", "connection_count")
	if again.at("success") != true || n != 0.0 {
		t.Errorf("got %v and %v connections after the last subscription, want none", again.body, n)
	}
	if _, more := second.find("the end", func(event) bool { return false }); more {
		t.Error("got a stream that goes on without its subscription")
	}
	s.wrongs = s.wrongs[:len(s.wrongs)-1] // find was to find nothing
	for _, wrong := range s.wrongs {
		t.Error(wrong)
	}
}

func TestDefectsAreNamedOnce(t *testing.T) {
	all := slices.Concat(double.Defects(), double.HTTPDefects())
	for _, d := range double.HTTPDefects() {
		if i := slices.Index(all, d); i < len(double.Defects()) {
			all = slices.Delete(all, i, i+1) // sockets have it too
		}
	}
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("got %v, want no name twice", all)
	}
}

// detached waits until the server has seen that the streams are gone.
func (s *site) detached(path string) {
	for s.ctx.Err() == nil {
		list, _ := s.call("GET", path+"state", "").at("state", "connections").([]any)
		if !slices.ContainsFunc(list, func(c any) bool { return answer{body: c.(map[string]any)}.at("attached_subscription_count") != 0.0 }) {
			return
		}
	}
}

// textOf is the text of a status.
func textOf(e event) string {
	text, _ := answer{body: e.body}.at("message", "message").(string)
	return text
}
