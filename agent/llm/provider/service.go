package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// Bounds on what is read and sent.
const (
	maxErrorBytes = 64 << 10 // of the body of an error
	maxReplyBytes = 64 << 20 // of one reply on the wire
	maxMetaValue  = 512      // bytes of a label, as OpenAI has it
	maxMetaKey    = 64
	maxMetaCount  = 16

	metaHeader = "X-Maestro-Metadata-"
)

// Why a watch ended a call.
var (
	errSilent   = errors.New("silent")
	errTooLarge = errors.New("too large")
)

// A service is where a model is and how it is reached. It does not change.
type service struct {
	name, model string
	base        *url.URL
	key         string
	official    bool
	idle        time.Duration
	most        int // bytes of a reply
	client      *http.Client
	log         *slog.Logger
}

// next sends a request. It is the last step of a middleware of either library.
type next = func(*http.Request) (*http.Response, error)

// A watch is the life of one call: it ends the call when the service is silent
// for too long, and keeps what the libraries do not tell. Its methods are called
// by the goroutine of the call.
type watch struct {
	service *service
	ctx     context.Context
	end     context.CancelCauseFunc
	timer   *time.Timer
	limit   time.Duration
	texts   []string // of the request, which errors must not repeat

	asked    string // where the request went, fit to be shown
	answered bool   // the service accepted the request
	page     bool   // with something for a browser
	broken   error  // what ended the body before its end
	size     int    // of the body so far
}

// newWatch begins a call. It ends with stop.
func (s *service) newWatch(ctx context.Context, req *model.Request) *watch {
	ctx, end := context.WithCancelCause(ctx)
	w := &watch{service: s, ctx: ctx, end: end, limit: s.idle, texts: textsOf(req)}
	w.timer = time.AfterFunc(s.idle, func() { end(errSilent) })
	return w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.end(nil)
}

// hurry shortens the wait for what is left when the reply itself is complete.
func (w *watch) hurry(limit time.Duration) { w.limit = min(w.limit, limit) }

// middleware is what stands between a library and the network. Every refusal
// becomes a *model.Error here, because the libraries lose the status of those
// whose bodies they cannot read.
func (w *watch) middleware(r *http.Request, send next) (*http.Response, error) {
	w.asked = w.service.redact((&url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.Path}).String(), nil)
	res, err := send(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		w.answered, w.page = true, strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
		res.Body = &watchedBody{res.Body, w}
		return res, nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes)) // what is missing is not needed
	_ = res.Body.Close()
	return nil, w.service.refusal(res, body, w.asked, w.texts)
}

// A watchedBody is a body that is waited for only so long, whenever it is read:
// every byte is a sign of life.
type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	w := b.watch
	w.timer.Reset(w.limit)
	n, err := b.ReadCloser.Read(p)
	w.timer.Stop() // what the listener takes is not the service's silence
	w.size += n
	if w.size > w.service.most {
		err = errTooLarge
	}
	if err != nil && err != io.EOF {
		w.broken = err
	}
	return n, err
}

// failure decides how a call ended that did not come to its end. libraryErr is
// what the library says, which is nothing for a stream that ends too early.
func (w *watch) failure(ctx context.Context, libraryErr error) error {
	name := w.service.name
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if known, ok := errors.AsType[*model.Error](libraryErr); ok {
		return known
	}
	interrupted := model.KindTransient
	if w.answered {
		interrupted = model.KindCut
	}
	switch {
	case errors.Is(context.Cause(w.ctx), errSilent):
		return &model.Error{Kind: interrupted, Message: fmt.Sprintf("%s said nothing for %v", name, w.limit)}
	case errors.Is(w.broken, errTooLarge):
		return &model.Error{Kind: model.KindMalformed, Message: fmt.Sprintf("%s sent a reply of more than %d bytes", name, w.service.most)}
	case w.page:
		return &model.Error{Kind: model.KindMalformed, Message: name + " at " + w.asked + " answered with a page: is that the address of a model?"}
	case w.broken != nil:
		return &model.Error{Kind: model.KindCut, Message: name + ": the connection broke: " + w.service.redact(bare(w.broken), nil)}
	case libraryErr != nil && !w.answered:
		return &model.Error{Kind: model.KindTransient, Message: name + " cannot be reached at " + w.asked + ": " + w.service.redact(bare(libraryErr), nil)}
	case libraryErr != nil:
		w.service.log.Debug("a stream is not understood", "provider", name) // the error would show what was said
		return &model.Error{Kind: model.KindMalformed, Message: name + " sent an event that is not understood"}
	}
	return &model.Error{Kind: model.KindCut, Message: name + ": the answer ended before it was complete"}
}

// cut is a reply that did not come to its end: it has no reason to stop.
func cut(r model.Reply) model.Reply {
	r.Stop = ""
	return r
}

// bare is the text of an error without the URL that net/http puts around it.
func bare(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}

// headers are what a gateway is told about a request: each label of its metadata.
// The providers themselves are told only where they have a place for it.
func (s *service) headers(req *model.Request) map[string]string {
	if s.official {
		return nil
	}
	headers := map[string]string{}
	for key, value := range labels(req.Metadata) {
		headers[metaHeader+http.CanonicalHeaderKey(strings.ReplaceAll(key, "_", "-"))] = value
	}
	return headers
}

// labels are those entries of a request's metadata that fit everywhere: at most
// 16, by name, with plain keys and printable values.
func labels(metadata map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		value := metadata[key]
		fits := key != "" && len(key) <= maxMetaKey && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" &&
			value != "" && len(value) <= maxMetaValue && strings.IndexFunc(value, unprintable) < 0
		if fits && len(out) < maxMetaCount {
			out[key] = value
		}
	}
	return out
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// argsOf returns a call's arguments as they are to be kept: an object. ok is false
// if they are none.
func argsOf(text string) (args json.RawMessage, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || text == "null" {
		return json.RawMessage("{}"), true
	}
	return json.RawMessage(text), strings.HasPrefix(text, "{") && json.Valid([]byte(text))
}

// argsSent returns the arguments of a call in a history, which may be from
// anywhere.
func argsSent(args json.RawMessage) string {
	if own, ok := argsOf(string(args)); ok {
		return string(own)
	}
	return "{}"
}

// schemaOf is a tool's schema as the services want it: that of an object which says
// so, and says what it has. With another they refuse the whole request.
func schemaOf(t model.Tool) json.RawMessage {
	var schema map[string]json.RawMessage
	if json.Unmarshal(t.Schema, &schema) != nil || schema == nil {
		schema = map[string]json.RawMessage{}
	}
	if string(schema["type"]) == `"object"` && schema["properties"] != nil {
		return t.Schema
	}
	schema["type"] = json.RawMessage(`"object"`)
	if schema["properties"] == nil {
		schema["properties"] = json.RawMessage("{}")
	}
	whole, _ := json.Marshal(schema) // what was decoded can be encoded
	return whole
}

// ours reports whether a thinking is from this provider and can be sent back.
func (s *service) ours(t *model.Thinking) bool {
	return t != nil && t.Provider == s.name && len(t.Opaque) > 0
}
