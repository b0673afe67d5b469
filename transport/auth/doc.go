// Package auth authenticates requests over the network (D10), for WebSocket,
// HTTP and event streams alike.
//
// It promises that no request passes whose Host or Origin a stranger's web page
// could have chosen, that credentials are compared in constant time or by their
// hash and never returned, logged or put in an error, and that a ticket lets in
// one request only. Credentials are the server's token, JWTs of an issuer whose
// keys it was given, share tokens that it mints for one session each, and what
// stands for one of these in a browser: tickets and cookies. A further token is
// for those who control the server itself.
//
// The Authenticator names a principal and what it is confined to. Whether such a one may
// then do what it asks for is decided elsewhere.
package auth
