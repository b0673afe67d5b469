package chaos

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func parse(t *testing.T, lines ...string) []Fault {
	t.Helper()
	var faults []Fault
	for _, line := range lines {
		f, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, f)
	}
	return faults
}

func TestFaultsHaveATextForm(t *testing.T) {
	for _, line := range []string{
		"server status drop",
		"server utility_* message=Prompt:* #2+ set state.is_ready=false",
		"client hello #1 delete capabilities",
		`answer POST messages 4?? forge 500 {"error": "a text with blanks"}`,
		"answer * * * header X-Maestro-Headless-Epoch=",
		"request GET events query cursor=",
		"process exit 3",
		`server * sub (?m)^id: .*\n=>`,
	} {
		parse(t, line)
	}
	for line, want := range map[string]string{
		"":                           "no point",
		"nowhere status drop":        "want server, client",
		"server status":              "an action",
		"server status vanish":       "no action vanish",
		"server status #0 drop":      "#N",
		"server status drop it":      "want drop",
		"server status set":          "KEY=VALUE",
		"server status set x":        "KEY=VALUE",
		"server status delay soon":   "duration",
		"server [ drop":              "syntax error",
		"server status sub (=>x":     "parsing regexp",
		"answer * * * status broken": "invalid syntax",
		"process drop":               "no action",
	} {
		if f, err := Parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want an error with %q", line, f, err, want)
		}
	}
}

func TestLinksInjectFaultsIntoTexts(t *testing.T) {
	in := []string{`{"type":"a","n":1}`, `{"type":"message","cursor":7,"message":{"type":"b","list":[{"x":"y"}]}}`, `{"type":"a","n":2}`, "no JSON"}
	for fault, want := range map[string][]string{
		"server a drop":              {in[1], in[3]},
		"server a #2 drop":           {in[0], in[1], in[3]},
		"server a n=2 drop":          {in[0], in[1], in[3]},
		"server b repeat":            {in[0], in[1], in[1], in[2], in[3]},
		"server b swap":              {in[0], in[2], in[1], in[3]},
		"server b add {}":            {in[0], in[1], "{}", in[2], in[3]},
		"server b before {}":         {in[0], "{}", in[1], in[2], in[3]},
		"server a #2+ set n=+5":      {in[0], in[1], `{"n":7,"type":"a"}`, in[3]},
		"server a #1 set o.p=[true]": {`{"n":1,"o":{"p":[true]},"type":"a"}`, in[1], in[2], in[3]},
		"server b set list.0.x=word": {in[0], `{"cursor":7,"message":{"list":[{"x":"word"}],"type":"b"},"type":"message"}`, in[2], in[3]},
		"server b set /cursor=-1":    {in[0], `{"cursor":6,"message":{"list":[{"x":"y"}],"type":"b"},"type":"message"}`, in[2], in[3]},
		"server a #1 delete n":       {`{"type":"a"}`, in[1], in[2], in[3]},
		"server a #1 rename n=m":     {`{"m":1,"type":"a"}`, in[1], in[2], in[3]},
		"server comment sub no=>any": {in[0], in[1], in[2], "any JSON"},
		"server b cut":               {in[0], in[1][:len(in[1])/2]},
		"server b end":               {in[0]},
	} {
		l := link{faults: choose(parse(t, fault), Server)}
		var got []string
		for _, text := range in {
			out, err := l.pass(t.Context(), []byte(text))
			for _, text := range out {
				got = append(got, string(text))
			}
			if err != nil {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", fault, got, want)
		}
	}
}

func TestProxyInjectsFaultsIntoHTTP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "manifest.json")
	if err := os.WriteFile(file, []byte(`{"a":{"b":1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a client that has gone gets no answer
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "retry: 5\n\nid: e.1\ndata: {\"type\":\"a\"}\n\n: still here\n\n")
		case "/drain":
			_, _ = io.WriteString(w, `{"manifest_path":"`+file+`"}`)
		default:
			w.Header().Set("X-Seen", r.Header.Get("X-Sent")+r.URL.RawQuery)
			_, _ = io.WriteString(w, `{"body":`+string(body)+`}`)
		}
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct{ fault, path, want string }{
		{"answer GET other 200 drop", "/x", `200 {"body":{"k":"v"}} sentq=1`},
		{"answer POST x 200 status 503", "/x", `503 {"body":{"k":"v"}} sentq=1`},
		{"answer POST x 2?? header X-Seen=", "/x", `200 {"body":{"k":"v"}} `},
		{"answer POST * * forge 418 {}", "/x", `418 {} sentq=1`},
		{"answer * * * set body.k=w", "/x", `200 {"body":{"k":"w"}} sentq=1`},
		{"answer * * * cut", "/x", "unexpected EOF"},
		{"answer * * * drop", "/x", "EOF"},
		{"request POST x k=v set k=2", "/x", `200 {"body":{"k":2}} sentq=1`},
		{"request * * header X-Sent=", "/x", `200 {"body":{"k":"v"}} q=1`},
		{"request * * query q=", "/x", `200 {"body":{"k":"v"}} sent`},
		{"request * * path x$=>drain", "/x", `200 {"manifest_path":"` + file + `"} `},
		{"request * * drop", "/x", `200 {} `},
		{"answer * drain 200 file a.b=2", "/drain", `200 {"manifest_path":"` + file + `"} `},
		{"server a drop", "/events", "200 retry: 5\n\n: still here\n\n "},
		{"server comment #2 drop", "/events", "200 retry: 5\n\nid: e.1\ndata: {\"type\":\"a\"}\n\n "},
		{"server a set n=1", "/events", "200 retry: 5\n\nid: e.1\ndata: {\"n\":1,\"type\":\"a\"}\n\n: still here\n\n "},
		{"server a add {}", "/events", "200 retry: 5\n\nid: e.1\ndata: {\"type\":\"a\"}\n\ndata: {}\n\n: still here\n\n "},
	} {
		proxy, err := NewProxy(server.URL, parse(t, c.fault))
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewServer(proxy)
		if got := ask(front.URL + c.path); got != c.want && !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.fault, got, c.want)
		}
		front.Close()
		proxy.Close()
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != `{"a":{"b":2}}` {
		t.Errorf("got manifest %s, %v, want b to be 2", text, err)
	}
}

// ask posts an object and renders the answer, or the error.
func ask(url string) string {
	req, err := http.NewRequest(http.MethodPost, url+"?q=1", strings.NewReader(`{"k":"v"}`))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("X-Sent", "sent")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }() // it is read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return resp.Status[:3] + " " + string(body) + " " + resp.Header.Get("X-Seen")
}
