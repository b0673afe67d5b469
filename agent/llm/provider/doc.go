// Package provider opens models of real services: Anthropic Messages, OpenAI
// Responses, and OpenAI Chat Completions with everything that is compatible with
// it. All three are a POST that is answered with server-sent events; the files
// *_wire.go hold the members that are sent and read.
//
// It promises that a reply without an error is one that the service said is
// complete: a stream that ends in order but too early is an error. It promises
// that no error carries a credential or what was asked, that no failure which may
// pass is tried again here, and that a service which falls silent is given up.
// Nothing is read from the environment but the proxy, and nothing is stored at the
// service: what it wants to see again is kept in the history.
//
// It promises no prices: a reply counts tokens and nothing else.
package provider
