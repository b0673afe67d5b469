// Package provider opens models of real services: Anthropic Messages, OpenAI
// Responses, and OpenAI Chat Completions with all services that are compatible with
// it. All three answer a POST with server-sent events.
//
// A reply without an error is one that the service called complete: a stream that
// ends too early is an error. No error carries a credential or a text of the
// request. The package does not retry. A service that sends nothing for too long
// is given up. The package reads nothing from the environment but the proxy, and
// stores nothing at the service: what the service wants to see again is part of
// the history.
package provider

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

// The providers, as llm:PROVIDER/MODEL names them.
const (
	Anthropic  = "anthropic"   // Anthropic Messages
	OpenAI     = "openai"      // OpenAI Responses
	OpenAIChat = "openai-chat" // Chat Completions of OpenAI or of anything compatible
)

// A dialect is the form of one provider's requests and events.
type dialect struct {
	home     string // the provider's own base URL
	variable string // the environment variable of its key
	path     string // of requests, below the base URL
	request  func(*service, *model.Request) object
	event    func() event // an empty event to decode into
}

var dialects = map[string]dialect{
	Anthropic: {"https://api.anthropic.com", "ANTHROPIC_API_KEY", "v1/messages",
		(*service).anthropicRequest, func() event { return new(anthropicEvent) }},
	OpenAI: {"https://api.openai.com/v1", "OPENAI_API_KEY", "responses",
		(*service).responsesRequest, func() event { return new(responsesEvent) }},
	OpenAIChat: {"https://api.openai.com/v1", "OPENAI_API_KEY", "chat/completions",
		(*service).chatRequest, func() event { return new(chatEvent) }},
}

// Options of [Open].
type Options struct {
	Provider string // one of the names above
	Model    string // as the provider names it

	// BaseURL is where the service is; empty means the provider's own. It is an
	// http or https URL without credentials. OpenAI's forms get the path /v1 if the
	// URL has none. For Anthropic /v1 may be given or not.
	BaseURL string

	// Complete says that BaseURL is used without adding /v1.
	Complete bool

	// Key is the credential. It may be empty if BaseURL is not the provider's own.
	Key string
}

// Open returns a model. It does not ask the service whether the model exists.
func Open(o Options) (model.Model, error) {
	if o.Model == "" {
		return nil, errors.New("open model: no model is named")
	}
	d, ok := dialects[o.Provider]
	if !ok {
		return nil, fmt.Errorf("open model: unknown provider %q; there are %s, %s and %s", o.Provider, Anthropic, OpenAI, OpenAIChat)
	}
	base, err := baseURL(cmp.Or(o.BaseURL, d.home), o.Provider, o.Complete)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	host := "." + strings.ToLower(base.Hostname()) // in any region
	official := strings.HasSuffix(host, ".api.anthropic.com") || strings.HasSuffix(host, ".api.openai.com")
	s := &service{dialect: d, Options: o, base: base, official: official, maxReply: maxReplyBytes}
	if official && o.Key == "" {
		return nil, &model.Error{Kind: model.KindAuth, Message: "open model: " + o.Provider + " needs a key: set " + d.variable + ", or say --model-url"}
	}
	// A redirect would carry the credential to another host.
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s, nil
}

// baseURL checks a base URL and gives it the path below which requests are sent.
func baseURL(text, provider string, complete bool) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the base URL is not a URL") // err repeats the text
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("the base URL is not an absolute http or https URL")
	case u.User != nil:
		return nil, errors.New("the base URL has credentials in it; give them as the key")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the base URL has a query or a fragment")
	}
	path := strings.TrimRight(u.Path, "/")
	switch {
	case complete:
	case provider == Anthropic:
		path = strings.TrimSuffix(path, "/v1") // the path of a request begins with v1
	case path == "":
		path = "/v1"
	}
	u.Path, u.RawPath = path+"/", ""
	return u, nil
}
