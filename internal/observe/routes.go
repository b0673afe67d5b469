package observe

import (
	"cmp"
	"mime"
	"net/http"
	"strconv"
	"time"
)

const (
	unmatched  = "unmatched" // the route of requests that match no pattern of the mux
	unanswered = "none"      // the code of requests whose handler panicked before an answer
)

// Routes returns a handler that counts the requests to next, by the pattern
// that an [http.ServeMux] in next found for them. No handler between it and the
// mux may copy the request, or the pattern is unknown.
//
// A hijacked connection counts as answered when the handler returns, with the
// status that the handler wrote before, or 200. The duration of a stream is not
// measured, because the client determines it. Handlers flush and hijack with an
// [http.ResponseController].
func (o *Observer) Routes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		a := &answer{ResponseWriter: w, panicked: true}
		defer func() {
			route := cmp.Or(r.Pattern, unmatched)
			o.meters.requests.WithLabelValues(route, a.code()).Inc()
			if !a.streams() {
				o.meters.durations.WithLabelValues(route).Observe(time.Since(began).Seconds())
			}
		}()
		next.ServeHTTP(a, r)
		a.panicked = false
	})
}

// An answer is a response writer that records the status.
type answer struct {
	http.ResponseWriter
	status   int  // the final status; zero if none was written
	panicked bool // the handler panicked
}

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// code returns the label of the status.
func (a *answer) code() string {
	switch {
	case a.status == 0 && a.panicked:
		return unanswered
	case a.status > 599:
		return other
	}
	return strconv.Itoa(cmp.Or(a.status, http.StatusOK))
}

// streams reports whether the answer is an event stream that the handler wrote
// itself.
func (a *answer) streams() bool {
	kind, _, err := mime.ParseMediaType(a.Header().Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}
