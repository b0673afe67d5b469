package localmodel_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

const story = "think I wonder what to do\nsay Once upon a time there was a story\ncall bash {\"command\":\"echo a long command\"}"

// endings are the events that end a stream, by form.
var endings = map[string]string{
	"anthropic": "event: message_stop",
	"responses": "event: response.completed",
	"chat":      "data: [DONE]",
}

func TestRefusalsAreThoseOfTheService(t *testing.T) {
	for _, tt := range []struct {
		kind   localmodel.FaultKind
		form   string
		status int
		says   string
	}{
		{localmodel.FaultRateLimited, "anthropic", 429, `"type":"rate_limit_error"`},
		{localmodel.FaultRateLimited, "responses", 429, `"code":"rate_limit_exceeded"`},
		{localmodel.FaultRateLimited, "chat", 429, `"code":"rate_limit_exceeded"`},
		{localmodel.FaultOverloaded, "anthropic", 529, `"message":"Overloaded","type":"overloaded_error"`},
		{localmodel.FaultOverloaded, "responses", 503, `overloaded`},
		{localmodel.FaultOverloaded, "chat", 503, `overloaded`},
		{localmodel.FaultServerError, "anthropic", 500, `"type":"api_error"`},
		{localmodel.FaultServerError, "responses", 500, `"type":"server_error"`},
		{localmodel.FaultServerError, "chat", 500, `"type":"server_error"`},
		{localmodel.FaultUnauthorized, "anthropic", 401, `"type":"authentication_error"`},
		{localmodel.FaultUnauthorized, "responses", 401, `"code":"invalid_api_key"`},
		{localmodel.FaultUnauthorized, "chat", 401, `"code":"invalid_api_key"`},
		{localmodel.FaultTooLong, "anthropic", 400, `prompt is too long`},
		{localmodel.FaultTooLong, "responses", 400, `"code":"context_length_exceeded"`},
		{localmodel.FaultTooLong, "chat", 400, `"code":"context_length_exceeded"`},
		{localmodel.FaultNoQuota, "anthropic", 400, `credit balance is too low`},
		{localmodel.FaultNoQuota, "responses", 429, `"code":"insufficient_quota"`},
		{localmodel.FaultNoQuota, "chat", 429, `"code":"insufficient_quota"`},
		{localmodel.FaultHTML, "anthropic", 502, `<html>`},
		{localmodel.FaultHTML, "responses", 502, `<html>`},
		{localmodel.FaultHTML, "chat", 502, `<html>`},
	} {
		fault := localmodel.Fault{Kind: tt.kind, RetryAfterMS: 1500}
		p := serve(t, localmodel.Options{Inject: func(localmodel.Request) (f localmodel.Fault) {
			f, fault = fault, f
			return f
		}})
		for _, f := range forms {
			if f.name != tt.form {
				continue
			}
			status, header, body, _ := p.post(t, f.path, f.ask(story))
			if status != tt.status || !strings.Contains(body, tt.says) {
				t.Errorf("%s of %s: got %d %s, want %d and %s", tt.kind, tt.form, status, body, tt.status, tt.says)
			}
			if got := header.Get("Retry-After"); tt.kind == localmodel.FaultRateLimited && got != "2" {
				t.Errorf("%s of %s: got Retry-After %q, want 2", tt.kind, tt.form, got)
			}
			if status, _, body, _ := p.post(t, f.path, f.ask(story)); status != 200 || !strings.Contains(body, endings[f.name]) {
				t.Errorf("%s of %s: got %d %s afterwards, want an answer", tt.kind, tt.form, status, body)
			}
		}
	}
}

func TestStreamsBreakWhereTheyAreTold(t *testing.T) {
	for _, tt := range []struct {
		fault     localmodel.Fault
		has, not  string // in the text of the stream
		broken    bool   // the connection is
		ends      bool   // with the event that ends a stream
		malformed bool
	}{
		{fault: localmodel.Fault{Kind: localmodel.FaultCutText}, has: "Once", not: "tory"},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutText, Abort: true}, has: "Once", not: "tory", broken: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutArgs}, has: `\"com`, not: "ong c"},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutArgs, Abort: true}, has: `\"com`, not: "ong c", broken: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutEnd}, has: `mand\"`},
		{fault: localmodel.Fault{Kind: localmodel.FaultMalformed}, has: "Once", not: "tory", malformed: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultErrorEvent}, has: "error", not: "tory"},
		{fault: localmodel.Fault{Kind: localmodel.FaultFailedEvent}, has: "error", not: "tory"},
		{fault: localmodel.Fault{Kind: localmodel.FaultSlow}, has: "Once", ends: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultEmpty}, not: "Once", ends: true},
	} {
		for _, f := range forms {
			t.Run(string(tt.fault.Kind)+" of "+f.name, func(t *testing.T) {
				p := serve(t, localmodel.Options{Inject: func(localmodel.Request) localmodel.Fault { return tt.fault }, DeltaRunes: 5})
				status, _, body, err := p.post(t, f.path, f.ask(story))
				if status != 200 || (err != nil) != tt.broken {
					t.Errorf("got %d and %v, want 200 and a broken connection: %v", status, err, tt.broken)
				}
				if tt.has != "" && !strings.Contains(body, tt.has) || tt.not != "" && strings.Contains(body, tt.not) {
					t.Errorf("got %s, want it to have %q and not %q", body, tt.has, tt.not)
				}
				if got := strings.Contains(body, endings[f.name]); got != tt.ends {
					t.Errorf("got %s, want it ended in order: %v", body, tt.ends)
				}
				if got := strings.Contains(body, "error"); got != strings.HasSuffix(string(tt.fault.Kind), "_event") && f.name != "responses" {
					t.Errorf("got %s, want an error in it: %v", body, !got)
				}
				last := body[strings.LastIndex(strings.TrimSpace(body), "\n")+1:]
				if got := !strings.HasSuffix(strings.TrimSpace(last), "}") && !tt.ends && !tt.broken; got != tt.malformed {
					t.Errorf("got %q at the end, want it malformed: %v", last, tt.malformed)
				}
			})
		}
	}
}

func TestHangsEndWhenTheClientLeaves(t *testing.T) {
	for _, kind := range []localmodel.FaultKind{localmodel.FaultHang, localmodel.FaultSilent} {
		for _, f := range forms {
			t.Run(string(kind)+" of "+f.name, func(t *testing.T) {
				p := serve(t, localmodel.Options{}) // its Close waits for what is under way
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				arrived := make(chan struct{})
				p = serve(t, localmodel.Options{Inject: func(localmodel.Request) localmodel.Fault {
					close(arrived)
					return localmodel.Fault{Kind: kind}
				}})
				req, err := http.NewRequestWithContext(ctx, "POST", p.url+f.path, strings.NewReader(f.ask(story)))
				if err != nil {
					t.Fatal(err)
				}
				if kind == localmodel.FaultSilent {
					go func() { <-arrived; leave() }() // ends with the request
					if res, err := p.client.Do(req); err == nil {
						res.Body.Close()
						t.Fatalf("got %d, want no answer", res.StatusCode)
					}
					return
				}
				res, err := p.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				lines := bufio.NewScanner(res.Body)
				for lines.Scan() && !strings.Contains(lines.Text(), "Once") {
				}
				leave()
				for lines.Scan() {
				}
				if lines.Err() == nil {
					t.Error("got the end of the stream, want none before the client leaves")
				}
			})
		}
	}
}

func TestFaultsOfATurnStrikeSoOften(t *testing.T) {
	for _, f := range forms {
		p := serve(t, localmodel.Options{})
		prompt := "say well\nfault overloaded 2"
		for try, want := range []bool{false, false, true, false, false, true} {
			if status, _, _, _ := p.post(t, f.path, f.ask(prompt)); (status == 200) != want {
				t.Errorf("%s: got %d at try %d, want success: %v", f.name, status, try, want)
			}
		}
	}
}

func TestFaultsAreInjectedByRequest(t *testing.T) {
	p := serve(t, localmodel.Options{Inject: func(r localmodel.Request) localmodel.Fault {
		if r.Prompt == "bad" {
			return localmodel.Fault{Kind: localmodel.FaultServerError}
		}
		return localmodel.Fault{}
	}})
	for prompt, want := range map[string]int{"good": 200, "bad": 500} {
		if got, _, _, _ := p.post(t, forms[0].path, forms[0].ask(prompt)); got != want {
			t.Errorf("%s: got %d, want %d", prompt, got, want)
		}
	}
}
