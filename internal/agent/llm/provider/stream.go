package provider

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

const (
	maxErrorBytes = 64 << 10 // of the body of an error
	maxReplyBytes = 64 << 20 // of one reply on the wire
	maxLabels     = 16       // of a request, the limit of OpenAI

	// maxLineBytes bounds a line. The last event of a response repeats the whole reply.
	maxLineBytes = 32 << 20

	// maxIdle is how long a service may send nothing, before its answer and in it.
	// Models think for minutes before the first word, but the services send
	// keepalives meanwhile.
	maxIdle = 5 * time.Minute

	// lingering is how long a complete message waits for its usage.
	lingering = 10 * time.Second
)

var (
	errSilent   = errors.New("silent")
	errTooLarge = errors.New("too large")
)

// An object is a JSON object of a request.
type object = map[string]any

// given returns an object without its empty texts, numbers, lists and objects.
func given(o object) object {
	maps.DeleteFunc(o, func(_ string, value any) bool {
		v := reflect.ValueOf(value)
		switch v.Kind() {
		case reflect.String, reflect.Slice, reflect.Map:
			return v.Len() == 0
		case reflect.Int64:
			return v.Int() == 0
		}
		return false
	})
	return o
}

// A form is how a service takes texts and images of the user.
type form struct {
	text  string // the type of a text
	image func(model.Image) object
}

// content returns a text, unless it is blank, and images.
func (f form) content(text string, images ...model.Image) (content []object) {
	if strings.TrimSpace(text) != "" {
		content = append(content, object{"type": f.text, "text": text})
	}
	for _, i := range images {
		content = append(content, f.image(i))
	}
	return content
}

// user returns the results of calls in a message of the user, and the rest of it.
func (f form) user(parts []model.Part, result func(*model.CallResult) object) (results, rest []object) {
	for _, p := range parts {
		switch {
		case p.Result != nil:
			results = append(results, result(p.Result))
		case p.Image != nil:
			rest = append(rest, f.image(*p.Image))
		case p.Text != nil:
			rest = append(rest, f.content(*p.Text)...)
		}
	}
	return results, rest
}

// A service is a [model.Model] with its address and credential.
type service struct {
	dialect
	Options
	base     *url.URL
	official bool // base is the provider's own
	maxReply int  // bytes
	client   http.Client

	noSummaries bool // the service refused summaries of reasoning; they are not requested again
}

// Stream implements [model.Model]. OpenAI refuses summaries of reasoning to
// organizations that it has not verified; Stream then sends the request again
// without them.
func (s *service) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	reply, err := s.stream(ctx, req, say)
	if e, ok := errors.AsType[*model.Error](err); ok && s.Provider == OpenAI && !s.noSummaries &&
		e.Kind == model.KindInvalid && strings.Contains(e.Message, "reasoning summar") {
		s.noSummaries = true
		return s.stream(ctx, req, say)
	}
	return reply, err
}

func (s *service) stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	callCtx, end := context.WithCancelCause(ctx)
	c := &call{
		service: s, ctx: callCtx, end: end, limit: maxIdle, req: req, texts: textsOf(req),
		timer: time.AfterFunc(maxIdle, func() { end(errSilent) }),
	}
	defer c.close()
	r := &reply{call: c, say: say}
	err := c.send(s.request(s, req))
	for err == nil && !r.done {
		e := s.event()
		if err = c.next(e); err != nil {
			break
		}
		if err := e.apply(r); err != nil {
			return r.soFar(), err
		}
		if r.complete {
			c.limit = min(c.limit, lingering)
		}
	}
	if !r.complete {
		return r.soFar(), c.failure(ctx, err)
	}
	return r.finish()
}

// A call is one request with its answer. Only the goroutine of Stream uses it.
type call struct {
	*service
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer   // ends the call when the service sends nothing for too long
	limit time.Duration // of the timer
	req   *model.Request
	texts []string // of the request, which errors must not repeat

	address  string // of the request, fit to be shown
	answered bool   // the service accepted the request
	page     bool   // with HTML
	body     io.ReadCloser
	size     int   // of the body so far
	broken   error // ended the body early
	lines    *bufio.Scanner
}

func (c *call) close() {
	if c.body != nil {
		_ = c.body.Close() // the rest is not wanted
	}
	c.timer.Stop()
	c.end(nil)
}

func (c *call) send(request object) error {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if e.Encode(request) != nil { // the error may show the history
		return &model.Error{Kind: model.KindInvalid, Message: c.Provider + ": the request is not JSON"}
	}
	u := *c.base
	u.Path += c.path
	c.address = c.redact((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), nil)
	r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, u.String(), &body)
	if err != nil {
		return err
	}
	r.Header = c.headers(c.req)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "maestro")
	res, err := c.client.Do(r)
	if err != nil {
		return err
	}
	c.body = res.Body
	if res.StatusCode < 200 || res.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes)) // a missing rest does not matter
		return c.refusal(res, text)
	}
	c.answered, c.page = true, strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
	c.lines = bufio.NewScanner(c)
	c.lines.Buffer(nil, maxLineBytes)
	return nil
}

// Read reads from the body. Every read may take c.limit.
func (c *call) Read(p []byte) (int, error) {
	c.timer.Reset(c.limit)
	n, err := c.body.Read(p)
	c.timer.Stop() // the time that the listener takes does not count
	c.size += n
	if c.size > c.maxReply {
		err = errTooLarge
	}
	if err != nil && err != io.EOF {
		c.broken = err
	}
	return n, err
}

// next decodes the data of the next server-sent event into e. Its name is not read.
// next returns io.EOF at the end of the stream and at [DONE]. An event that carries
// an error is an error of the stream.
func (c *call) next(e event) error {
	var data []byte
	for len(data) == 0 || len(c.lines.Bytes()) > 0 {
		if !c.lines.Scan() {
			return cmp.Or(c.lines.Err(), io.EOF)
		}
		if value, ok := bytes.CutPrefix(c.lines.Bytes(), []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
	}
	if bytes.HasPrefix(data, []byte("[DONE]")) {
		return io.EOF
	}
	if bytes.Contains(data, []byte(`"error"`)) {
		var failed struct {
			Type  string          `json:"type"`
			Error json.RawMessage `json:"error"`
		}
		if decode(data, &failed) == nil && (failed.Type == "error" || len(failed.Error) > 0 && string(failed.Error) != "null") {
			return c.broke(data)
		}
	}
	return decode(data, e)
}

// decode reads JSON into v. Compatible services give some members other types;
// decode leaves those empty.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}

// failure returns the error of a call that ended before the message was complete.
// err is the error of the stream, io.EOF for one that ends too early.
func (c *call) failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if known, ok := errors.AsType[*model.Error](err); ok {
		return known
	}
	kind, text := model.KindCut, ": the answer ended before it was complete"
	switch {
	case errors.Is(context.Cause(c.ctx), errSilent):
		if !c.answered {
			kind = model.KindTransient
		}
		text = fmt.Sprintf(" said nothing for %v", c.limit)
	case errors.Is(c.broken, errTooLarge):
		kind, text = model.KindMalformed, fmt.Sprintf(" sent a reply of more than %d bytes", c.maxReply)
	case c.page:
		kind, text = model.KindMalformed, " at "+c.address+" answered with a page: is that the address of a model?"
	case c.broken != nil:
		text = ": the connection broke: " + c.redact(withoutURL(c.broken), nil)
	case !c.answered:
		kind, text = model.KindTransient, " cannot be reached at "+c.address+": "+c.redact(withoutURL(err), nil)
	case err != io.EOF: // err may show the reply
		kind, text = model.KindMalformed, " sent an event that is not understood"
	}
	return &model.Error{Kind: kind, Message: c.Provider + text}
}

// withoutURL is the text of an error without the URL that net/http adds.
func withoutURL(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}

// headers returns the headers of a request. A gateway also gets one header for
// each label. The providers get labels only where their form has a member for them.
func (s *service) headers(req *model.Request) http.Header {
	headers := http.Header{}
	key, value := "Authorization", "Bearer "+s.Key
	if s.Provider == Anthropic {
		headers.Set("Anthropic-Version", "2023-06-01")
		key, value = "X-Api-Key", s.Key
	}
	if s.Key != "" {
		headers.Set(key, value)
	}
	if !s.official {
		for key, value := range labels(req.Metadata) {
			headers.Set("X-Maestro-Metadata-"+strings.ReplaceAll(key, "_", "-"), value)
		}
	}
	return headers
}

var (
	labelName  = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	labelValue = lazyregexp.New(`^[ -~]{1,512}$`)
)

// labels returns the entries of metadata that every service takes: plain keys with
// printable values, the first 16 in order of their keys.
func labels(metadata map[string]string) map[string]string {
	fit := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if len(fit) < maxLabels && labelName().MatchString(key) && labelValue().MatchString(metadata[key]) {
			fit[key] = metadata[key]
		}
	}
	return fit
}

// schemaOf returns a tool's schema as the services want it: the schema of an object
// that has "type" and "properties". They refuse a request with any other.
func schemaOf(t model.Tool) json.RawMessage {
	var given map[string]json.RawMessage
	if json.Unmarshal(t.Schema, &given) == nil && string(given["type"]) == `"object"` && given["properties"] != nil {
		return t.Schema
	}
	schema := map[string]json.RawMessage{"properties": json.RawMessage("{}")}
	maps.Copy(schema, given)
	schema["type"] = json.RawMessage(`"object"`)
	whole, _ := json.Marshal(schema) // decoded JSON can be encoded
	return whole
}

// thought reports whether a part is thinking of this provider that can be sent back.
func (s *service) thought(p model.Part) bool {
	return p.Thinking != nil && p.Thinking.Provider == s.Provider && len(p.Thinking.Opaque) > 0
}
