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

// A watch is the life of one call: it ends the call when the service is silent
// for too long, and keeps what is known of the answer. Its methods are called by
// the goroutine of the call.
type watch struct {
	service *service
	ctx     context.Context
	end     context.CancelCauseFunc
	timer   *time.Timer
	limit   time.Duration
	header  http.Header
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
	w := &watch{service: s, ctx: ctx, end: end, limit: s.idle, header: s.headers(req), texts: textsOf(req)}
	w.timer = time.AfterFunc(s.idle, func() { end(errSilent) })
	return w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.end(nil)
}

// hurry shortens the wait for what is left when the reply itself is complete.
func (w *watch) hurry(limit time.Duration) { w.limit = min(w.limit, limit) }

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

// failure decides how a call ended that did not come to its end. err is the error
// of the stream, which is nil for a stream that ends too early.
func (w *watch) failure(ctx context.Context, err error) error {
	name := w.service.name
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if known, ok := errors.AsType[*model.Error](err); ok {
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
	case err != nil && !w.answered:
		return &model.Error{Kind: model.KindTransient, Message: name + " cannot be reached at " + w.asked + ": " + w.service.redact(bare(err), nil)}
	case err != nil:
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

// headers are the service's own and, for a gateway, one for each label of the
// request's metadata. The providers themselves are told labels only where they have
// a place for them.
func (s *service) headers(req *model.Request) http.Header {
	headers := http.Header{}
	if s.name == Anthropic {
		headers.Set("Anthropic-Version", "2023-06-01")
	}
	switch {
	case s.key == "":
	case s.name == Anthropic:
		headers.Set("X-Api-Key", s.key)
	default:
		headers.Set("Authorization", "Bearer "+s.key)
	}
	if s.official {
		return headers
	}
	for key, value := range labels(req.Metadata) {
		headers.Set(metaHeader+strings.ReplaceAll(key, "_", "-"), value)
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
