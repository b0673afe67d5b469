package main

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
)

// routes serves the session h over WebSocket and over HTTP, without asking who
// it is and as fast as bench can attach.
func routes(h *hub.Hub, timeout time.Duration) (http.Handler, error) {
	connections := connlimit.New(connlimit.Options{})
	anybody := func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil }
	rates := ratelimit.New(ratelimit.Options{AttachRate: -1, RequestRate: -1})
	sockets, err := ws.New(ws.Options{
		Authorize: anybody, ConnLimit: connections, RateLimit: rates, WriteTimeout: timeout,
		Open: func(_ context.Context, att contracts.Attach) (ws.Session, error) { return &visit{h, att}, h.Admit(att) },
	})
	if err != nil {
		return nil, err
	}
	requests, err := httpapi.New(httpapi.Options{
		Authorize: anybody, Rates: rates,
		Streams: sse.New(sse.Options{ConnLimit: connections, WriteTimeout: timeout}),
		Find:    func(context.Context, httpapi.Wanted) (httpapi.Session, bool, error) { return overHTTP{h}, false, nil },
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	requests.Routes(mux)
	mux.Handle("/api/headless/ws", sockets)
	return mux, nil
}

// A visit is one viewer's way from a WebSocket to the hub.
type visit struct {
	hub *hub.Hub
	att contracts.Attach
}

// Serve implements [ws.Session].
func (v *visit) Serve(ctx context.Context, conn *ws.Conn) error {
	return v.hub.Serve(ctx, conn, hub.WireEnvelope, &v.att)
}

// overHTTP is the session as clients over HTTP use it.
type overHTTP struct{ *hub.Hub }

// Stream implements [sse.Session].
func (o overHTTP) Stream(ctx context.Context, conn *sse.Conn, req contracts.StreamRequest, by contracts.Caller) error {
	return o.Hub.Stream(ctx, conn, req, by)
}
