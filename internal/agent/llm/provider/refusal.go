package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

const (
	maxMessageRunes = 300  // of a service's message about a failure
	maxDetailBytes  = 4096 // of a service's answer that is shown whole
	maxRetryAfter   = 24 * time.Hour
	minEcho         = 24 // bytes of the request, from anywhere in it, that no message may repeat
	minSecret       = 6  // bytes of a key that is hidden; shorter ones are words
)

// A complaint is what a service says about a failure.
type complaint struct {
	Type    string          `json:"type"`
	Code    any             `json:"code"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail"`
	Error   json.RawMessage `json:"error"`
}

// refusal returns the error for an answer that is none of success. It names the
// address: an address that is almost right belongs to something else.
func (c *call) refusal(res *http.Response, body []byte) *model.Error {
	said := readComplaint(body)
	text := c.redact(said.Message, c.texts)
	if text == "" && res.StatusCode < 400 {
		text = "the service is elsewhere; give its base URL"
	}
	text = cmp.Or(text, strings.ToLower(http.StatusText(res.StatusCode)), "an error without a text")
	return &model.Error{
		Kind: classify(res.StatusCode, said), Status: res.StatusCode, RetryAfter: retryAfter(res.Header, time.Now()),
		Message: fmt.Sprintf("%s at %s answered %d: %s", c.Provider, c.address, res.StatusCode, text),
		Said:    text, Details: c.redactJSON(body),
	}
}

// broke returns the error for a complaint in the middle of a stream.
func (c *call) broke(raw []byte) *model.Error {
	said := readComplaint(raw)
	e := &model.Error{Kind: classify(0, said), Message: c.Provider + " broke off"}
	if e.Kind == model.KindTransient {
		e.Kind = model.KindCut
	}
	if text := c.redact(said.Message, c.texts); text != "" {
		e.Message += ": " + text
		e.Said, e.Details = text, c.redactJSON(raw)
	}
	return e
}

// readComplaint reads the shapes in which services and gateways report an error: an
// object or a text under error, the same in a list, or at the top.
func readComplaint(body []byte) complaint {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var said, inner complaint
	if json.Unmarshal(body, &said) != nil {
		return complaint{} // a page of a proxy, or nothing
	}
	var text string
	switch {
	case string(said.Error) != "null" && json.Unmarshal(said.Error, &inner) == nil:
		said = inner
	case json.Unmarshal(said.Error, &text) == nil && text != "":
		said.Message = text
	case said.Message == "":
		_ = json.Unmarshal(said.Detail, &said.Message) // FastAPI puts the text here
	}
	return said
}

// tooLong matches the messages about a conversation that does not fit.
var tooLong = lazyregexp.New(`(?i)prompt is too long|maximum context length|context (window|length|limit)|input is too long|exceeds? the (model's )?(maximum )?(context|number of tokens)|reduce the length of the (messages|prompt|input)`)

// classify says what may be done about a failure. status is zero within a stream.
func classify(status int, c complaint) model.Kind {
	code, _ := c.Code.(string) // a number repeats the status
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(c.Type+" "+code, word) })
	}
	is := func(statuses ...int) bool { return slices.Contains(statuses, status) }
	switch {
	case has("insufficient_quota", "billing"), is(http.StatusPaymentRequired),
		strings.Contains(c.Message, "credit balance is too low"):
		return model.KindQuota
	case has("overloaded", "rate_limit", "slow_down"), is(http.StatusTooManyRequests, 529, http.StatusServiceUnavailable):
		return model.KindOverloaded
	case has("context_length_exceeded", "request_too_large"), is(http.StatusRequestEntityTooLarge),
		status < 500 && tooLong().MatchString(c.Message):
		return model.KindTooLong
	case has("authentication_error", "permission_error", "invalid_api_key"), is(http.StatusUnauthorized, http.StatusForbidden):
		return model.KindAuth
	case status >= 500, is(http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly),
		has("api_error", "server_error", "timeout"):
		return model.KindTransient
	case status == 0 && !has("invalid", "not_found", "policy"):
		return model.KindTransient // the service broke off without saying whose fault it is
	}
	return model.KindInvalid
}

// retryAfter returns how long a service wants to get no request, at most a day.
func retryAfter(h http.Header, now time.Time) time.Duration {
	seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if ms, bad := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); bad == nil {
		seconds, err = ms/1000, nil
	}
	if at, bad := http.ParseTime(h.Get("Retry-After")); err != nil && bad == nil {
		seconds, err = at.Sub(now).Seconds(), nil
	}
	if err != nil || !(seconds > 0) { // NaN is not
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
}

// secrets matches what may be a credential in a message.
var secrets = lazyregexp.New(`(?i)\b(bearer|basic)\s+\S+|\b(sk|pk|rk|gsk|xai|key|token|org|proj)[-_][A-Za-z0-9_*.\-]{6,}|\bAIza[A-Za-z0-9_-]{10,}|\beyJ[A-Za-z0-9_.-]{16,}|//[^/\s@]+@|[A-Za-z0-9+/_=-]{80,}`)

// redact makes a service's message fit to be shown: one line of bounded length
// without credentials. A message that repeats the request is left out.
func (s *service) redact(text string, texts []string) string {
	if echoes(text, texts) {
		return "its message repeats the request and is not shown"
	}
	if len(s.Key) >= minSecret {
		text = strings.ReplaceAll(text, s.Key, "***")
	}
	text = secrets().ReplaceAllString(text, "***")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return abridge.Chars(text, maxMessageRunes)
}

// redactJSON redacts each text in an answer. It returns nil for an answer that is not
// JSON or is long.
func (c *call) redactJSON(answer []byte) json.RawMessage {
	var value any
	d := json.NewDecoder(bytes.NewReader(answer))
	d.UseNumber()
	if len(answer) > maxDetailBytes || d.Decode(&value) != nil {
		return nil
	}
	text, _ := json.Marshal(c.redactValue(value)) // decoded JSON can be encoded
	return text
}

func (c *call) redactValue(value any) any {
	switch v := value.(type) {
	case string:
		return c.redact(v, c.texts)
	case []any:
		for i := range v {
			v[i] = c.redactValue(v[i])
		}
	case map[string]any:
		kept := map[string]any{}
		for key, member := range v {
			kept[c.redact(key, c.texts)] = c.redactValue(member)
		}
		return kept
	}
	return value
}

// echoes reports whether a message repeats minEcho bytes of one of texts.
func echoes(message string, texts []string) bool {
	pieces := map[string]bool{}
	for i := range max(0, len(message)-minEcho+1) {
		pieces[message[i:i+minEcho]] = true
	}
	for _, text := range texts {
		for i := range max(0, len(text)-minEcho+1) {
			if pieces[text[i:i+minEcho]] {
				return true
			}
		}
	}
	return false
}

// textsOf returns the texts of a request that no error may repeat.
func textsOf(req *model.Request) []string {
	texts := []string{req.System}
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			switch {
			case p.Text != nil:
				texts = append(texts, *p.Text)
			case p.Result != nil:
				texts = append(texts, p.Result.Text)
			case p.Call != nil:
				texts = append(texts, string(p.Call.Args))
			case p.Thinking != nil:
				texts = append(texts, p.Thinking.Text)
			}
		}
	}
	return texts
}
