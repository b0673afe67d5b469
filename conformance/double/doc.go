// Package double is a small, independent server of the protocol for testing
// the conformance suite, with switches for planted defects.
//
// It shares nothing with the real server but the Go types of the wire, so that
// the suite is proved to depend on the protocol alone. It is for tests: it
// keeps everything in memory, under one lock, knows only the conformance
// agent, and has no authentication, with which connection tokens are optional.
// As a hosted runner it drains and restores, without the blocks of a manifest
// that readers ignore. Given a workspace it has utilities: what clients run are
// real processes, pipes and terminals; searches and watches are the simplest
// that do, and look at every file each time.
package double
