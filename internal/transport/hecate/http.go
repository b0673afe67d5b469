package hecate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

const (
	maxPage      = 500 // entries of a list
	allRunsPage  = 200 // by default, of all runs
	maxPageBytes = 4 << 20
)

// Routes adds the routes of the protocol to mux.
func (v *Server) Routes(mux *http.ServeMux) {
	const task = root + "/tasks/{task}"
	handle := func(path string, methods httperr.Methods) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { methods.Serve(w, r, WriteError) })
	}
	gets := func(path string, do endpoint) { handle(path, httperr.Methods{"GET": v.endpoint(do)}) }
	posts := func(path string, do endpoint) { handle(path, httperr.Methods{"POST": v.endpoint(do)}) }
	gets(root+"/events", v.listAll)
	gets(root+"/events/stream", v.streamAll)
	gets(root+"/tasks", v.listTasks)
	gets(task+"/runs", v.listRuns)
	gets(task+"/runs/{run}/events", v.runEvents)
	posts(task+"/runs/{run}/cancel", v.cancel)
	gets(task+"/approvals", v.listApprovals)
	gets(task+"/approvals/{approval}", v.showApproval)
	posts(task+"/approvals/{approval}/resolve", v.resolve)
	other := func(w http.ResponseWriter, _ *http.Request) { WriteError(w, notFound("route not found")) }
	mux.HandleFunc(root, other)
	mux.HandleFunc(root+"/", other)
}

// root begins the paths of the protocol.
const root = "/hecate/v1"

// Serves reports whether a path is one of the protocol's, whose refusals [WriteError] writes.
func Serves(path string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// A call is one request with what it may see.
type call struct {
	w   http.ResponseWriter
	r   *http.Request
	by  contracts.Principal
	log *scopeLog
	in  *scope // of the log
}

// An endpoint serves one request. It returns the body to be sent, or nil if it has
// answered.
type endpoint func(c *call) (body any, err error)

func (v *Server) endpoint(do endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body any
		c, err := v.begin(w, r)
		if c != nil {
			defer v.release(c.in)
		}
		if err == nil {
			body, err = do(c)
		}
		switch {
		case err != nil:
			if _, refused := errors.AsType[*contracts.Error](err); !refused {
				v.opts.Log.Error("request failed", "route", r.Pattern, "err", err)
			}
			WriteError(w, err)
		case body != nil:
			writeBody(r, w, body)
		}
	}
}

// begin authorizes a request. Unless the call is nil, it uses the log, and the caller
// releases that.
func (v *Server) begin(w http.ResponseWriter, r *http.Request) (*call, error) {
	p, err := v.opts.Authorize(r)
	if err != nil {
		return nil, err
	}
	if v.opts.Request != nil {
		if err := ratelimit.Refusal(w.Header(), v.opts.Request(p.ID)); err != nil {
			return nil, err
		}
	}
	sc, l, err := v.use(p.Scope, true)
	if err != nil {
		return nil, err
	}
	written := l.journal.Head()
	err = l.await(r.Context(), func() bool { return l.journal.Visible() >= written }) // the index has more than what is durable
	return &call{w: w, r: r, by: p, log: l, in: sc}, err
}

func writeBody(r *http.Request, w http.ResponseWriter, body any) {
	text, ok := body.([]byte)
	if !ok {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(body); err != nil {
			WriteError(w, err)
			return
		}
		text = out.Bytes()
	}
	if err := connlimit.ReserveAnswer(r, len(text)); err != nil {
		WriteError(w, err)
		return
	}
	httperr.WriteJSON(w, http.StatusOK, text)
}

// errorTypes are the types of errors by status. Those of a class stand for the others.
var errorTypes = map[int]string{
	http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found",
	http.StatusConflict: "conflict", http.StatusTooManyRequests: "rate_limited",
}

// WriteError answers with the error body of the protocol.
func WriteError(w http.ResponseWriter, err error) { httperr.WriteAs(w, err, errorBody) }

func errorBody(refusal *contracts.Error, status int) (int, []byte) {
	if refusal.Code == codeConflict {
		status = http.StatusConflict
	}
	kind := errorTypes[status]
	switch {
	case kind != "":
	case status < 500:
		kind = "invalid_request"
	default:
		kind = "gateway_error"
	}
	text, _ := json.Marshal(map[string]any{"error": map[string]string{"type": kind, "message": refusal.Message}}) // strings only
	return status, text
}

// codeConflict marks refusals that are answered with 409.
const codeConflict = contracts.CodeRequestNotFound

func badRequest(message string) error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: message}
}
func notFound(message string) error {
	return &contracts.Error{Code: contracts.CodeNotFound, Message: message}
}
func conflict(message string) error { return &contracts.Error{Code: codeConflict, Message: message} }

// session returns the session of the task in the path, if the client may see it. The
// caller holds scopeLog.mu.
func (c *call) session() (*session, error) {
	s := c.log.index.tasks[c.r.PathValue("task")]
	if s == nil || c.by.SessionID != "" && c.by.SessionID != s.ID {
		return nil, notFound("unknown task")
	}
	return s, nil
}

// run returns the run in the path and its session. The caller holds scopeLog.mu.
func (c *call) run() (*session, *run, error) {
	s, err := c.session()
	if err != nil {
		return nil, nil, err
	}
	r := c.log.index.Runs[c.r.PathValue("run")]
	if r == nil || r.Task != s.Task {
		return nil, nil, notFound("unknown run")
	}
	return s, r, nil
}

// cursorOf reads a cursor; text is empty for none.
func cursorOf(text string) (int64, error) {
	if text == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < -1 {
		return 0, badRequest("a cursor is an integer from -1 to " + strconv.FormatInt(math.MaxInt64, 10))
	}
	return n, nil
}

// after returns the larger cursor of the query and, for streams, of Last-Event-ID: a
// browser that reconnects repeats the query.
func (c *call) after(stream bool) (int64, error) {
	after, err := cursorOf(c.r.URL.Query().Get("after_sequence"))
	if err != nil || !stream {
		return after, err
	}
	last, err := cursorOf(c.r.Header.Get("Last-Event-ID"))
	return max(after, last), err
}

func (c *call) limit(otherwise int) (int, error) {
	text := c.r.URL.Query().Get("limit")
	if text == "" && !c.r.URL.Query().Has("limit") {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-") {
		return maxPage, nil
	}
	if err != nil || n < 1 {
		return 0, badRequest("limit is an integer from 1")
	}
	return min(n, maxPage), nil
}

// runReader returns a reader of the run in the path.
func (c *call) runReader(stream bool) (*reader, error) {
	c.log.mu.Lock()
	_, r, err := c.run()
	c.log.mu.Unlock()
	if err != nil {
		return nil, err
	}
	after, err := c.after(stream)
	return &reader{log: c.log, run: r, after: after}, err
}

// allReader returns a reader of the runs that the client may see and asks for.
func (c *call) allReader(stream bool) (*reader, error) {
	q := c.r.URL.Query()
	after, err := c.after(stream)
	r := &reader{log: c.log, after: after, task: q.Get("task_id"), kinds: parseKinds(q.Get("event_type"))}
	if c.by.SessionID != "" {
		c.log.mu.Lock()
		defer c.log.mu.Unlock()
		r.chat = "none"
		if s := c.log.index.Sessions[c.by.SessionID]; s != nil && s.Chat != "" {
			r.chat = s.Chat
		}
	}
	return r, err
}

// runEvents serves the list and the stream of one run, which have one path.
func (v *Server) runEvents(c *call) (any, error) {
	accept := strings.Join(c.r.Header.Values("Accept"), ",")
	list := c.r.URL.Query().Has("limit") || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/event-stream")
	r, err := c.runReader(!list)
	if err != nil {
		return nil, err
	}
	if !list {
		return nil, v.serveStream(c, r)
	}
	return c.page(r, maxPage)
}

func (v *Server) listAll(c *call) (any, error) {
	r, err := c.allReader(false)
	if err != nil {
		return nil, err
	}
	return c.page(r, allRunsPage)
}

func (v *Server) streamAll(c *call) (any, error) {
	r, err := c.allReader(true)
	if err != nil {
		return nil, err
	}
	return nil, v.serveStream(c, r)
}

// page returns the body of a list of events. It ends early at maxPageBytes.
func (c *call) page(r *reader, otherwise int) (any, error) {
	limit, err := c.limit(otherwise)
	if err != nil {
		return nil, err
	}
	out := []byte(`{"object":"list","data":[`)
	count, last, hasMore := 0, uint64(0), false
	for more := true; more && !hasMore && err == nil && c.r.Context().Err() == nil; {
		more, err = r.read(func(ev record) bool {
			if hasMore = count == limit || len(out) > maxPageBytes; hasMore {
				return false
			}
			if count++; count > 1 {
				out = append(out, ',')
			}
			out, last = append(out, ev.line...), r.cursor(ev)
			return true
		})
	}
	if err != nil {
		return nil, err
	}
	out = append(out, "]"...)
	if count > 0 {
		out = strconv.AppendUint(append(out, `,"next_after_sequence":`...), last, 10)
	}
	out = strconv.AppendBool(append(out, `,"has_more":`...), hasMore)
	if r.run != nil {
		c.log.mu.Lock()
		first := r.run.firstSequence()
		c.log.mu.Unlock()
		if first > 0 {
			out = strconv.AppendUint(append(out, `,"first_available_sequence":`...), first, 10)
		}
	}
	return append(out, '}'), nil
}

// A list is the body of a list of resources, or of one.
type list struct {
	Object string `json:"object"`
	Data   any    `json:"data"`
	Next   string `json:"next_after,omitempty"` // last id of a list in pages
	More   bool   `json:"has_more,omitempty"`
}

// body decodes the body of a request, which is an object.
func (c *call) body(into any, mayBeEmpty bool) error {
	text, err := connlimit.ReadBody(c.w, c.r, 64<<10)
	if err != nil || len(text) == 0 && mayBeEmpty {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(into); err != nil {
		return badRequest("the body is not a valid object")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the body has more than one value")
	}
	return nil
}
