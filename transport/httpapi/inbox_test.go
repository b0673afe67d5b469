package httpapi

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

const inboxPath = "/api/headless/inbox"

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
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); line != "data: {\"type\":\"ended\"}\n" || err != nil {
		t.Errorf("got %q, %v, want the stream", line, err)
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
