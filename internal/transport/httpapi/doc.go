// Package httpapi serves the attach surface: the operations that clients
// request over HTTP instead of a socket.
//
//	POST /api/headless/connections                    make or renew a connection
//	POST /api/headless/sessions                       make or find a session
//	GET  /api/headless/sessions                       list sessions
//	GET  /api/headless/sessions/{id}[/state]          the state
//	POST /api/headless/sessions/{id}/subscribe        make a subscription
//	POST /api/headless/sessions/{id}/unsubscribe      end a subscription
//	GET  /api/headless/sessions/{id}/events           the events, as a stream
//	POST /api/headless/sessions/{id}/messages         send a command; also /message
//	POST /api/headless/sessions/{id}/heartbeat        keep a connection alive
//	POST /api/headless/sessions/{id}/disconnect       end a connection
//	GET  /healthz, /readyz                            for probes
//	GET  /                                            a page that says how to attach
//
// A route reads a request, package auth identifies the principal, Find returns
// the session, and one method of the session decides. This package makes no
// decisions of its own.
package httpapi
