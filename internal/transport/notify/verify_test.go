package notify

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
)

// An arrival is one request as it arrived at a receiver.
type arrival struct {
	Header http.Header
	Body   []byte // base64 in JSON
}

// receive starts a receiver on loopback that accepts everything.
func receive(t *testing.T) (url string, arrivals <-chan arrival) {
	c := make(chan arrival, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c <- arrival{r.Header, body}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	return server.URL, c
}

// inNode runs a program of testdata in Node.js, and returns what it writes about input.
func inNode(t *testing.T, program string, input any) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("needs Node.js")
	}
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/"+program)
	cmd.Stdin = bytes.NewReader(text)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, stderr.String())
	}
	return string(out)
}

func TestSignatureIsVerifiedByNode(t *testing.T) {
	url, arrivals := receive(t)
	n, err := New(Options{Config: Config{
		Link: "https://here/{session}?r={request}", Receivers: []Receiver{{Name: "hook", Kind: "webhook", URL: url, Secret: secret}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Start()
	n.ask("q 1")
	got := <-arrivals
	if text := string(got.Body); strings.Contains(text, "rm -rf") || !strings.Contains(text, `"link":"https://here/s?r=q+1"`) {
		t.Errorf("got %s, want a link and nothing of the question", text)
	}
	type signed struct {
		arrival
		Secret string
	}
	want(t, "the signature", inNode(t, "webhook.js", signed{got, secret}), "valid")
	altered := arrival{got.Header, append([]byte(" "), got.Body...)}
	want(t, "of an altered body", inNode(t, "webhook.js", signed{altered, secret}), "invalid")
	id := http.Header{"Webhook-Id": {"msg_other"}, "Webhook-Timestamp": got.Header["Webhook-Timestamp"], "Webhook-Signature": got.Header["Webhook-Signature"]}
	want(t, "of another id", inNode(t, "webhook.js", signed{arrival{id, got.Body}, secret}), "invalid")
}

func TestNtfyGetsTheLinkToClick(t *testing.T) {
	url, arrivals := receive(t)
	n, err := New(Options{Config: Config{
		Link: "https://here/{session}?r={request}", Receivers: []Receiver{{Name: "phone", Kind: "ntfy", URL: url + "/topic", Token: "tk_1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Start()
	n.ask("q1")
	got := <-arrivals
	want(t, "the text", string(got.Body), "A session waits for an answer.")
	if id := got.Header.Get("X-Sequence-Id"); !strings.HasPrefix(id, "msg_") || len(id) > 64 {
		t.Errorf("got the sequence id %q, want that of the notification", id)
	}
	for name, value := range map[string]string{"Click": "https://here/s?r=q1", "Authorization": "Bearer tk_1", "Title": "Maestro"} {
		want(t, name, got.Header.Get(name), value)
	}
}
