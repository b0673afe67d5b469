// Package conformance judges any server that speaks the Maestro headless
// protocol, over stdio, WebSocket, or HTTP and server-sent events, and tells its
// author what is wrong. It also judges hosted runners, which it starts, drains
// and restores.
//
// To judge a server, call Maestro().Run(ctx, Config{...}); see [Maestro], [Suite.Run] and
// the example.
//
// It is a list of [Scenario] values and a runner. A scenario plays one or more
// clients against the server and names the rules it judges; beside what it
// looks for, every text received is held against the closed shapes of the wire
// and against the invariants of the protocol (order of cursors, life of
// responses, tools and requests, answers to frames, bodies of refusals). A
// failure carries what was expected, the rule, and the exchange that shows it.
// With contracts.ProfilePublic, a rule that the published protocol does not have
// leads to [Advice] instead of a failure.
//
// The server is a black box: nothing here knows how one is made. The runtime
// behind it should be the conformance agent, whose triggers make runs
// repeatable. With any other the scenarios that need those are skipped, and what
// remains is judged: whatever an agent says, a hub keeps its order, shows it to
// everybody alike, and lets people answer and interrupt it. It promises nothing
// about speed.
//
// A [Suite] is such a list about one protocol. The packages below judge servers of other
// protocols with the same runner and reports.
package conformance
