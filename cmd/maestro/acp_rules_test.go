//go:build unix

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/acp"
)

// An acpFault is something that a proxy in front of the server does wrong.
type acpFault struct {
	upgrade func(r *http.Request)
	server  func(text string) string // changes what the server sends; an empty text is not sent
	client  func(text string) string
	id      string // of each connection
	end     int    // close code
}

func sub(old, new string) func(string) string {
	find := regexp.MustCompile(old)
	return func(text string) string { return find.ReplaceAllString(text, new) }
}

func without(part string) func(string) string {
	return func(text string) string {
		if strings.Contains(text, part) {
			return ""
		}
		return text
	}
}

// acpProxy returns the address of a proxy with a fault in front of a server.
func acpProxy(t *testing.T, r *running, fault acpFault) string {
	to, err := url.Parse(r.ready.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	plain := &httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) { pr.SetURL(to) }}
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/acp" {
			plain.ServeHTTP(w, q)
			return
		}
		if "http://"+q.Host == server.URL {
			q.Host = to.Host
		}
		if fault.upgrade != nil {
			fault.upgrade(q)
		}
		header := http.Header{"Authorization": q.Header["Authorization"], "Origin": q.Header["Origin"]}
		up, resp, err := websocket.Dial(q.Context(), r.ready.BaseURL+"/acp?"+q.URL.RawQuery, &websocket.DialOptions{HTTPHeader: header, Host: q.Host})
		if err != nil {
			if resp != nil {
				w.WriteHeader(resp.StatusCode)
			}
			return
		}
		defer func() { _ = up.CloseNow() }()
		id := resp.Header.Get("Acp-Connection-Id")
		if fault.id != "" {
			id = fault.id
		}
		w.Header().Set("Acp-Connection-Id", id)
		down, err := websocket.Accept(w, q, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer func() { _ = down.CloseNow() }()
		ended := make(chan struct{})
		go func() { // ends with down
			defer close(ended)
			pumpACP(q.Context(), up, down, fault.client)
		}()
		if code := pumpACP(q.Context(), down, up, fault.server); code > 0 {
			if fault.end != 0 {
				code = websocket.StatusCode(fault.end)
			}
			_ = down.Close(code, "") // the client may have gone
		}
		_ = down.CloseNow()
		<-ended
	}))
	t.Cleanup(server.Close)
	return "ws" + server.URL[len("http"):]
}

// pumpACP passes on frames until one side ends. It returns the code of the close.
func pumpACP(ctx context.Context, to, from *websocket.Conn, change func(string) string) websocket.StatusCode {
	from.SetReadLimit(-1)
	for {
		kind, text, err := from.Read(ctx)
		if err != nil {
			return websocket.CloseStatus(err)
		}
		if change != nil {
			text = []byte(change(string(text)))
		}
		if len(text) > 0 {
			_ = to.Write(ctx, kind, text) // the read tells why it ended
		}
	}
}

func judgeACP(t *testing.T, r *running, target, token, run string, patience time.Duration) []conformance.Result {
	report, err := acp.Suite().Run(t.Context(), conformance.Config{
		Target: target, Token: token, Filter: regexp.MustCompile(run), Patience: patience, Timeout: time.Minute, Parallel: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report.Results
}

func TestOwnServerPassesTheACPRules(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "conformance", "--state-dir", t.TempDir())
	token, work := readToken(t, r), quoted(t, r.cmd.Dir)
	broken := map[string]acpFault{
		"upgrade/credential":   {upgrade: func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+token) }},
		"upgrade/host":         {upgrade: func(q *http.Request) { q.Host = r.ready.BaseURL[len("http://"):] }},
		"upgrade/origin":       {upgrade: func(q *http.Request) { q.Header.Del("Origin") }},
		"upgrade/id":           {id: "same"},
		"initialize/first":     {server: sub(`"protocolVersion":1`, `"protocolVersion":2`)},
		"session/new":          {server: sub(`"inControl":true`, `"inControl":false`)},
		"session/directory":    {client: sub(`"/no/such/directory"`, work)},
		"prompt/answer":        {server: sub(`"end_turn"`, `"refusal"`)},
		"prompt/cursor":        {server: sub(`"cursor":[0-9]+`, `"cursor":1`)},
		"permission/selected":  {client: sub(`"optionId":"allow"`, `"optionId":"reject"`)},
		"permission/withdrawn": {server: without("cancel_request")},
		"cancel/run":           {server: sub(`"cancelled"`, `"end_turn"`)},
		"viewer/refused":       {upgrade: func(q *http.Request) { q.URL.RawQuery = strings.ReplaceAll(q.URL.RawQuery, "&role=viewer", "") }},
		"beside/prompt":        {server: without("user_message_chunk")},
		"beside/control":       {server: sub(`"inControl":false`, `"inControl":true`)},
		"line/hostile":         {server: sub(`-32601`, `-32603`)},
		"line/frames":          {end: 1000},
	}
	sound := acpProxy(t, r, acpFault{})
	for _, res := range judgeACP(t, r, sound, token, "", patience) {
		if res.Outcome != conformance.Passed {
			t.Errorf("%s: got %s %s %+v, want a pass", res.Name, res.Outcome, res.Reason, res.Failure)
		}
		if _, ok := broken[res.Name]; !ok {
			t.Errorf("%s: got no fault that breaks it", res.Name)
		}
	}
	for name, fault := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, res := range judgeACP(t, r, acpProxy(t, r, fault), token, "^"+name+"$", 2*time.Second) {
				if res.Failure == nil || res.Failure.Rule != res.Rules[0] {
					t.Errorf("got %s %s %+v, want a failure of %v", res.Outcome, res.Reason, res.Failure, res.Rules)
				}
			}
		})
	}
}
