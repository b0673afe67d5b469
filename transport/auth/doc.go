// Package auth decides who may come in over the network (D10). It is the one
// door of WebSocket, HTTP and event streams.
//
// It promises that no request passes whose Host or Origin a stranger's web page
// could have chosen, that credentials are compared in constant time or by their
// hash and never returned, logged or put in an error, and that a ticket lets in
// one request only. Credentials are the server's token, JWTs of an issuer whose
// keys it was given, share tokens that it mints for one session each, and what
// stands for one of these in a browser: tickets and cookies. A further token is
// for those who control the server itself.
//
// The gate names a principal and what it is confined to. Whether such a one may
// then do what it asks for is decided elsewhere.
package auth
