// Package httperr writes the JSON answers of all HTTP surfaces, and refusals in the
// one body that they share.
package httperr

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Body is the JSON of every refusal. Code and ErrorType are always equal,
// because some clients read one and some the other (A73).
type Body struct {
	Message   string                  `json:"error"`
	ErrorType contracts.Code          `json:"error_type"`
	Code      contracts.Code          `json:"code"`
	Retryable bool                    `json:"retryable"`
	Details   []contracts.ErrorDetail `json:"details"`
}

// Write answers with err. For any error but a [contracts.Error] the client gets
// a fixed text; the caller logs the real one. Statuses 429 and 503 get a
// Retry-After unless the caller has set it.
func Write(w http.ResponseWriter, err error) { WriteWith(w, err, "") }

// WriteAs is Write with another status and body, for a surface that has its own.
func WriteAs(w http.ResponseWriter, err error, body func(refusal *contracts.Error, status int) (int, []byte)) {
	refusal := refusalOf(err)
	Tell(w, refusal)
	status, _ := Encode(w.Header(), refusal)
	status, text := body(refusal, status)
	WriteJSON(w, status, text)
}

// WriteWith is Write with additional members in the body: JSON, each with a comma
// after it.
func WriteWith(w http.ResponseWriter, err error, members string) {
	Tell(w, refusalOf(err))
	status, body := Encode(w.Header(), err)
	WriteJSON(w, status, append([]byte("{"+members), body[1:]...))
}

func refusalOf(err error) *contracts.Error {
	if refusal, ok := errors.AsType[*contracts.Error](err); ok {
		return refusal
	}
	return &contracts.Error{Code: contracts.CodeInternal, Message: "Internal server error"}
}

// Encode returns the status and the body of the answer that Write gives, and sets
// its header fields.
func Encode(h http.Header, err error) (status int, body []byte) {
	refusal := refusalOf(err)
	body, err = json.Marshal(Body{
		Message: refusal.Message, ErrorType: refusal.Code, Code: refusal.Code,
		Retryable: refusal.Code.Retryable(), Details: refusal.Details(),
	})
	if err != nil {
		panic(err) // cannot fail: the body is strings
	}
	setHeader(h)
	status = refusal.Code.HTTPStatus()
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="maestro"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if h.Get("Retry-After") == "" {
			h.Set("Retry-After", "1")
		}
	}
	return status, append(body, '\n')
}

// WriteJSON answers with JSON that consists of parts and must not be cached.
func WriteJSON(w http.ResponseWriter, status int, parts ...[]byte) {
	setHeader(w.Header())
	w.WriteHeader(status)
	for _, part := range parts {
		_, _ = w.Write(part) // an error says that the client has gone
	}
}

func setHeader(h http.Header) {
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// A RefusalWriter is a [http.ResponseWriter] whose Refused method is called for
// each refusal. Write finds it also inside other writers, by their Unwrap
// methods.
type RefusalWriter interface{ Refused(*contracts.Error) }

// Tell tells the RefusalWriter of a refusal that is answered in another way than by Write.
func Tell(w http.ResponseWriter, refusal *contracts.Error) {
	for w != nil {
		if l, ok := w.(RefusalWriter); ok {
			l.Refused(refusal)
			return
		}
		over, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = over.Unwrap()
	}
}

// Methods serves a path by method. It answers OPTIONS with 204 and other methods with
// 405, both with the methods of the path in Allow.
type Methods map[string]http.HandlerFunc

// ServeHTTP implements [http.Handler].
func (m Methods) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.Serve(w, r, Write) }

// Serve is ServeHTTP with another way to answer with a refusal.
func (m Methods) Serve(w http.ResponseWriter, r *http.Request, refuse func(http.ResponseWriter, error)) {
	if serve := m[r.Method]; serve != nil {
		serve(w, r)
		return
	}
	methods := append(slices.Collect(maps.Keys(m)), http.MethodOptions)
	slices.Sort(methods)
	w.Header().Set("Allow", strings.Join(methods, ", "))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	refuse(w, &contracts.Error{Code: contracts.CodeMethodNotAllowed, Message: "method not allowed"})
}
