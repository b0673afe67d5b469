// Package server embeds Maestro in a Go program. A [Server] is an [http.Handler] that
// serves sessions to any number of clients over WebSocket and over HTTP with server-sent
// events, with authentication. Behind each session is an agent: your own Go code, or one
// of the agents of maestro serve.
//
// The handler has the routes of maestro serve: /api/headless/, /healthz, /readyz,
// /metrics, /login, /logout, /acp for editors, /hecate/v1/ for consumers of Hecate events,
// and with [Options].Page the page for browsers at /. Mount it at the root of a host, or
// send the paths that you need to it. It works on any [http.Server]. Middleware in front of
// it must let [http.ResponseController] reach the connection.
//
// Package client is a client of such a server, and package conformance judges it.
package server
