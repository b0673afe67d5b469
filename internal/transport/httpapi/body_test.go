package httpapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// bodies are the routes that read one into an object.
func bodies() (with []route) {
	for _, r := range routes {
		if r.method == "POST" && r.reaches != "Post" {
			with = append(with, r)
		}
	}
	return with
}

func TestBodiesAreReadWithCare(t *testing.T) {
	deep := `{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,"subscriptionId":"s"}`
	for _, r := range bodies() {
		mayBeEmpty := r.reaches == "Heartbeat" || r.reaches == "Disconnect"
		for _, tt := range []struct {
			name, body string
			ok         bool
		}{
			{"empty", "", mayBeEmpty},
			{"blank", " \r\n\t", mayBeEmpty},
			{"object", `{"subscriptionId":"s"}`, true},
			{"unknown key", `{"subscriptionId":"s","unknown":[1,{"a":null}]}`, true},
			{"null", `{"subscriptionId":"s","connectionId":null,"role":null}`, true},
			{"key of another case", `{"subscriptionId":"s","CONNECTIONID":7}`, true},
			{"around it", "\n {\"subscriptionId\" : \"s\"} \n", true},
			{"text", `"subscriptionId"`, false},
			{"array", `[{"subscriptionId":"s"}]`, false},
			{"number", `7`, false},
			{"literal", `null`, false},
			{"half", `{"subscriptionId":`, false},
			{"more behind", `{"subscriptionId":"s"}{}`, false},
			{"duplicate", `{"subscriptionId":"s","subscriptionId":"s"}`, false},
			{"duplicate in disguise", `{"subscriptionId":"s","\u0073ubscriptionId":"t"}`, false},
			{"unknown duplicate", `{"subscriptionId":"s","x":1,"x":2}`, false},
			{"not UTF-8", "{\"subscriptionId\":\"\xff\"}", false},
			{"mark", "\ufeff{\"subscriptionId\":\"s\"}", false},
			{"NUL", "{\"subscriptionId\":\"s\"}\x00", false},
			{"deep", deep, false},
			{"wrong type", `{"subscriptionId":7,"connectionId":7}`, false},
			{"comment", `{/**/"subscriptionId":"s"}`, false},
			{"single quotes", `{'subscriptionId':'s'}`, false},
			{"form", `subscriptionId=s`, false},
		} {
			t.Run(r.path+" "+tt.name, func(t *testing.T) {
				h := newHouse(t, nil)
				e := h.ask(r.method, r.path, tt.body)
				if tt.ok {
					e.ok()
					h.session.last(t)
					return
				}
				has(t, e.refused(contracts.CodeBadRequest), "Invalid request body")
				h.session.untouched(t)
				if len(h.wanted) > 0 {
					t.Errorf("got %+v looked for, want nothing", h.wanted)
				}
			})
		}
	}
}

func TestStrictBodiesAreClosed(t *testing.T) {
	for _, r := range bodies() {
		h := newHouse(t, func(o *Options) { o.Strict = true })
		h.ask(r.method, r.path, `{"subscriptionId":"s","unknown":1}`).refused(contracts.CodeBadRequest)
		h.ask(r.method, r.path, `{"connectionId":null}`).refused(contracts.CodeBadRequest)
		h.session.untouched(t)
		body := `{"connectionId":"c"}`
		if r.reaches == "Unsubscribe" {
			body = r.body
		}
		h.ask(r.method, r.path, body).ok()
	}
}

func TestUnsubscribeNamesTheSubscription(t *testing.T) {
	h := newHouse(t, nil)
	for _, body := range []string{`{}`, `{"subscriptionId":""}`, `{"subscriptionId":null}`, `{"connectionId":"c"}`} {
		has(t, h.ask("POST", sessionPath+"/unsubscribe", body, "x-maestro-headless-subscriber-id: s").refused(contracts.CodeBadRequest), "/subscriptionId")
	}
	h.session.untouched(t)
	h.ask("POST", sessionPath+"/unsubscribe", `{"subscriptionId":"sub_9"}`, "x-maestro-headless-connection-token: t").ok()
	if got := h.session.last(t); got.sub != "sub_9" || got.by.Token != "t" {
		t.Errorf("got %+v, want sub_9 and the secret", got)
	}
}

func TestBodyNamesTheConnectionElseTheHeaders(t *testing.T) {
	headers := []string{"x-maestro-headless-connection-id: conn_h", "x-maestro-headless-subscriber-id: sub_h"}
	for _, path := range []string{"/heartbeat", "/disconnect"} {
		for body, want := range map[string]contracts.Caller{
			"":                           {ConnectionID: "conn_h", SubscriptionID: "sub_h"},
			"{}":                         {ConnectionID: "conn_h", SubscriptionID: "sub_h"},
			`{"connectionId":"conn_b"}`:  {ConnectionID: "conn_b"},
			`{"subscriptionId":"sub_b"}`: {SubscriptionID: "sub_b"},
			`{"connectionId":"conn_b","subscriptionId":"sub_b"}`: {ConnectionID: "conn_b", SubscriptionID: "sub_b"},
		} {
			h := newHouse(t, nil)
			h.ask("POST", sessionPath+path, body, headers...).ok()
			want.Principal = h.principal
			if got := h.session.last(t).by; got != want {
				t.Errorf("%s %s: got %+v, want %+v", path, body, got, want)
			}
		}
	}
}

func TestMessagesArriveAsTheyAre(t *testing.T) {
	h := newHouse(t, nil)
	for _, text := range []string{`{"type":"prompt","content":"hi"}`, "not JSON at all \xff", "\n{}\n"} {
		h.ask("POST", sessionPath+"/messages", text).ok()
		if got := h.session.last(t).text; got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	h.ask("POST", sessionPath+"/messages", "").ok() // what it means is for the session to say
	if got := h.session.last(t).text; got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	const most = 1000
	for _, r := range routes {
		if r.method != "POST" {
			continue
		}
		h := newHouse(t, func(o *Options) { o.MaxBodyBytes = most })
		full := r.body + strings.Repeat(" ", most-len(r.body))
		h.ask(r.method, r.path, full).ok()
		h.session.last(t)
		h.wanted = nil
		has(t, h.ask(r.method, r.path, full+" ").refused(contracts.CodePayloadTooLarge), "Payload too large")
		unannounced := httptest.NewRequest(r.method, r.path, sequence(full, " "))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, unannounced)
		exchange{w, t, r.path + " without a length"}.refused(contracts.CodePayloadTooLarge)
		h.session.untouched(t)
		if len(h.wanted) > 0 {
			t.Errorf("%s: got %+v looked for, want nothing", r.path, h.wanted)
		}
	}
	h := newHouse(t, nil) // zero is a default
	h.ask("POST", sessionPath+"/messages", strings.Repeat("x", contracts.MaxSocketBytes)).ok()
	h.ask("POST", sessionPath+"/messages", strings.Repeat("x", contracts.MaxSocketBytes+1)).refused(contracts.CodePayloadTooLarge)
}

// What is announced to be too much is refused before any of it has come.
func TestAnnouncedBodyIsNotWaitedFor(t *testing.T) {
	h := newHouse(t, nil)
	r := httptest.NewRequest("POST", sessionPath+"/messages", unread{t})
	r.ContentLength = contracts.MaxSocketBytes + 1
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	exchange{w, t, "announced"}.refused(contracts.CodePayloadTooLarge)
}

// unread is a body that nobody may read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// A client that sends far too much reads why it was refused (A75).
func TestClientThatSendsTooMuchReadsWhy(t *testing.T) {
	h := newHouse(t, nil)
	url := h.serve()
	const size = 16 << 20
	for name, body := range map[string]func() io.Reader{
		"announced":   func() io.Reader { return bytes.NewReader(make([]byte, size)) },
		"unannounced": func() io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, size))) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				res, err := http.Post(url+sessionPath+"/messages", "application/json", body())
				if err != nil {
					t.Fatal(err)
				}
				var got httperr.Body
				err = json.NewDecoder(res.Body).Decode(&got)
				if _ = res.Body.Close(); res.StatusCode != 413 || err != nil || got.Code != contracts.CodePayloadTooLarge {
					t.Errorf("got %d %+v, %v, want 413", res.StatusCode, got, err)
				}
			}
		})
	}
	h.session.untouched(t)
}

// A body is never inflated: a small one could become a large one.
func TestCompressedBodiesStayAsTheyAre(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := fmt.Fprintf(w, `{"subscriptionId":"s","x":"%s"}`, strings.Repeat("x", 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range bodies() {
		h := newHouse(t, nil)
		h.ask(r.method, r.path, packed.String(), "Content-Encoding: gzip").refused(contracts.CodeBadRequest)
		h.session.untouched(t)
	}
	h := newHouse(t, nil)
	h.ask("POST", sessionPath+"/messages", packed.String(), "Content-Encoding: gzip").ok()
	if got := h.session.last(t).text; got != packed.String() {
		t.Errorf("got %d bytes, want the %d that were sent", len(got), packed.Len())
	}
}

func TestBodyThatBreaksOffIsRefused(t *testing.T) {
	for _, r := range bodies() {
		h := newHouse(t, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(r.method, r.path, io.MultiReader(strings.NewReader(r.body), broken{})))
		exchange{w, t, r.path}.refused(contracts.CodeBadRequest)
		h.session.untouched(t)
	}
	h := newHouse(t, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", sessionPath+"/messages", io.MultiReader(strings.NewReader(`{"type":"shutdown"}`), broken{})))
	exchange{w, t, "message"}.refused(contracts.CodeBadRequest)
	h.session.untouched(t)
}

// broken is the body of a client that has gone.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, net.ErrClosed }

// TestAnswerIsOnTheWireBeforePostGoesOn keeps the session from going on until
// the client has the whole answer.
func TestAnswerIsOnTheWireBeforePostGoesOn(t *testing.T) {
	h := newHouse(t, nil)
	taken := make(chan struct{})
	h.session.replied = func() {
		select {
		case <-taken:
		case <-time.After(20 * time.Second):
			t.Error("the client has no answer while the session waits")
		}
	}
	res, err := http.Post(h.serve()+sessionPath+"/messages", "application/json", strings.NewReader(`{"type":"interrupt"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	close(taken)
	if err != nil || string(body) != `{"ok":true}` {
		t.Errorf("got %s, %v, want the answer", body, err)
	}
}
