package localmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Defaults and limits.
const (
	defaultModel = "local"
	defaultRunes = 7
	maxKept      = 64       // requests; more, and the oldest are dropped
	maxKeptBytes = 16 << 20 // of their bodies
	maxBody      = 32 << 20 // bytes of a request; a larger one is refused with 413
	maxFaultKeys = 1024     // turns with a count of their faults
)

// Options of a [Server]. The zero value is ready to use.
type Options struct {
	// Script answers the prompts for which it has a case. The other prompts say the
	// answers themselves.
	Script []Case

	// Pause is the time between two events of a stream.
	Pause time.Duration

	// DeltaRunes is how many characters one event of a text has. 0 means 7.
	DeltaRunes int

	// Inject is called for each request. It returns how the request fails; the zero
	// value leaves that to the turn. It may be called from several goroutines at a time.
	Inject func(Request) Fault
}

// A Request is a request of a client to a model.
type Request struct {
	Path   string
	Header http.Header // without credentials
	Body   []byte
	Prompt string // the last text of the user
	Step   int    // how many times the model has spoken after Prompt
}

// A Server is an [http.Handler]. Its methods may be called from any goroutine.
// It starts no goroutine.
type Server struct {
	opts Options

	mu     sync.Mutex
	kept   []Request      // the latest requests, oldest first
	bytes  int            // of the bodies in kept
	struck map[string]int // how often a turn has failed, by prompt and turn
}

// New returns a server.
func New(o Options) *Server {
	if o.Inject == nil {
		o.Inject = func(Request) Fault { return Fault{} }
	}
	return &Server{opts: o, struck: map[string]int{}}
}

// Requests returns the requests to models that are still kept, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// A wire is one of the wire forms.
type wire struct {
	path    string // the end of the path of requests
	service int    // the index of its words in refusals

	// read adds the entries of a request, and checks them against the rules of the
	// service.
	read func(c *conversation) *failure

	// reply returns the events of a reply.
	reply func(c *conversation, r reply) []frame

	// failed returns the body of a refusal.
	failed func(f failure) object

	// failedFrame returns a refusal in the middle of a stream, after so many events.
	failedFrame func(kind FaultKind, sequence int) frame
}

var wires = []wire{
	{"/messages", 0, readAnthropic, replyAnthropic, anthropicError, anthropicFrame},
	{"/responses", 1, readResponses, replyResponses, openaiError, responsesFrame},
	{"/chat/completions", 1, readChat, replyChat, openaiError, chatFrame},
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := slices.IndexFunc(wires, func(form wire) bool { return strings.HasSuffix(r.URL.Path, form.path) })
	if at < 0 || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	form := wires[at]
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			form.refuse(w, failure{status: http.StatusRequestEntityTooLarge, message: "Request exceeds the maximum size"})
		}
		return // otherwise the client has left
	}
	c, refusal := newConversation(body, form)
	fault := s.opts.Inject(s.keep(r, c, body))
	if refusal != nil {
		form.refuse(w, *refusal)
		return
	}
	turn := s.turn(c)
	if fault.Kind == "" {
		fault = s.strikes(turn.Fault, fmt.Sprint(c.step, c.prompt))
	}
	refused, fails := refusals[fault.Kind]
	switch {
	case fails:
		form.refuse(w, fault.delayed(refused[form.service]))
		return
	case fault.Kind == FaultSilent:
		<-r.Context().Done()
		return
	case fault.Kind == FaultEmpty:
		turn = Turn{}
	}
	c.runes = s.opts.DeltaRunes
	s.stream(r.Context(), w, fault.strike(form.reply(c, c.resolve(turn)), form), fault)
}

// keep stores a request.
func (s *Server) keep(r *http.Request, c *conversation, body []byte) Request {
	header := r.Header.Clone()
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Proxy-Authorization"} {
		header.Del(name)
	}
	req := Request{Path: r.URL.Path, Header: header, Body: body, Prompt: c.prompt, Step: c.step}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.bytes = append(s.kept, req), s.bytes+len(body)
	for len(s.kept) > 1 && (len(s.kept) > maxKept || s.bytes > maxKeptBytes) {
		s.bytes -= len(s.kept[0].Body)
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	return req
}

// strikes returns the fault of a turn, unless the turn has failed often enough.
func (s *Server) strikes(f *Fault, key string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case f == nil:
		return Fault{}
	case f.Times == 0:
		return *f
	case s.struck[key] >= f.Times:
		delete(s.struck, key) // so that the same prompt can be tried again
		return Fault{}
	case len(s.struck) >= maxFaultKeys:
		clear(s.struck)
	}
	s.struck[key]++
	return *f
}

// refuse answers with an error of the service.
func (form wire) refuse(w http.ResponseWriter, f failure) {
	body := []byte("<html><body><h1>502 Bad Gateway</h1></body></html>")
	w.Header().Set("Content-Type", "text/html")
	if f.message != "" {
		body = encode(form.failed(f))
		w.Header().Set("Content-Type", "application/json")
	}
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int64((f.retryAfter+time.Second-1)/time.Second)))
		w.Header().Set("Retry-After-Ms", fmt.Sprint(f.retryAfter.Milliseconds()))
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(body) // a client that has left gets nothing
}

// An object is a JSON object.
type object = map[string]any

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // all encoded values were made here
	}
	return text
}
