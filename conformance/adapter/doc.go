// Command adapter judges a hosted runner from outside, as a control plane's
// test suite does that knows nothing of how the runner is made.
//
//	adapter [-run REGEXP] [-timeout DURATION] -- COMMAND [ARGUMENT...]
//
// For each of eight scenarios it makes a fresh workspace, starts the command
// with the environment of the hosted runner contract, waits for the ready line
// on its standard output, speaks HTTP and server-sent events to it, and stops
// it by closing its standard input. The runner must be the conformance agent
// in the public profile, without authentication. The schemas it compares with
// are the published ones, in which every object is closed.
//
// It prints one line per scenario, and the exchange of those that fail. The
// exit status is 0 if all passed, 1 if one failed, and 2 for wrong usage. It
// imports nothing of maestro but what programs like it have in common, so that it
// shares no mistake with what it judges.
package main
