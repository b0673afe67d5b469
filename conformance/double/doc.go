// Package double is a small, independent server of the protocol for testing
// the conformance suite, with switches for planted defects.
//
// It shares nothing with the real server but the Go types of the wire, so that
// the suite is proved to depend on the protocol alone. It is for tests: it
// keeps everything in memory, under one lock, knows only the conformance
// agent, and has no authentication, with which connection tokens are optional.
// As a hosted runner it drains and restores, without the blocks of a manifest
// that readers ignore, and has the utilities of section 6; otherwise it has
// none.
package double
