package httpapi

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

const inboxPath = "/api/headless/inbox"

// A fakeNotifier notes what it is asked last.
type fakeNotifier struct{ did string }

func (f *fakeNotifier) States() *contracts.DeliveryList {
	return &contracts.DeliveryList{Receivers: []contracts.ReceiverState{}}
}

func (f *fakeNotifier) PushKey(p contracts.Principal) (*contracts.PushAnswer, error) {
	f.did = "key for " + p.ID
	return &contracts.PushAnswer{PublicKey: "k"}, nil
}

func (f *fakeNotifier) Subscribe(p contracts.Principal, req *contracts.PushRequest) error {
	f.did = p.ID + " at " + req.Endpoint + " with " + req.Keys.Auth
	return nil
}

func (f *fakeNotifier) Unsubscribe(p contracts.Principal, endpoint string) error {
	f.did = p.ID + " not at " + endpoint
	return nil
}

func (f *fakeNotifier) TestPush(p contracts.Principal, endpoint string) error {
	f.did = p.ID + " tests " + endpoint
	return nil
}

func TestNotificationRoutes(t *testing.T) {
	f, n := new(fakeOverview), new(fakeNotifier)
	h := newHouse(t, func(o *Options) { o.Overview, o.Notifier = f, n })
	deliveries, push := inboxPath+"/deliveries", inboxPath+"/push"
	h.ask("GET", deliveries, "").refused(contracts.CodeAccessDenied) // alice has a scope
	body := `{"endpoint":"https://e","keys":{"p256dh":"p","auth":"a"}}`
	for method, want := range map[string]string{"GET": "key for alice", "POST": "alice at https://e with a", "DELETE": "alice not at https://e"} {
		if h.ask(method, push, body).ok(); n.did != want {
			t.Errorf("%s: got %q, want %q", method, n.did, want)
		}
	}
	if h.ask("POST", push, `{"endpoint":"https://e","test":true}`).ok(); n.did != "alice tests https://e" {
		t.Errorf("test: got %q", n.did)
	}
	h.ask("POST", push, "").refused(contracts.CodeBadRequest)
	f.err, n.did = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "viewers answer no questions"}, ""
	for _, method := range []string{"GET", "POST", "DELETE"} {
		if h.ask(method, push, body).refused(contracts.CodeAccessDenied); n.did != "" {
			t.Errorf("%s: got %q after a refusal", method, n.did)
		}
	}
	h.principal = contracts.Principal{ID: "owner"}
	h.ask("GET", deliveries, "").ok()
	without := newHouse(t, func(o *Options) { o.Overview = f })
	without.ask("GET", deliveries, "").refused(contracts.CodeNotFound)
}

func TestInboxRoutes(t *testing.T) {
	h, f := withOverview(t)
	if got := h.ask("GET", inboxPath, "").ok().Body.String(); !strings.HasPrefix(got, `{"questions":[{"session_id":"a"`) || f.did != "inbox" {
		t.Errorf("got %s", got)
	}
	res, err := http.Get(h.serve() + inboxPath + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); string(text) != "data: {\"type\":\"ended\"}\n\n" || err != nil { // the answer has ended
		t.Errorf("got %q, %v, want the stream", text, err)
	}
	got := h.ask("POST", inboxPath+"/sess_a/q%3Aretry%3A1", `{"approved":true,"note":"fine","digest":"d"}`).ok().Body.String()
	if want := `{"session_id":"sess_a","request_id":"q:retry:1","ended":true,"cursor":7}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := `{"request_id":"q:retry:1","request_type":"","approved":true,"reason":"fine","digest":"d"}`
	if got := h.session.last(t); got.method != "Answer" || got.text != want {
		t.Errorf("got %+v, want %s", got, want)
	}
	h.ask("POST", inboxPath+"/sess_a/q", "").refused(contracts.CodeBadRequest)
	h.ask("POST", inboxPath+"/sess_a/"+strings.Repeat("q", 200), `{"approved":true}`).refused(contracts.CodeBadRequest)
	f.err = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "no"}
	h.ask("GET", inboxPath, "").refused(contracts.CodeAccessDenied)
	h.ask("GET", inboxPath+"/events", "").refused(contracts.CodeAccessDenied)
}
