package localmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// Defaults and limits.
const (
	defaultModel  = "local"
	defaultRunes  = 7
	maxKept       = 64       // requests; more, and the oldest are dropped
	maxKeptBytes  = 16 << 20 // of their bodies
	maxBody       = 32 << 20 // bytes of a request; a larger one is refused with 413
	maxFaultKeys  = 1024     // turns with a count of their faults
	maxQueued     = 1024     // faults that wait for a request
	maxModelBytes = 200      // of a model name in an answer
)

// Options of a [Server]. The zero value is ready to use.
type Options struct {
	// Script answers the prompts for which it has a case. If it is nil, the
	// prompts themselves say the answers.
	Script *Script

	// Pause is the time between two events of a stream.
	Pause time.Duration

	// DeltaRunes is how many characters one event of a text has. 0 means 7.
	DeltaRunes int

	// Inject is called for each model request. It returns how the request fails,
	// or nil. It takes precedence over all other faults. It may be called from
	// several goroutines at a time.
	Inject func(Request) *Fault

	// Log gets one line for each request, without the texts. nil means none.
	Log *slog.Logger
}

// Form is the wire form of a request.
type Form string

// The forms.
const (
	FormAnthropic Form = "anthropic"
	FormResponses Form = "responses"
	FormChat      Form = "chat"
)

// A Request is a request of a client to a model.
type Request struct {
	Index  int // position among the requests to models since the server was made, from 0
	Form   Form
	Path   string
	Header http.Header // without credentials
	Body   []byte

	Model  string
	Prompt string // the last text of the user
	Step   int    // how many times the model has spoken after Prompt
	Stream bool
}

// A Server is an [http.Handler]. Its methods may be called from any goroutine.
// It starts no goroutine.
type Server struct {
	opts Options

	mu     sync.Mutex
	next   int            // index of the next request
	kept   []Request      // the latest requests, oldest first
	bytes  int            // of the bodies in kept
	queued []Fault        // for the next requests
	struck map[string]int // how often a turn has failed, by conversation and turn
}

// New returns a server.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{opts: o, struck: map[string]int{}}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	post := r.Method == http.MethodPost
	switch {
	case get && path == "":
		writeJSON(w, http.StatusOK, object{"status", "ok"})
	case get && strings.HasSuffix(path, "/models"):
		listModels(w, r)
	case get && strings.Contains(path, "/models/"):
		id := path[strings.LastIndex(path, "/models/")+len("/models/"):]
		writeJSON(w, http.StatusOK, modelObject(r, id))
	case post && strings.HasSuffix(path, "/messages/count_tokens"):
		s.countTokens(w, r)
	case post && strings.HasSuffix(path, "/messages"):
		s.answer(w, r, anthropicWire)
	case post && strings.HasSuffix(path, "/responses"):
		s.answer(w, r, responsesWire)
	case post && strings.HasSuffix(path, "/chat/completions"):
		s.answer(w, r, chatWire)
	default:
		writeJSON(w, http.StatusNotFound, object{"error", object{
			"type", "not_found_error", "message", "no " + r.Method + " here", "param", nil, "code", nil}})
	}
}

// Requests returns the requests to models that are still kept, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// Fault makes the next requests fail: f.Times of them, at least one. They fail
// after the requests of earlier calls. At most 1,024 faults wait; more are
// dropped.
func (s *Server) Fault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range max(1, f.Times) {
		if len(s.queued) < maxQueued {
			s.queued = append(s.queued, f)
		}
	}
}

// A wire is one of the wire forms.
type wire struct {
	form Form
	// parse reads a request and checks its history against the rules of the
	// service.
	parse func(body []byte) (*conversation, *failure)
	// reply returns the events of a streamed reply, and the reply without streaming.
	reply func(c *conversation, r reply) (frames []frame, whole object)
	// failed returns the body of a refusal.
	failed func(f *failure) object
	// failedFrame returns a refusal in the middle of a stream.
	failedFrame func(kind FaultKind, sequence int) frame
}

// answer serves a request to a model.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, form wire) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			s.refuse(w, form, tooLarge(form.form))
		}
		return // otherwise the client has left
	}
	c, refusal := form.parse(body)
	if c == nil {
		c = &conversation{}
	}
	req := s.keep(r, form.form, c, body)
	s.opts.Log.Info("request", "index", req.Index, "form", req.Form, "model", abridge.Bytes(req.Model, maxModelBytes),
		"step", req.Step, "stream", req.Stream, "bytes", len(body), "refused", refusal != nil)
	if refusal != nil {
		s.refuse(w, form, refusal)
		return
	}
	s.reply(w, r, form, c, req)
}

// reply answers a valid request, or fails it if a fault says so.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, form wire, c *conversation, req Request) {
	turn, key := s.turn(c)
	fault := s.fault(req, turn.Fault, key)
	if fault != nil {
		if f := fault.failure(form.form); f != nil {
			s.refuse(w, form, f)
			return
		}
		switch fault.Kind {
		case FaultSilent:
			<-r.Context().Done()
			return
		case FaultEmpty:
			turn = Turn{}
		}
	}
	w.Header().Set("Request-Id", "req_"+c.id)
	w.Header().Set("X-Request-Id", "req_"+c.id)
	c.runes = s.opts.DeltaRunes
	if frames, whole := form.reply(c, c.resolve(turn)); c.stream {
		s.stream(r.Context(), w, form, frames, fault)
	} else {
		s.send(r.Context(), w, form, whole, fault)
	}
}

// keep stores a request and sets its index.
func (s *Server) keep(r *http.Request, form Form, c *conversation, body []byte) Request {
	header := r.Header.Clone()
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Proxy-Authorization"} {
		header.Del(name)
	}
	req := Request{
		Form: form, Path: r.URL.Path, Header: header, Body: body,
		Model: c.model, Prompt: c.prompt, Step: c.step, Stream: c.stream,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	req.Index = s.next
	s.next++
	s.kept, s.bytes = append(s.kept, req), s.bytes+len(body)
	for len(s.kept) > 1 && (len(s.kept) > maxKept || s.bytes > maxKeptBytes) {
		s.bytes -= len(s.kept[0].Body)
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	return req
}

// fault returns the fault for a request, or nil. The injector decides first,
// then the queue, then the turn, as long as the turn has not failed often
// enough.
func (s *Server) fault(req Request, ofTurn *Fault, key string) *Fault {
	if s.opts.Inject != nil {
		if f := s.opts.Inject(req); f != nil {
			return f
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queued) > 0 {
		f := s.queued[0]
		s.queued = slices.Delete(s.queued, 0, 1)
		return &f
	}
	switch {
	case ofTurn == nil:
		return nil
	case ofTurn.Times == 0:
		return ofTurn
	case s.struck[key] >= ofTurn.Times:
		delete(s.struck, key) // so that the same prompt can be tried again
		return nil
	}
	if len(s.struck) >= maxFaultKeys {
		clear(s.struck)
	}
	s.struck[key]++
	return ofTurn
}

// refuse answers with an error of the service.
func (s *Server) refuse(w http.ResponseWriter, form wire, f *failure) {
	if f.message == "" {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, "<html><body><h1>502 Bad Gateway</h1></body></html>") // a client that has left gets nothing
		return
	}
	if f.retryAfter > 0 {
		seconds := (f.retryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", fmt.Sprint(int64(seconds)))
		w.Header().Set("Retry-After-Ms", fmt.Sprint(f.retryAfter.Milliseconds()))
	}
	writeJSON(w, f.status, form.failed(f))
}

// send writes a reply without streaming, whole or broken.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, form wire, body object, f *Fault) {
	data := encode(body)
	if f == nil {
		writeBytes(w, http.StatusOK, data)
		return
	}
	switch f.Kind {
	case FaultSlow:
		if sleep.For(ctx, f.pause()) == nil {
			writeBytes(w, http.StatusOK, data)
		}
	case FaultHang:
		<-ctx.Done()
	case FaultMalformed:
		writeBytes(w, http.StatusOK, data[:len(data)/2])
	case FaultErrorEvent, FaultFailedEvent:
		s.refuse(w, form, (&Fault{Kind: FaultServerError}).failure(form.form))
	case FaultCutText, FaultCutArgs, FaultCutEnd:
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		writeBytes(w, http.StatusOK, data[:len(data)/2])
		_ = http.NewResponseController(w).Flush() // so that the half arrives
		panic(http.ErrAbortHandler)               // closes the connection before Content-Length is reached
	default:
		writeBytes(w, http.StatusOK, data)
	}
}

// listModels answers GET /v1/models. The headers of the request say which form.
func listModels(w http.ResponseWriter, r *http.Request) {
	data := []any{modelObject(r, defaultModel)} // every other id is served too
	if anthropicClient(r) {
		writeJSON(w, http.StatusOK, object{"data", data, "has_more", false, "first_id", defaultModel, "last_id", defaultModel})
		return
	}
	// Codex reads its own list in the field models.
	writeJSON(w, http.StatusOK, object{"object", "list", "data", data, "models", []any{}})
}

func modelObject(r *http.Request, id string) object {
	if anthropicClient(r) {
		return object{"type", "model", "id", id, "display_name", id, "created_at", "2026-01-01T00:00:00Z"}
	}
	return object{"id", id, "object", "model", "created", 1767225600, "owned_by", "maestro"}
}

func anthropicClient(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// countTokens answers with the estimate that usage uses.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		s.refuse(w, anthropicWire, tooLarge(FormAnthropic))
		return
	}
	if !json.Valid(body) {
		s.refuse(w, anthropicWire, invalid("The request body is not valid JSON."))
		return
	}
	writeJSON(w, http.StatusOK, object{"input_tokens", tokens(len(bytes.TrimSpace(body)))})
}

func writeJSON(w http.ResponseWriter, status int, body any) { writeBytes(w, status, encode(body)) }

func writeBytes(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that has left gets nothing
}
