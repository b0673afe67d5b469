// Package gate decides who may come in over the network (D10).
//
// It promises that no request passes whose Host or Origin a stranger's web page
// could have chosen, that credentials are compared in constant time and never
// returned, logged or put in an error, and that a ticket lets in one request
// only. It knows one secret, the server's token; whoever presents it is one
// principal. What a principal may then do is decided elsewhere.
package gate
