package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

var ann = contracts.Principal{ID: "ann", Scope: "home"}

func pushOptions(t *testing.T) Options {
	return Options{
		PushFile: filepath.Join(t.TempDir(), "push.json"),
		Config:   Config{Link: "https://here/{session}?r={request}", WebPush: &WebPush{Subject: "mailto:ops@example.com", Local: true}},
	}
}

func newPushing(t *testing.T, o Options) *Notifier {
	t.Helper()
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	n.Start()
	return n
}

// A browserKeys is what a browser keeps of a subscription.
type browserKeys struct {
	P256DH  string `json:"p256dh"`
	Auth    string `json:"auth"`
	Private string `json:"private"`
}

func newKeys(t *testing.T) (keys browserKeys) {
	t.Helper()
	if err := json.Unmarshal([]byte(inNode(t, "push.js", nil)), &keys); err != nil {
		t.Fatal(err)
	}
	return keys
}

func (k browserKeys) at(endpoint string) *contracts.PushRequest {
	return &contracts.PushRequest{Endpoint: endpoint, Keys: contracts.PushKeys{P256DH: k.P256DH, Auth: k.Auth}}
}

func (n *Notifier) askIn(scope, session, id string, kind contracts.RequestType) {
	n.Notify(scope, contracts.InboxEvent{Question: &contracts.InboxQuestion{SessionID: session, RequestID: id, RequestType: kind, Display: "rm -rf /", AskedAt: timestamp(time.Now())}})
}

func TestPushIsDecryptedByNode(t *testing.T) {
	url, arrivals := receive(t)
	o := pushOptions(t)
	n := newPushing(t, o)
	keys := newKeys(t)
	if err := n.Subscribe(ann, keys.at(url+"/push/1")); err != nil {
		t.Fatal(err)
	}
	key, err := n.PushKey(ann)
	if err != nil || key.Subscriptions != 1 {
		t.Fatalf("got %+v, %v, want one subscription", key, err)
	}
	n.askIn("elsewhere", "s", "theirs", contracts.RequestApproval)
	n.askIn("home", "s", "q1", contracts.RequestApproval)
	type message struct {
		arrival
		Keys browserKeys
	}
	link := `{"link":"https://here/s?r=q1","type":"question.asked"} ` + url + " mailto:ops@example.com " + key.PublicKey
	got := <-arrivals
	want(t, "the message", inNode(t, "push.js", message{got, keys}), link)
	if topic := got.Header.Get("Topic"); len(topic) != 32 {
		t.Errorf("got the topic %q, want 32 characters", topic)
	}
	n.Close()

	n = newPushing(t, o) // the key and the subscription outlive the process
	defer n.Close()
	n.askIn("home", "s", "q1", contracts.RequestApproval)
	want(t, "after a restart", inNode(t, "push.js", message{<-arrivals, keys}), link)
	if info, err := os.Stat(o.PushFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file of the owner's", info, err)
	}
	if err := n.Unsubscribe(ann, url+"/push/1"); err != nil {
		t.Fatal(err)
	}
	n.askIn("home", "s", "q2", contracts.RequestApproval)
	if got := n.States().Receivers; len(got) != 0 {
		t.Errorf("got %+v, want no receivers", got)
	}
}

// theKeys are keys of a subscription that no test decrypts.
var theKeys = browserKeys{
	P256DH: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4", Auth: "BTBZMqHH6r4Tts7J_aSIgg",
}

func TestPushSubscriptionsAreChecked(t *testing.T) {
	o := pushOptions(t)
	o.Config.WebPush.Local = false
	n := newPushing(t, o)
	defer n.Close()
	good := "https://push.example/1"
	for name, change := range map[string]func(r *contracts.PushRequest){
		"plain":       func(r *contracts.PushRequest) { r.Endpoint = "http://push.example/1" },
		"file":        func(r *contracts.PushRequest) { r.Endpoint = "file:///etc/passwd" },
		"credentials": func(r *contracts.PushRequest) { r.Endpoint = "https://a:b@push.example" },
		"long":        func(r *contracts.PushRequest) { r.Endpoint += strings.Repeat("x", maxEndpoint) },
		"no point":    func(r *contracts.PushRequest) { r.Keys.P256DH = base64URL.EncodeToString(make([]byte, 65)) },
		"short auth":  func(r *contracts.PushRequest) { r.Keys.Auth = "AA" },
		"hours":       func(r *contracts.PushRequest) { r.QuietHours = "always" },
	} {
		r := theKeys.at(good)
		change(r)
		if err := n.Subscribe(ann, r); !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	for i := range maxOwn + 1 {
		err := n.Subscribe(ann, theKeys.at(fmt.Sprint(good, i)))
		if (err == nil) != (i < maxOwn) {
			t.Errorf("subscription %d: got %v, want %d at most", i, err, maxOwn)
		}
	}
	if err := n.Subscribe(ann, theKeys.at(good+"0")); err != nil {
		t.Errorf("the same again: got %v", err)
	}
	if got := len(n.States().Receivers); got != maxOwn {
		t.Errorf("got %d receivers, want %d", got, maxOwn)
	}
	off := newPushing(t, Options{Config: Config{Link: "x"}})
	defer off.Close()
	if _, err := off.PushKey(ann); !errors.Is(err, errNoPush) {
		t.Errorf("without Web Push: got %v", err)
	}
}

func TestSubscriptionsOfDeadCredentialsTakeNoRoom(t *testing.T) {
	o := pushOptions(t)
	revoked := false
	o.Alive = func(p contracts.Principal) bool { return !revoked || p.ID == ann.ID }
	n := newPushing(t, o)
	defer n.Close()
	subscribe := func(p contracts.Principal, i int) error {
		return n.Subscribe(p, theKeys.at(fmt.Sprint("http://127.0.0.1/", i)))
	}
	for i := range maxSubscriptions {
		if err := subscribe(contracts.Principal{ID: fmt.Sprint("share_", i/maxOwn)}, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := subscribe(ann, 0); !errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) {
		t.Errorf("got %v, want a refusal", err)
	}
	revoked = true
	if err := subscribe(ann, 0); err != nil {
		t.Errorf("after the credentials of others ended: got %v", err)
	}
	if got := len(n.States().Receivers); got != 1 {
		t.Errorf("got %d receivers, want one", got)
	}
	text, err := os.ReadFile(o.PushFile)
	if err != nil || strings.Contains(string(text), "share_") {
		t.Errorf("got %d bytes, %v; want no dead subscription", len(text), err)
	}
}

func TestPushReachesNoPrivateAddress(t *testing.T) {
	for address, public := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true,
		"127.0.0.1:443": false, "[::1]:443": false, "10.0.0.1:443": false, "192.168.1.1:443": false, "172.16.0.1:443": false,
		"169.254.169.254:80": false, "100.64.0.1:443": false, "0.0.0.0:443": false, "[::ffff:127.0.0.1]:443": false, "[fe80::1]:443": false,
		"[fd00::1]:443": false, "224.0.0.1:443": false, "[64:ff9b::7f00:1]:443": false, "[2002:7f00:1::]:443": false, "255.255.255.255:443": false,
		"0.1.2.3:443": false, "[::7f00:1]:443": false, "[fec0::1]:443": false, "[::ffff:0:7f00:1]:443": false,
	} {
		if err := checkPublic(address); (err == nil) != public {
			t.Errorf("%s: got %v, want it public: %t", address, err, public)
		}
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the endpoint was reached") }))
	defer server.Close()
	client := newClient(newTransport(checkPublic))
	defer client.CloseIdleConnections()
	if res, err := client.Get(server.URL); err == nil || !strings.Contains(err.Error(), "no public address") {
		t.Errorf("got %v, %v, want the address refused", res, err)
	}
}

func TestPushIsForThosePrincipalsWhoMayAnswer(t *testing.T) {
	url, arrivals := receive(t)
	o := pushOptions(t)
	revoked := map[string]bool{"revoked": true}
	o.Alive = func(p contracts.Principal) bool { return !revoked[p.ID] }
	n := newPushing(t, o)
	defer n.Close()
	for i, p := range []contracts.Principal{
		{ID: "share", SessionID: "b"}, {ID: "approver", Role: contracts.RoleApprover}, {ID: "revoked"}, {ID: "expired", Expires: time.Unix(1, 0)},
	} {
		if err := n.Subscribe(p, theKeys.at(fmt.Sprint(url, "/", i))); err != nil {
			t.Fatal(err)
		}
	}
	n.askIn("", "a", "retry", contracts.RequestToolRetry) // nobody who is left
	n.askIn("", "a", "q", contracts.RequestApproval)      // the approver
	<-arrivals
	n.askIn("", "b", "retry", contracts.RequestToolRetry) // the share
	<-arrivals
	n.Close() // each lane has ended
	if len(arrivals) > 0 {
		t.Errorf("got %d further messages", len(arrivals))
	}
}

func TestBrowserThatUnsubscribedIsForgotten(t *testing.T) {
	asked := make(chan string, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
		}
		asked <- r.URL.Path
	}))
	defer server.Close()
	o := pushOptions(t)
	n := newPushing(t, o)
	if err := n.Subscribe(ann, theKeys.at(server.URL+"/gone")); err != nil {
		t.Fatal(err)
	}
	l := n.lanes[0]
	n.askIn("home", "s", "q", contracts.RequestApproval)
	<-asked
	<-l.ctx.Done() // it was removed
	n.Close()
	if text, err := os.ReadFile(o.PushFile); err != nil || strings.Contains(string(text), "/gone") {
		t.Errorf("got %s, %v, want no subscription", text, err)
	}
}

func TestTestsOfBrowsersTellClientsNothingAboutTheNetwork(t *testing.T) {
	o := pushOptions(t)
	o.Config.WebPush.Local = false
	n := newPushing(t, o)
	defer n.Close()
	const endpoint = "https://127.0.0.1/x"
	guest := contracts.Principal{ID: "share", Role: contracts.RoleApprover, SessionID: "s"}
	for _, p := range []contracts.Principal{guest, {ID: "owner"}} {
		if err := n.Subscribe(p, theKeys.at(endpoint)); err != nil {
			t.Fatal(err)
		}
		err := n.TestPush(p, endpoint)
		if !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeNotReady}) || strings.Contains(err.Error(), "127.0.0.1") != p.Owner() {
			t.Errorf("%s: got %v, want the address named only to the owner", p.ID, err)
		}
	}
	for range 2 * testBurst { // also over new registrations
		err := errors.Join(n.Unsubscribe(guest, endpoint), n.Subscribe(guest, theKeys.at(endpoint)), n.TestPush(guest, endpoint))
		if errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) {
			return
		}
	}
	t.Error("test notifications have no limit")
}

func TestBrowserIsListedAndTested(t *testing.T) {
	url, arrivals := receive(t)
	answers := map[string]int{"/gone": http.StatusGone, "/bad": http.StatusForbidden}
	push := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(answers[r.URL.Path]) }))
	defer push.Close()
	n := newPushing(t, pushOptions(t))
	defer n.Close()
	keys := newKeys(t)
	quiet := keys.at(url + "/1")
	quiet.QuietHours, quiet.TimeZone, quiet.UnlessLooking = "00:00-23:59", "UTC", true
	for _, r := range []*contracts.PushRequest{quiet, theKeys.at(push.URL + "/gone"), theKeys.at(push.URL + "/bad")} {
		if err := n.Subscribe(ann, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.TestPush(ann, url+"/1"); err != nil {
		t.Fatal(err)
	}
	got := inNode(t, "push.js", struct {
		arrival
		Keys browserKeys
	}{<-arrivals, keys})
	if !strings.HasPrefix(got, `{"link":"","type":"test"} `) {
		t.Errorf("got %s, want a test", got)
	}
	for path, code := range map[string]contracts.Code{"/gone": contracts.CodeNotFound, "/bad": contracts.CodeRuntimeNotReady} {
		if err := n.TestPush(ann, push.URL+path); !errors.Is(err, &contracts.Error{Code: code}) {
			t.Errorf("%s: got %v, want %s", path, err, code)
		}
	}
	if err := n.TestPush(contracts.Principal{ID: "ben"}, url+"/1"); !errors.Is(err, &contracts.Error{Code: contracts.CodeNotFound}) {
		t.Errorf("the browser of somebody else: got %v", err)
	}
	key, err := n.PushKey(ann)
	if err != nil || len(key.Browsers) != 2 { // the push service does not know the other any more
		t.Fatalf("got %+v, %v, want two browsers", key, err)
	}
	sum := sha256.Sum256([]byte(url + "/1"))
	want := contracts.PushBrowser{ID: hex.EncodeToString(sum[:]), QuietHours: "00:00-23:59", TimeZone: "UTC", UnlessLooking: true}
	if key.Browsers[0] != want {
		t.Errorf("got %+v, want %+v", key.Browsers[0], want)
	}
}

func TestBrowserThatRegistersAgainKeepsItsQueue(t *testing.T) {
	asked, down := make(chan struct{}), true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		down = false
		asked <- struct{}{}
	}))
	defer server.Close()
	n := newPushing(t, pushOptions(t))
	defer n.Close()
	subscribe := func() {
		if err := n.Subscribe(ann, theKeys.at(server.URL+"/1")); err != nil {
			t.Fatal(err)
		}
	}
	subscribe()
	n.askIn("home", "s", "q", contracts.RequestApproval)
	<-asked
	subscribe()
	<-asked
}
