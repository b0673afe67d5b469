// Agents judges maestro with the agents that people use: each that can run
// without a key or a network behind a server, over stdio, WebSocket and HTTP.
//
//	go run ./conformance/agents bin/maestro
//	go run ./conformance/agents -run acp bin/maestro
//
// It builds the local model and the example agent of the ACP library, starts
// what is needed, runs "maestro conformance --runtime any" against it, and shows
// a line for each run that passed and the report of each that did not. What it
// started has ended when it ends. The status is 0 if everything passed, 2 for
// wrong usage, 1 otherwise.
package main
