package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

const (
	maxMessageRunes = 300 // of what a service says about a failure
	maxRetryAfter   = 24 * time.Hour
	minEcho         = 24 // bytes of the request, from anywhere in it, that no message may repeat
	minSecret       = 6  // bytes of a key that is looked for; shorter ones are words
)

// A complaint is what a service says is wrong, in whichever shape.
type complaint struct {
	kind, code, message string
}

// refusal is the error for an answer that is one. It says where it is from: an
// address that is almost right is the address of something else.
func (s *service) refusal(res *http.Response, body []byte, asked string, texts []string) *model.Error {
	c := readComplaint(body)
	e := &model.Error{
		Kind:       classify(res.StatusCode, c),
		Status:     res.StatusCode,
		RetryAfter: retryAfter(res.Header, time.Now()),
	}
	text := strings.ToLower(http.StatusText(res.StatusCode))
	if res.StatusCode < 400 {
		text = "the service is elsewhere; give its base URL"
	}
	if said := s.redact(c.message, texts); said != "" {
		text = said
	}
	if text == "" {
		text = "an error without a text"
	}
	e.Message = fmt.Sprintf("%s at %s answered %d: %s", s.name, asked, res.StatusCode, text)
	return e
}

// broke is the error for a complaint in the middle of a stream.
func (s *service) broke(raw []byte, texts []string) *model.Error {
	c := readComplaint(raw)
	e := &model.Error{Kind: classify(0, c), Message: s.name + " broke off"}
	if e.Kind == model.KindTransient {
		e.Kind = model.KindCut
	}
	if said := s.redact(c.message, texts); said != "" {
		e.Message += ": " + said
	}
	return e
}

// readComplaint reads the shapes in which services and gateways say what is
// wrong: an object or a text under error, the same in a list, or at the top.
func readComplaint(body []byte) complaint {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	type shape struct {
		Type    string          `json:"type"`
		Code    any             `json:"code"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Error   json.RawMessage `json:"error"`
	}
	var top, inner shape
	if json.Unmarshal(body, &top) != nil {
		return complaint{} // a page of a proxy, or nothing
	}
	var text string
	switch {
	case json.Unmarshal(top.Error, &inner) == nil && string(top.Error) != "null":
		return complaint{inner.Type, codeText(inner.Code), inner.Message}
	case json.Unmarshal(top.Error, &text) == nil && text != "":
		return complaint{top.Type, codeText(top.Code), text}
	case top.Message == "":
		_ = json.Unmarshal(top.Detail, &top.Message) // FastAPI's place; else there is no text
	}
	return complaint{top.Type, codeText(top.Code), top.Message}
}

// codeText is a code that is a word; numbers repeat the status.
func codeText(code any) string {
	text, _ := code.(string)
	return text
}

// tooLong are the words in which services say that a conversation does not fit.
var tooLong = lazyregexp.New(`(?i)prompt is too long|maximum context length|context (window|length|limit)|input is too long|exceeds? the (model's )?(maximum )?(context|number of tokens)|reduce the length of the (messages|prompt|input)`)

// classify decides what may be done about a failure. status is zero for one in
// the middle of a stream.
func classify(status int, c complaint) model.Kind {
	words := c.kind + " " + c.code
	has := func(names ...string) bool {
		for _, name := range names {
			if strings.Contains(words, name) {
				return true
			}
		}
		return false
	}
	switch {
	case has("insufficient_quota", "billing"), status == http.StatusPaymentRequired,
		strings.Contains(c.message, "credit balance is too low"):
		return model.KindQuota // waiting does not help; the account's owner must act
	case has("overloaded", "rate_limit", "slow_down"), status == http.StatusTooManyRequests, status == 529,
		status == http.StatusServiceUnavailable:
		return model.KindOverloaded
	case has("context_length_exceeded", "request_too_large"), status == http.StatusRequestEntityTooLarge,
		status < 500 && tooLong().MatchString(c.message):
		return model.KindTooLong
	case has("authentication_error", "permission_error", "invalid_api_key"),
		status == http.StatusUnauthorized, status == http.StatusForbidden:
		return model.KindAuth
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly,
		has("api_error", "server_error", "timeout"):
		return model.KindTransient
	case status == 0 && !has("invalid", "not_found", "policy"):
		return model.KindTransient // a service that broke off without saying whose fault it is
	}
	return model.KindInvalid
}

// retryAfter reads how long a service wants to be left alone, at most a day.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if wait, ok := waitOf(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return wait
	}
	if wait, ok := waitOf(h.Get("Retry-After"), time.Second); ok {
		return wait
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

// waitOf reads a number of units.
func waitOf(text string, unit time.Duration) (wait time.Duration, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) { // which leaves out NaN
		return 0, err == nil
	}
	return time.Duration(min(n, float64(maxRetryAfter/unit)) * float64(unit)), true
}

// What a message may carry a credential in.
var secrets = lazyregexp.New(`(?i)\b(bearer|basic)\s+\S+|\b(sk|pk|rk|gsk|xai|key|token|org|proj)[-_][A-Za-z0-9_*.\-]{6,}|\bAIza[A-Za-z0-9_-]{10,}|\beyJ[A-Za-z0-9_.-]{16,}|//[^/\s@]+@|[A-Za-z0-9+/_=-]{80,}`)

// redact makes what a service says fit to be shown: in one line, of bounded
// length, without credentials. A message that repeats the request is left out.
func (s *service) redact(text string, texts []string) string {
	if echoes(text, texts) {
		return "its message repeats the request and is not shown"
	}
	if len(s.key) >= minSecret {
		text = strings.ReplaceAll(text, s.key, "***")
	}
	text = secrets().ReplaceAllString(text, "***")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return abridge.Chars(text, maxMessageRunes)
}

// echoes reports whether a message repeats anything of texts that is long enough.
func echoes(message string, texts []string) bool {
	pieces := map[string]bool{}
	for i := range max(0, len(message)-minEcho+1) {
		pieces[message[i:i+minEcho]] = true
	}
	for _, asked := range texts {
		for i := range max(0, len(asked)-minEcho+1) {
			if pieces[asked[i:i+minEcho]] {
				return true
			}
		}
	}
	return false
}

// textsOf are the texts of a request that no error may repeat.
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
