package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

const story = "think I wonder what to do\nsay Once upon a time there was a story\ncall bash {\"command\":\"echo a long command\"}"

func TestFaultsAreToldApart(t *testing.T) {
	for _, tt := range []struct {
		fault   localmodel.Fault
		kind    model.Kind
		retried bool
		partial bool // some of the text came
		called  bool // the call was complete
	}{
		{fault: localmodel.Fault{Kind: localmodel.FaultRateLimited, RetryAfterMS: 2500}, kind: model.KindOverloaded, retried: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultOverloaded}, kind: model.KindOverloaded, retried: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultServerError}, kind: model.KindTransient, retried: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultHTML}, kind: model.KindTransient, retried: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultUnauthorized}, kind: model.KindAuth},
		{fault: localmodel.Fault{Kind: localmodel.FaultNoQuota}, kind: model.KindQuota},
		{fault: localmodel.Fault{Kind: localmodel.FaultTooLong}, kind: model.KindTooLong},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutText}, kind: model.KindCut, retried: true, partial: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutText, Abort: true}, kind: model.KindCut, retried: true, partial: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutArgs}, kind: model.KindCut, retried: true, partial: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutArgs, Abort: true}, kind: model.KindCut, retried: true, partial: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutEnd}, kind: model.KindCut, retried: true, partial: true, called: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultCutEnd, Abort: true}, kind: model.KindCut, retried: true, partial: true, called: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultMalformed}, kind: model.KindMalformed, retried: true, partial: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultErrorEvent}, retried: true, partial: true},
		{fault: localmodel.Fault{Kind: localmodel.FaultFailedEvent}, retried: true, partial: true},
	} {
		for _, provider := range providers {
			t.Run(fmt.Sprint(tt.fault.Kind, tt.fault.Abort, " of ", provider), func(t *testing.T) {
				server := local(localmodel.Options{Inject: func(localmodel.Request) localmodel.Fault { return tt.fault }})
				m := open(t, provider, server, func(o *Options) { o.Key = "sk-secret-key" })
				h, err := stream(t.Context(), m, prompt(story))
				e := failed(t, err)
				want := tt.kind
				if want == "" { // Anthropic's breaks off because of its load
					want = map[string]model.Kind{Anthropic: model.KindOverloaded}[provider]
					if want == "" {
						want = model.KindCut
					}
				}
				if e.Kind != want || e.Retryable() != tt.retried {
					t.Errorf("got %+v, want %s, worth a retry: %v", e, want, tt.retried)
				}
				if tt.fault.RetryAfterMS > 0 && (e.RetryAfter != 2500*time.Millisecond || e.Status != 429) {
					t.Errorf("got %v after %d, want 2.5s after 429", e.RetryAfter, e.Status)
				}
				whole := "Once upon a time there was a story"
				if text(h.Message) != h.text || !strings.HasPrefix(whole, h.text) || (h.text != "") != tt.partial {
					t.Errorf("got %q and %q at the end, want the beginning of %q: %v", h.text, text(h.Message), whole, tt.partial)
				}
				if got := len(calls(h.Message)) == 1; got != tt.called {
					t.Errorf("got %+v, want its call: %v", h.Message, tt.called)
				}
				if h.Stop != "" {
					t.Errorf("got stop %q, want none", h.Stop)
				}
				if len(server.Requests()) != 1 {
					t.Errorf("got %d requests, want one: the loop retries", len(server.Requests()))
				}
				if e.Message == "" || strings.Contains(e.Message, "story") || strings.Contains(e.Message, "secret") {
					t.Errorf("got %q, want a message that shows nothing", e.Message)
				}
			})
		}
	}
}

func TestFailedTurnSucceedsWhenItIsTriedAgain(t *testing.T) {
	for _, provider := range providers {
		m := open(t, provider, local(localmodel.Options{}))
		req := prompt("say well\nfault cut_text 2")
		for try := range 3 {
			h, err := stream(t.Context(), m, req)
			if (err == nil) != (try == 2) || err == nil && h.text != "well" {
				t.Errorf("%s: got %v and %q at try %d, want success at the third", provider, err, h.text, try)
			}
		}
	}
}

// A model may end a call whose arguments are no JSON.
func TestBadArgumentsAreMalformed(t *testing.T) {
	for _, raw := range []string{`{"a":`, `[1]`, `"a"`} {
		script := []localmodel.Case{{Turns: []localmodel.Turn{{Text: "so", Calls: []localmodel.Call{{Tool: "x", Args: json.RawMessage(raw)}}}}}}
		for _, provider := range providers {
			m := open(t, provider, local(localmodel.Options{Script: script}))
			h, err := stream(t.Context(), m, prompt("go"))
			if e := failed(t, err); e.Kind != model.KindMalformed || len(calls(h.Message)) > 0 || text(h.Message) != "so" {
				t.Errorf("%s: got %+v and %+v for %s, want malformed and no call", provider, e, h.Message, raw)
			}
		}
	}
	cut := []localmodel.Case{{Turns: []localmodel.Turn{{Stop: "length", Calls: []localmodel.Call{{Tool: "x", Args: json.RawMessage(`{"a":`)}}}}}}
	for _, provider := range providers {
		m := open(t, provider, local(localmodel.Options{Script: cut}))
		h, err := stream(t.Context(), m, prompt("go"))
		if err != nil || h.Stop != model.StopLength || len(calls(h.Message)) > 0 {
			t.Errorf("%s: got %v and %+v, want a reply that was cut by its length, without the call", provider, err, h.Reply)
		}
	}
}

// A quiet is a transport whose answers begin and then say nothing.
type quiet struct{ first string }

func (q quiet) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	if q.first == "" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	out, in := io.Pipe()
	go func() { // ends with the request
		fmt.Fprintf(in, "%s\n\n", q.first)
		<-r.Context().Done()
		in.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: out, Request: r}, nil
}

func TestSilenceIsGivenUp(t *testing.T) {
	beginnings := map[string]string{
		Anthropic:  "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hm\"}}",
		OpenAI:     "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hm\",\"output_index\":0}",
		OpenAIChat: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hm\"}}]}",
	}
	for _, provider := range providers {
		for _, first := range []string{"", beginnings[provider]} {
			synctest.Test(t, func(t *testing.T) {
				m := through(t, quiet{first}, Options{Provider: provider, Model: "m", BaseURL: "http://127.0.0.1:1"})
				begun := time.Now()
				h, err := stream(t.Context(), m, prompt("hello"))
				kind := map[bool]model.Kind{true: model.KindTransient, false: model.KindCut}[first == ""]
				if e := failed(t, err); e.Kind != kind || !strings.Contains(e.Message, "said nothing for") {
					t.Errorf("%s: got %+v, want silence", provider, e)
				}
				if got := time.Since(begun); got != 5*time.Minute {
					t.Errorf("%s: got given up after %v, want 5 minutes", provider, got)
				}
				if (h.text == "Hm") != (first != "") {
					t.Errorf("%s: got %q, want what was said before", provider, h.text)
				}
			})
		}
	}
}

// A whileAsked can be read as long as its request is under way.
type whileAsked struct {
	io.Reader
	ctx context.Context
}

func (w *whileAsked) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Reader.Read(p)
}

// A listener may take its time: it is not the service that is silent then.
func TestSlowListenerIsNotSilence(t *testing.T) {
	for _, provider := range providers {
		synctest.Test(t, func(t *testing.T) {
			recorded := httptest.NewRecorder()
			body := map[string]string{
				Anthropic: `{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":"say one two three"}]}`,
				OpenAI:    `{"stream":true,"input":"say one two three"}`, OpenAIChat: `{"stream":true,"messages":[{"role":"user","content":"say one two three"}]}`,
			}[provider]
			path := map[string]string{Anthropic: "/v1/messages", OpenAI: "/v1/responses", OpenAIChat: "/v1/chat/completions"}[provider]
			local(localmodel.Options{}).ServeHTTP(recorded, httptest.NewRequest("POST", path, strings.NewReader(body)))
			client := transport(func(r *http.Request) (*http.Response, error) {
				_, _ = io.Copy(io.Discard, r.Body)
				res := recorded.Result()
				res.Body = io.NopCloser(&whileAsked{iotest.OneByteReader(res.Body), r.Context()})
				return res, r.Body.Close()
			})
			m := through(t, client, Options{Provider: provider, Model: "m", BaseURL: "http://127.0.0.1:1"})
			reply, err := m.Stream(t.Context(), prompt("say one two three"), func(model.Delta) error {
				time.Sleep(time.Hour)
				return nil
			})
			if err != nil || text(reply.Message) != "one two three" {
				t.Errorf("%s: got %v and %+v, want the whole reply", provider, err, reply)
			}
		})
	}
}

// A completion is finished with its reason; that the stream stays open then is not
// waited for long.
func TestFinishedReplyIsNotWaitedFor(t *testing.T) {
	last := map[string]string{
		Anthropic:  "event: message_stop\ndata: {\"type\":\"message_stop\"}",
		OpenAI:     "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}",
		OpenAIChat: "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}",
	}
	for _, provider := range providers {
		synctest.Test(t, func(t *testing.T) {
			m := through(t, quiet{last[provider]}, Options{Provider: provider, Model: "m", BaseURL: "http://127.0.0.1:1"})
			begun := time.Now()
			mustStream(t, m, prompt("hello"))
			if got := time.Since(begun); got > lingering {
				t.Errorf("%s: got an end after %v, want at most %v", provider, got, lingering)
			}
		})
	}
}

// An endless is a body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(": more\n\n", len(p)/8+1)), nil
}
func (endless) Close() error { return nil }

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRepliesAreBounded(t *testing.T) {
	for _, provider := range providers {
		client := transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: endless{}, Request: r}, nil
		})
		m := through(t, client, Options{Provider: provider, Model: "m", BaseURL: "http://127.0.0.1:1"})
		m.maxReply = 100_000
		_, err := stream(t.Context(), m, prompt("hello"))
		if e := failed(t, err); e.Kind != model.KindMalformed || !strings.HasSuffix(e.Message, "a reply of more than 100000 bytes") {
			t.Errorf("%s: got %+v, want too large", provider, e)
		}
	}
}

func TestServiceThatIsNotThereIsTransient(t *testing.T) {
	ending := map[string]string{Anthropic: "/v1/messages", OpenAI: "/responses", OpenAIChat: "/chat/completions"}
	for _, provider := range providers {
		client := transport(func(r *http.Request) (*http.Response, error) { return nil, errors.New("dial tcp: refused") })
		m := through(t, client, Options{Provider: provider, Model: "m", BaseURL: "http://somewhere.example/sk-0123456789"})
		_, err := stream(context.Background(), m, prompt("hello"))
		want := provider + " cannot be reached at http://somewhere.example/***" + ending[provider] + ": dial tcp: refused"
		if e := failed(t, err); e.Kind != model.KindTransient || e.Message != want {
			t.Errorf("got %+v, want %s", e, want)
		}
	}
}

func TestAnswersThatAreNoStream(t *testing.T) {
	for _, tt := range []struct {
		status int
		header http.Header
		body   string
		kind   model.Kind
		says   string
	}{
		{200, nil, "<html>hello</html>", model.KindMalformed, "answered with a page: is that the address of a model?"},
		{200, http.Header{"Content-Type": {"text/event-stream"}}, "", model.KindCut, "the answer ended before it was complete"},
		{200, http.Header{"Content-Type": {"text/event-stream"}}, "event: message_start\ndata: {\"nonsense\n\n", model.KindMalformed, "sent an event that is not understood"},
		{307, http.Header{"Location": {"http://elsewhere.example/"}}, "", model.KindInvalid, "answered 307: the service is elsewhere; give its base URL"},
		{404, nil, `{"error":"model 'm' not found"}`, model.KindInvalid, "answered 404: model 'm' not found"},
		{400, nil, `[{"error":{"code":400,"message":"bad"}}]`, model.KindInvalid, "answered 400: bad"},
		{422, nil, `{"detail":"no such field"}`, model.KindInvalid, "answered 422: no such field"},
		{403, nil, "", model.KindAuth, "answered 403: forbidden"},
		{429, nil, "not JSON", model.KindOverloaded, "answered 429: too many requests"},
		{599, nil, "", model.KindTransient, "answered 599: an error without a text"},
		{400, nil, `{"error":{"message":"what you said: tell me about my very private matter"}}`, model.KindInvalid, "answered 400: its message repeats the request and is not shown"},
		{400, nil, `{"error":{"message":"not about my very private matter, please"}}`, model.KindInvalid, "answered 400: its message repeats the request and is not shown"},
		{400, nil, `{"error":{"message":"a private matter"}}`, model.KindInvalid, "answered 400: a private matter"},
	} {
		for _, provider := range providers {
			m := open(t, provider, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for name, values := range tt.header {
					w.Header()[name] = values
				}
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			}))
			_, err := stream(t.Context(), m, prompt("tell me about my very private matter"))
			asked := strings.Contains(err.Error(), provider+" at http://127.0.0.1:") && strings.Contains(err.Error(), "/v1/")
			if e := failed(t, err); e.Kind != tt.kind || !strings.HasSuffix(e.Message, tt.says) || asked != strings.Contains(tt.says, "answered ") {
				t.Errorf("%s: got %+v for %d %q, want %s: %s", provider, e, tt.status, tt.body, tt.kind, tt.says)
			}
		}
	}
}

func TestComplaintsAreClassified(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   model.Kind
	}{
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.KindOverloaded},
		{0, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.KindOverloaded},
		{0, `{"type":"error","error":{"type":"api_error"}}`, model.KindTransient},
		{0, `{"type":"error","error":{"type":"invalid_request_error"}}`, model.KindInvalid},
		{0, `{"code":"rate_limit_exceeded","message":"x"}`, model.KindOverloaded},
		{0, `{"type":"error","code":"context_length_exceeded","message":"x"}`, model.KindTooLong},
		{0, `{"code":"invalid_prompt"}`, model.KindInvalid},
		{0, `{"code":"bio_policy"}`, model.KindInvalid},
		{0, `{}`, model.KindTransient},
		{0, ``, model.KindTransient},
		{413, ``, model.KindTooLong},
		{402, ``, model.KindQuota},
		{408, ``, model.KindTransient},
		{503, ``, model.KindOverloaded},
		{504, ``, model.KindTransient},
		{400, `{"error":{"message":"input length and max_tokens exceed context limit"}}`, model.KindTooLong},
		{400, `{"error":{"message":"This endpoint's maximum context length is 8192 tokens."}}`, model.KindTooLong},
		{500, `{"error":{"message":"context window"}}`, model.KindTransient},
		{400, `{"error":{"type":"billing_error"}}`, model.KindQuota},
		{429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, model.KindQuota},
		{400, `{"error":null,"message":"x"}`, model.KindInvalid},
	} {
		if got := classify(tt.status, readComplaint([]byte(tt.body))); got != tt.want {
			t.Errorf("%d %s: got %s, want %s", tt.status, tt.body, got, tt.want)
		}
	}
}

func TestWaitsAreRead(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "2", 2 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
		{"Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT", time.Minute},
		{"Retry-After", "Fri, 02 Jan 2026 03:03:05 GMT", 0},
		{"Retry-After", "-3", 0},
		{"Retry-After", "1e300", 24 * time.Hour},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "soon", 0},
		{"X-Other", "1", 0},
	} {
		if got := retryAfter(http.Header{tt.name: {tt.value}}, now); got != tt.want {
			t.Errorf("%s: %s: got %v, want %v", tt.name, tt.value, got, tt.want)
		}
	}
}

func TestMessagesShowNoCredentials(t *testing.T) {
	s := &service{Options: Options{Key: "opensesame"}}
	for _, tt := range []struct{ text, want string }{
		{"Incorrect API key provided: sk-proj-abc***xyz. Find", "Incorrect API key provided: *** Find"},
		{"key opensesame is wrong", "key *** is wrong"},
		{"header Authorization: Bearer abc.def", "header Authorization: ***"},
		{"at https://me:pass@host/x", "at https:***host/x"},
		{"token eyJhbGciOiJIUzI1NiJ9.e30.x in it", "token *** in it"},
		{"a\nb\x1b[31mc", "a b [31mc"},
		{strings.Repeat("word ", 100), strings.Repeat("word ", 60) + "…"},
		{"blob " + strings.Repeat("A", 100), "blob ***"},
	} {
		if got := s.redact(tt.text, nil); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}
