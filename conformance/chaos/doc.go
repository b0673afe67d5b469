// Package chaos makes a sound server of the Maestro headless protocol seem to be a
// broken one. It stands between a client and the server and injects a list of
// [Fault] values: frames and HTTP answers are dropped, repeated, swapped, delayed,
// altered, cut off or made up, and processes treat their input, signals, environment
// and exit status wrongly. Everything that no fault applies to passes unchanged.
//
// A [Proxy] stands before a server over HTTP, server-sent events and WebSocket.
// [Stdio] runs a server that speaks on its standard streams, and [Runner] a hosted
// runner.
//
// The suite in conformance uses the package to prove that its scenarios can fail.
package chaos
