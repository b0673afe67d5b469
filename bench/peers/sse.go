package main

import (
	"fmt"
	"net"
	"net/http"

	"github.com/seed-028515a8/maestro/bench/control"
)

// startSSE is a stream of server-sent events as most programs have it: the
// handler of every viewer waits for messages and for the end of the request,
// and formats and flushes every message for itself.
func startSSE(ln net.Listener, _ int) (*control.Server, error) {
	hub := &channels[[]byte]{}
	serveHTTP(ln, func(w http.ResponseWriter, r *http.Request) {
		flusher, ok := w.(http.Flusher)
		if !ok {
			http.Error(w, "streaming is not supported", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusOK)
		flusher.Flush()
		box, leave := hub.enter()
		defer leave()
		for {
			select {
			case m := <-box:
				if _, err := fmt.Fprintf(w, "data: %s\n\n", m); err != nil {
					return
				}
				flusher.Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	return &control.Server{
		Addr: ln.Addr().String(),
		Publish: func(text []byte) error {
			hub.publish(control.Envelope(text))
			return nil
		},
		Viewers: hub.viewers,
	}, nil
}
