package localmodel

import (
	"bytes"
	"cmp"
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

// Defaults of Options.
const (
	defaultModel  = "local"
	defaultRunes  = 7
	defaultKept   = 64
	defaultBytes  = 16 << 20
	defaultMax    = 32 << 20
	maxFaultKeys  = 1024 // turns whose faults are counted
	maxQueued     = 1024 // faults waiting for a request
	maxModelBytes = 200  // of a model's name that is said back
)

// Options of a [Server]. The zero value is ready.
type Options struct {
	// Script decides what is answered to the prompts it has cases for. Nil means
	// that prompts do.
	Script *Script

	// Models are the ids that are listed; every id is served. Nil means "local".
	Models []string

	// Pause is the time between two events of a stream. Zero means none.
	Pause time.Duration

	// DeltaRunes is how many characters of a text come in one event. Zero means 7.
	DeltaRunes int

	// KeepRequests and KeepBytes bound what [Server.Requests] remembers; beyond
	// either the oldest request is forgotten. Zero means 64 and 16 MiB.
	KeepRequests int
	KeepBytes    int

	// MaxBody bounds a request in bytes; a longer one is refused with 413. Zero
	// means 32 MiB.
	MaxBody int64

	// Inject is asked about each model request and returns how it is to fail, or
	// nil. It takes precedence over every other fault and may be called from
	// several goroutines at a time.
	Inject func(Request) *Fault

	// Log gets a line for each request, without what was said. Nil means none.
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

// A Request is what a client asked of a model.
type Request struct {
	Index  int // of the requests to models since the server was made, from 0
	Form   Form
	Path   string
	Header http.Header // without credentials
	Body   []byte

	Model  string
	Prompt string // the last thing that the user said
	Step   int    // how often the model has spoken since
	Stream bool
}

// A Server is an [http.Handler]. Its methods may be called from any goroutine. It
// has none of its own.
type Server struct {
	opts Options

	mu     sync.Mutex
	next   int            // index of the next request
	kept   []Request      // the latest, oldest first
	bytes  int            // of their bodies
	queued []Fault        // of the next requests
	struck map[string]int // faults that a turn had so far, by conversation and turn
}

// New returns a server.
func New(o Options) *Server {
	if len(o.Models) == 0 {
		o.Models = []string{defaultModel}
	}
	o.DeltaRunes = cmp.Or(o.DeltaRunes, defaultRunes)
	o.KeepRequests = cmp.Or(o.KeepRequests, defaultKept)
	o.KeepBytes = cmp.Or(o.KeepBytes, defaultBytes)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMax)
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
		s.listModels(w, r)
	case get && strings.Contains(path, "/models/"):
		id := path[strings.LastIndex(path, "/models/")+len("/models/"):]
		writeJSON(w, http.StatusOK, modelObject(r, id))
	case post && strings.HasSuffix(path, "/messages/count_tokens"):
		s.countTokens(w, r)
	case post && strings.HasSuffix(path, "/messages"):
		s.answer(w, r, anthropicForm{s.opts.DeltaRunes})
	case post && strings.HasSuffix(path, "/responses"):
		s.answer(w, r, responsesForm{s.opts.DeltaRunes})
	case post && strings.HasSuffix(path, "/chat/completions"):
		s.answer(w, r, chatForm{s.opts.DeltaRunes})
	default:
		writeJSON(w, http.StatusNotFound, object{"error", object{
			"type", "not_found_error", "message", "no " + r.Method + " here", "param", nil, "code", nil}})
	}
}

// Requests returns what models were asked, oldest first, as far as it is kept.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// Fault makes the next requests fail, as many as f.Times says and at least one,
// after those of earlier calls. Requests beyond 1,024 that wait to fail are
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

// A wire is one of the forms.
type wire interface {
	form() Form
	// parse reads a request and holds its history to the rules of the service.
	parse(body []byte) (*conversation, *failure)
	// frames are the events of a streamed reply.
	frames(c *conversation, r reply) []frame
	// whole is a reply that is not streamed.
	whole(c *conversation, r reply) any
	// failed is the status and body of a refusal.
	failed(f *failure) (status int, body any)
	// failedFrame is a refusal in the middle of a stream.
	failedFrame(kind FaultKind, sequence int) frame
}

// answer serves a request to a model.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, form wire) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.opts.MaxBody))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			s.refuse(w, form, tooLargeFailure())
		}
		return // else the client has left
	}
	c, refusal := form.parse(body)
	if c == nil {
		c = &conversation{}
	}
	req := s.keep(r, form.form(), c, body)
	s.opts.Log.Info("request", "index", req.Index, "form", req.Form, "model", abridge.Bytes(req.Model, maxModelBytes),
		"step", req.Step, "stream", req.Stream, "bytes", len(body), "refused", refusal != nil)
	if refusal != nil {
		s.refuse(w, form, refusal)
		return
	}
	s.reply(w, r, form, c, req)
}

// reply answers a request that is in order, or fails as it was told to.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, form wire, c *conversation, req Request) {
	turn, key := s.turn(c)
	fault := s.fault(req, turn.Fault, key)
	if fault != nil {
		if f := fault.failure(form.form()); f != nil {
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
	if said := c.resolve(turn); c.stream {
		s.stream(r.Context(), w, form, form.frames(c, said), fault)
	} else {
		s.send(r.Context(), w, form, form.whole(c, said), fault)
	}
}

// keep remembers a request and gives it its index.
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
	for len(s.kept) > 1 && (len(s.kept) > s.opts.KeepRequests || s.bytes > s.opts.KeepBytes) {
		s.bytes -= len(s.kept[0].Body)
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	return req
}

// fault decides whether a request fails: as the injector says, as the queue
// says, or as its turn says and has not yet done often enough.
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
		delete(s.struck, key) // so that the same prompt may be tried again
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
	if f.kind == FaultHTML {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, "<html><body><h1>502 Bad Gateway</h1></body></html>") // a client that has left gets nothing
		return
	}
	status, body := form.failed(f)
	if f.retryAfter > 0 {
		seconds := (f.retryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", fmt.Sprint(int64(seconds)))
		w.Header().Set("Retry-After-Ms", fmt.Sprint(f.retryAfter.Milliseconds()))
	}
	writeJSON(w, status, body)
}

// send writes a reply that is not streamed, whole or broken.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, form wire, body any, f *Fault) {
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
		s.refuse(w, form, (&Fault{Kind: FaultServerError}).failure(form.form()))
	case FaultCutText, FaultCutArgs, FaultCutEnd:
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		writeBytes(w, http.StatusOK, data[:len(data)/2])
		_ = http.NewResponseController(w).Flush() // so that the half arrives
		panic(http.ErrAbortHandler)               // the connection closes before the length is reached
	default:
		writeBytes(w, http.StatusOK, data)
	}
}

// listModels answers GET /v1/models in the form of the service whose header is
// sent.
func (s *Server) listModels(w http.ResponseWriter, r *http.Request) {
	data := make([]any, len(s.opts.Models))
	for i, id := range s.opts.Models {
		data[i] = modelObject(r, id)
	}
	if anthropicClient(r) {
		writeJSON(w, http.StatusOK, object{"data", data, "has_more", false,
			"first_id", s.opts.Models[0], "last_id", s.opts.Models[len(s.opts.Models)-1]})
		return
	}
	// Codex reads a list of its own kind under models.
	writeJSON(w, http.StatusOK, object{"object", "list", "data", data, "models", []any{}})
}

func modelObject(r *http.Request, id string) object {
	if anthropicClient(r) {
		return object{"type", "model", "id", id, "display_name", id, "created_at", "2026-01-01T00:00:00Z"}
	}
	return object{"id", id, "object", "model", "created", 1767225600, "owned_by", "maestro"}
}

func anthropicClient(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// countTokens answers with the estimate that usage counts by.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.opts.MaxBody))
	if err != nil {
		s.refuse(w, anthropicForm{}, tooLargeFailure())
		return
	}
	if !json.Valid(body) {
		s.refuse(w, anthropicForm{}, invalid("The request body is not valid JSON."))
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
