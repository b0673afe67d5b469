package provider

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// The providers, as they are named in llm:PROVIDER/MODEL.
const (
	Anthropic  = "anthropic"   // Anthropic Messages
	OpenAI     = "openai"      // OpenAI Responses
	OpenAIChat = "openai-chat" // Chat Completions of OpenAI or of anything compatible
)

// The services themselves.
const (
	officialAnthropic = "https://api.anthropic.com"
	officialOpenAI    = "https://api.openai.com/v1"
)

// defaultIdle is how long a service may be silent. Models think for minutes
// before the first word, but the services send signs of life meanwhile.
const defaultIdle = 5 * time.Minute

// Options of [Open].
type Options struct {
	Provider string // one of the names above
	Model    string // as the provider names it

	// BaseURL is where the service is; empty means the provider's own. It is an
	// http or https URL without credentials. A path of /v1 is assumed for OpenAI's
	// forms if there is none, and may be given or not for Anthropic's.
	BaseURL string

	// Key is the credential. It may be empty if BaseURL is not the provider's own.
	Key string

	// Idle is how long the service may say nothing, before its answer and in it.
	// Zero means 5 minutes. A call that is given up so may be tried again.
	Idle time.Duration

	// HTTPClient sends the requests; nil means one on http.DefaultTransport.
	// Redirects are never followed: the credential goes where it was meant to go.
	HTTPClient *http.Client

	// Log gets what is odd but no error. Nil means none.
	Log *slog.Logger
}

// Open returns a model. It does not ask the service whether the model exists.
func Open(o Options) (model.Model, error) {
	if o.Model == "" {
		return nil, errors.New("open model: no model is named")
	}
	official, variable := officialOpenAI, "OPENAI_API_KEY"
	switch o.Provider {
	case Anthropic:
		official, variable = officialAnthropic, "ANTHROPIC_API_KEY"
	case OpenAI, OpenAIChat:
	default:
		return nil, fmt.Errorf("open model: unknown provider %q; there are %s, %s and %s", o.Provider, Anthropic, OpenAI, OpenAIChat)
	}
	base, err := baseURL(cmp.Or(o.BaseURL, official), o.Provider)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	s := &service{
		name: o.Provider, model: o.Model, base: base, key: o.Key,
		official: isOfficial(base), idle: cmp.Or(o.Idle, defaultIdle), most: maxReplyBytes, log: o.Log,
		client: withoutRedirects(o.HTTPClient),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.official && s.key == "" {
		return nil, &model.Error{Kind: model.KindAuth, Message: "open model: " + o.Provider + " needs a key: set " + variable + ", or say --model-url"}
	}
	switch o.Provider {
	case Anthropic:
		return newAnthropic(s), nil
	case OpenAI:
		return newResponses(s), nil
	}
	return newChat(s), nil
}

// baseURL checks a base and gives it the path below which requests are sent.
func baseURL(text, provider string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the base URL is not a URL") // the error would repeat it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("the base URL is not an absolute http or https URL")
	case u.User != nil:
		return nil, errors.New("the base URL has credentials in it; give them as the key")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the base URL has a query or a fragment")
	}
	path := strings.TrimRight(u.Path, "/")
	if provider == Anthropic {
		path = strings.TrimSuffix(path, "/v1") // requests have it
	} else if path == "" {
		path = "/v1"
	}
	u.Path, u.RawPath = path+"/", ""
	return u, nil
}

// isOfficial reports whether a base is a provider's own service, in any region.
func isOfficial(u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	for _, own := range []string{"api.anthropic.com", "api.openai.com"} {
		if host == own || strings.HasSuffix(host, "."+own) {
			return true
		}
	}
	return false
}

// withoutRedirects is a copy of client that takes a redirect for an answer. The
// header that carries Anthropic's key would be sent along to another host.
func withoutRedirects(client *http.Client) *http.Client {
	own := http.Client{}
	if client != nil {
		own = *client
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
