package conformance

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// httpStreams judges event streams: A36, A42 to A61, 1.11, 2.4.
var httpStreams = []Scenario{
	overHTTP.scenario("sse/snapshot-first", "A42 1.11", "A stream without a cursor begins with a snapshot, then lives", streamSnapshotFirst),
	overHTTP.scenario("sse/framing", "1.11", "A stream says once how soon to come back, and identifies what can be resumed from", func(s *Session) {
		alice := s.driver()
		p := s.follow("vera", follow{}) // every event's framing is looked at as it comes
		p.begins("A42")
		for range 5 {
			alice.prompt("an event")
		}
		alice.finish(p)
		retries := 0
		for i, f := range p.log {
			if f.Event.Retry == "" {
				continue
			}
			retries++
			if f.Event.Retry != "2000" || slices.ContainsFunc(p.log[:i], anyItem.ok) {
				s.fail("1.11:retry", "expected retry 2000 at the start, got %q as event %d", f.Event.Retry, i+1)
			}
		}
		if retries != 1 {
			s.fail("1.11:retry", "expected one retry at the start of the stream, got %d", retries)
		}
		for _, f := range p.log {
			if slices.ContainsFunc(f.Event.Data, func(line string) bool { return strings.ContainsAny(line, "\u2028\u2029") }) {
				s.fail("1.3:separators", "expected line separators to be escaped, got %q", f.Raw)
			}
		}
	}),
	overHTTP.scenario("sse/headers", "1.11 1.3", "A stream is not cached, not compressed, and says what it is", func(s *Session) {
		s.driver()
		p := s.follow("vera", follow{header: http.Header{"Accept-Encoding": {"gzip, deflate, br"}}})
		p.begins("A42")
		if got := p.stream.header.Get("Content-Encoding"); got != "" && got != "identity" {
			s.fail("1.3", "expected a stream not to be compressed, got %q", got)
		}
		if got := p.stream.header.Get("Cache-Control"); !strings.Contains(got, "no-cache") && !strings.Contains(got, "no-store") {
			s.fail("1.11", "expected a stream not to be cached, got Cache-Control %q", got)
		}
	}),
	overHTTP.scenario("sse/implicit-is-viewer", "3.2 8.1", "A stream of its own is a viewer that goes with it", func(s *Session) {
		s.driver()
		before := s.state()
		p := s.follow("ida", follow{})
		p.begins("A42")
		f := s.stateWith("3.2:implicit", "one more connection", func(f *Frame) bool {
			return number(f.at("state.connection_count")) == number(before.at("state.connection_count"))+1
		})
		for _, e := range listOf(f, "state.connections") {
			if entryOf(before, textOf(e, "connection_id")) == nil && (e["role"] != "viewer" || e["controller_lease_granted"] != false) {
				s.fail("8.1:viewer", "expected the stream's own connection to be a viewer, got %s", show(e))
			}
		}
		p.close()
		s.stateWith("3.2:implicit", "the connection of the closed stream gone", func(f *Frame) bool {
			return number(f.at("state.connection_count")) == number(before.at("state.connection_count")) &&
				number(f.at("state.subscriber_count")) == number(before.at("state.subscriber_count"))
		})
	}),
	overHTTP.scenario("sse/same-for-all", "2.5 A48", "Every stream shows the identical sequence, in order", func(s *Session) {
		alice, own := s.attached()
		all := []*Peer{own}
		for i := range 4 {
			p := s.follow(fmt.Sprintf("v%d", i), follow{})
			p.begins("A42")
			all = append(all, p)
		}
		joined := s.state().Cursor
		alice.prompt(streamOf(50, 1))
		all[1].expect("R37", message("response_end"))
		alice.prompt(burstOf(300, 50))
		alice.ask(contracts.RequestApproval, "shared")
		alice.posted("R53", approve("shared", true))
		alice.finish(all...)
		if n := len(sequence(own.log, joined)); n < 300 {
			s.fail("6.2", "expected at least the 300 messages of the burst, got %d", n)
		}
		for _, p := range all[1:] {
			sameSequence(s, "2.5", joined, own, p)
		}
	}),
	overHTTP.scenario("sse/join-under-load", "A49", "A stream that joins under load misses nothing and shows nothing twice", func(s *Session) {
		alice, own := s.attached()
		alice.prompt(streamOf(10_000, 2)) // ends when all have joined, however long that takes
		own.expect("R36", message("response_chunk"))
		var joined []*Peer
		for i := range 4 {
			joined = append(joined, s.follow(fmt.Sprintf("v%d", i), follow{}))
		}
		alice.posted("R37", &contracts.Interrupt{})
		for _, p := range append(joined, own) {
			p.expect("R37", message("response_end"))
		}
		whole := chunksOf(own.log)
		for _, p := range joined {
			snap := p.begins("A42")
			if got := snap.str("state.current_response.text") + chunksOf(p.log); got != whole {
				s.fail("A49", "%s: the snapshot as of %d and what followed hold %d bytes of the response, want %d: lost or repeated",
					p.name, snap.Cursor, len(got), len(whole))
			}
		}
	}),
	overHTTP.scenario("sse/slow-follower", "A52 A51 D5", "A client that stops reading delays nobody, and gets all the text when it reads again", func(s *Session) {
		alice, own := s.attached()
		sloth := s.follow("sloth", follow{})
		sloth.begins("A42")
		sloth.stall()
		joined := s.state().Cursor
		const size = 16 << 10
		alice.prompt(burstOf(unread/size, size))
		alice.finish(own) // while nobody reads the other stream
		sloth.resumeReading()
		done := anyOf(message("status").with("message", "Prompt: the end"), control("reset").with("state.last_status", "Prompt: the end"))
		ctx, cancel := s.within(4 * s.config.Patience)
		defer cancel()
		for !slices.ContainsFunc(sloth.log, done.ok) && sloth.pull(ctx) {
		}
		switch {
		case slices.ContainsFunc(sloth.log, control("reset").ok): // it starts over from a snapshot
		case slices.ContainsFunc(sloth.log, done.ok):
			sloth.cut(done)
			sameSequence(s, "D5", joined, own, sloth)
		case sloth.ended != nil: // a write was blocked for too long; it may come back with its cursor
			last := sloth.watch.cursor
			again := s.follow("sloth", follow{cursor: &last, epoch: sloth.epoch})
			again.expect("A51", done)
		default:
			s.fail("A51", "expected a client that reads again to get everything, or a reset, got neither")
		}
	}),
	overHTTP.scenario("sse/opt-outs", "A56 A53", "Opt-outs in the query hold for the stream and leave the state alone", func(s *Session) {
		alice := s.driver()
		p := s.follow("vera", follow{optOuts: []string{"status", "connection_info"}})
		p.begins("A42")
		alice.prompt("unseen")
		s.stateWith("A53", "the unseen status", func(f *Frame) bool { return f.str("state.last_status") == "Prompt: unseen" })
		s.guest("victor") // would be announced
		alice.ask(contracts.RequestApproval, "seen")
		p.expect("A53", message("server_request").with("request_id", "seen"))
		p.still("A53", 0, anyOf(message("status"), message("connection_info"))) // and watched all along
		for range 2 {                                                           // opting out of everything leaves snapshots
			all := s.follow("valerie", follow{optOuts: []string{"status", "heartbeat", "connection_info", "compaction"}})
			all.begins("A53")
		}
	}),
	overHTTP.scenario("sse/unknown-opt-out", "A56", "An unknown word to opt out of is refused", func(s *Session) {
		s.driver()
		for _, word := range []string{"gossip", "status,gossip", "message", "Status"} {
			p, a := s.tryFollow(request{who: "vera", method: http.MethodGet, path: s.route("events?optOutNotifications=" + word)}, follow{})
			if p != nil {
				s.fail("A56:unknown", "expected the unknown word in %q to be refused, got a stream", word)
			}
			a.refused("A56:unknown", contracts.CodeBadRequest, "")
		}
	}),
	overHTTP.scenario("sse/opt-outs-by-hello", "2.4 A53", "Opt-outs of a later hello hold at once for the streams there are", func(s *Session) {
		alice, p := s.attached()
		alice.posted("1.12", initNothing())
		p.expect("R33:http", initNothingReply)
		h := s.hello(contracts.RoleController)
		h.OptOutNotifications = []contracts.Notification{contracts.NotifyStatus}
		alice.hello(h).ok("2.4:at-once")
		from := p.indexAfter(p.expect("2.4:at-once", message("hello_ok")))
		alice.prompt("unseen")
		alice.ask(contracts.RequestApproval, "seen")
		p.expect("A43", message("server_request").with("request_id", "seen"))
		p.none("2.4:at-once", from, message("status"))
	}),
	overHTTP.scenario("sse/raw-events", "A54", "Raw events reach only those who negotiated them", func(s *Session) {
		alice, own := s.attached()
		rhea := s.caller("rhea", contracts.RoleViewer)
		cursor := rhea.connected(fields{"capabilities": fields{"rawAgentEvents": true}}).snapshot().Cursor
		rhea.subscribed(nil)
		raw := s.follow("rhea", follow{subscription: rhea.subscription, cursor: &cursor, raw: true, header: rhea.proof()})
		plain := s.follow("vera", follow{})
		plain.begins("A42")
		alice.prompt(streamOf(3, 0))
		for _, p := range []*Peer{own, raw, plain} {
			p.expect("A54", message("response_end"))
		}
		back := s.follow("victor", follow{cursor: &cursor}) // nor do they come in a replay
		back.expect("A54", message("response_end"))
		for _, p := range []*Peer{own, plain, back} {
			p.still("A54", 0, message("raw_agent_event"))
		}
	}),
	overHTTP.scenario("sse/private-hello-ok", "A60", "hello_ok goes to the streams of its sender alone", func(s *Session) {
		alice, own := s.attached()
		vera := s.guest("vera")
		viewers := []*Peer{vera.followed(), s.follow("victor", follow{})}
		alice.hello(s.hello(contracts.RoleController)).ok("A60")
		own.expect("A60", message("hello_ok").with("connection_id", alice.connection))
		alice.finish(append(viewers, own)...)
		for _, p := range viewers { // and none was expected all along
			p.none("A60", 0, message("hello_ok"))
		}
		if n := countOf(own.log, message("hello_ok")); n != 1 {
			s.fail("A60", "expected one hello_ok for one hello, got %d", n)
		}
	}),
	overHTTP.scenario("sse/unknown-subscription", "A55", "An unknown subscription is refused before any event", func(s *Session) {
		alice := s.driver()
		for _, o := range []follow{{subscription: "sub_nobody"}, {header: http.Header{"X-Maestro-Headless-Subscriber-Id": {"sub_nobody"}}}} {
			p, a := s.tryFollow(o.request(s, "alice"), o)
			if p != nil {
				s.fail("A55", "expected an unknown subscription to be refused, got a stream")
			}
			a.refused("A55", contracts.CodeStaleSubscription, textNoSubscriber)
		}
		alice.posted("A55", initNothing())
	}),
	overHTTP.slowScenario("sse/heartbeat", "A57", "An idle stream shows a heartbeat in every interval, with the latest cursor", func(s *Session) {
		p := s.controllerOnly().beat()
		for range 2 {
			from := len(p.log)
			f := p.awaitFor("A57", from, control("heartbeat"), p.beat()+s.config.Patience)
			if head := s.state().Cursor; f.Cursor != head {
				s.fail("A57", "expected the latest cursor %d in a heartbeat, got %d", head, f.Cursor)
			}
		}
	}),
	overHTTP.slowScenario("sse/keepalive", "1.11 A53", "A stream without heartbeats shows comments instead", func(s *Session) {
		alice := s.controllerOnly().beat()
		p := s.follow("quinn", follow{optOuts: []string{"heartbeat"}})
		p.begins("A42")
		from := len(p.log)
		p.awaitFor("1.11:keepalive", from, control(kindComment), alice.beat()+s.config.Patience)
		p.none("A53", 0, control("heartbeat"))
	}),
	overHTTP.scenario("sse/newer-wins", "A61", "A second stream on a subscription ends the first", func(s *Session) {
		alice, first := s.attached()
		second := alice.follow(first.watch.cursor)
		first.finishes("A61")
		alice.finish(second)
		if n := countOf(second.log, message("status").with("message", "Prompt: the end")); n != 1 {
			s.fail("A61", "expected the newer stream to get everything, got %d of 1", n)
		}
	}),
	overHTTP.slowScenario("sse/attached-does-not-expire", "3.2", "A controller whose stream is read stays", func(s *Session) {
		alice, p := s.attached()
		lease := alice.shortLease()
		s.pause("3.2", lease+lease/4)
		alice.posted("3.2", initNothing())
		if p.ended != nil && p.ended != io.EOF {
			s.fail("3.2", "expected the stream to go on, got: %v", p.ended)
		}
		p.expect("R33:http", initNothingReply)
	}),
	overHTTP.scenario("sse/takeover-visible", "3.4", "The lease's moves are on every stream", func(s *Session) {
		alice, p := s.attached()
		implicit := s.follow("vera", follow{})
		implicit.begins("A42")
		bob := s.takeFrom("bob")
		for _, stream := range []*Peer{p, implicit} {
			stream.expect("3.4:announced", message("connection_info").with("controller_connection_id", bob.connection))
		}
		bob.disconnect(nil).ok("A15")
		for _, stream := range []*Peer{p, implicit} {
			stream.expect("3.4:announced", control("snapshot").with("state.controller_connection_id", nil))
		}
		alice.posted("A30", initNothing())
		for _, stream := range []*Peer{p, implicit} {
			stream.expect("3.4:announced", message("connection_info").with("controller_connection_id", alice.connection))
		}
	}),
}

func streamSnapshotFirst(s *Session) {
	alice := s.driver()
	p := s.follow("vera", follow{})
	f := p.begins("A42")
	if f.str("session_id") != s.ID || entryOf(f, alice.connection) == nil {
		s.fail("A42", "expected a snapshot of %s with %s in it, got %s", s.ID, alice.connection, abridge(f.Raw, maxTraceText))
	}
	alice.prompt("live")
	p.expect("A42", message("status").with("message", "Prompt: live"))
}

// unread is more than a system takes for a client that stopped reading over
// HTTP, whose receive buffer is small.
const unread = 6 << 20

// beat returns the interval of heartbeats, or skips if it is too long.
func (c *Caller) beat() *Peer {
	a := c.subscribed(nil)
	p := c.follow(a.snapshot().Cursor)
	p.attached = a.Body
	p.beat()
	return p
}
