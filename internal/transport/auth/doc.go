// Package auth authenticates requests over the network (D10), for WebSocket,
// HTTP and event streams alike.
//
// No request passes whose Host or Origin a foreign web page could have chosen.
// Credentials are compared in constant time or by their hash, and are never
// returned, logged or put in an error. A ticket admits one request. The
// credentials are the server's token, JWTs of an issuer whose keys were given,
// share tokens for one session each, and tickets and cookies, which stand for
// one of these in a browser. A separate token authorizes control of the server
// itself.
//
// The Authenticator returns a principal and its limits. Other packages decide
// whether the principal may do what it asks for.
package auth
