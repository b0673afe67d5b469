package conformance

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// streams judges what followers receive, over WebSocket and in event streams: A36, A42 to
// A61, 1.11, 2.4.
func streams() []Scenario {
	return []Scenario{
		onSocket.scenario("stream/same-for-all", "2.5 A48", "Every viewer receives the identical sequence", sameForAll),
		overHTTP.scenario("sse/same-for-all", "2.5 A48", "Every stream shows the identical sequence, in order", sameForAll),
		onSocket.scenario("stream/join-while-live", "A49", "A client that joins under load misses nothing and sees nothing twice", joinWhileLive),
		overHTTP.scenario("sse/join-under-load", "A49", "A stream that joins under load misses nothing and shows nothing twice", joinWhileLive),
		onSocket.pilot("stream/slow-viewer", "A52", "A viewer that stops reading delays nobody", func(s *Session, alice *pilot) {
			s.slowly("sloth")
			fast := s.onlooker("vera")
			joined := alice.head()
			alice.flood()
			alice.end(fast)
			sameSequence(s, "A52", joined, alice.p, fast)
		}),
		onSocket.scenario("stream/slow-viewer-catches-up", "A51 D5", "A viewer that reads again gets all the text, or a reset that holds it", slowFollower),
		overHTTP.scenario("sse/slow-follower", "A52 A51 D5", "A client that stops reading delays nobody, and gets all the text when it reads again", slowFollower),

		onSocket.controller("stream/snapshot-first", "A42 9.3", "Without a cursor a stream starts with a snapshot, then lives", func(s *Session, alice *Peer) { // welcome checks the order
			got := alice.attached["resume"]
			s.failIf(got != "snapshot", "A42", "expected resume \"snapshot\" without a cursor, got %s", show(got))
			alice.told("9.2", fields{"session_id": s.ID})
			n := number(alice.attached["heartbeat_interval_ms"])
			s.failIf(n <= 0, "9.2", "expected a positive heartbeat_interval_ms, got %d", n)
			at := slices.IndexFunc(alice.log, message("hello_ok").ok)
			hello, snapshot := alice.log[at].Cursor, alice.last(control("snapshot")).Cursor
			s.failIf(hello <= snapshot, "9.3", "expected hello_ok after the snapshot in cursor order, got %d after %d", hello, snapshot)
		}),
		onSocket.pilot("stream/heartbeat", "A57", "An idle stream shows a heartbeat in every interval", heartbeats).slow(),
		onSocket.controller("stream/heartbeat-opted-out", "A53", "An opted-out heartbeat stays away", func(s *Session, alice *Peer) {
			quiet := s.optingOut(contracts.RoleViewer, contracts.NotifyHeartbeat)
			quietOne := s.attach("quinn", entry{role: contracts.RoleViewer, hello: quiet})
			alice.awaitFor("A57", 0, control("heartbeat"), alice.beat()+s.config.Patience)
			s.pause("A53", alice.beat()/2)
			quietOne.still("A53", 0, control("heartbeat"))
		}).slow(),
		onSocket.controller("stream/connections-announced", "4.3", "Who comes and goes is announced", func(s *Session, alice *Peer) {
			from := len(alice.log)
			vera := s.viewer("vera")
			count := func(n int) want {
				return message("connection_info").where(fmt.Sprintf("of %d connections", n), func(f *Frame) bool {
					return number(f.at("connection_count")) == int64(n) && strings.Contains(string(f.Raw), alice.connection)
				})
			}
			f := alice.await("4.3", from, count(2))
			for _, c := range listOf(f, "connections") {
				want := map[string]bool{alice.connection: true}[textOf(c, "connection_id")]
				s.lists("4.3", c, fields{"controller_lease_granted": want})
			}
			vera.send([]byte(`{"type":"ws.bye"}`))
			alice.await("4.3", slices.Index(alice.log, f), anyOf(count(1),
				control("snapshot").with("state.connection_count", 1)))
		}),

		overHTTP.scenario("sse/snapshot-first", "A42 1.11", "A stream without a cursor begins with a snapshot, then lives", streamSnapshotFirst),
		overHTTP.driver("sse/framing", "1.11", "A stream says once how soon to come back, and identifies what can be resumed from", func(s *Session, alice *Caller) {
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
				s.failIf(f.Event.Retry != "2000" || slices.ContainsFunc(p.log[:i], anyItem.ok), "1.11:retry",
					"expected retry 2000 at the start, got %q as event %d", f.Event.Retry, i+1)
			}
			s.failIf(retries != 1, "1.11:retry", "expected one retry at the start of the stream, got %d", retries)
			for _, f := range p.log {
				s.failIf(slices.ContainsFunc(f.Event.Data, func(line string) bool { return strings.ContainsAny(line, "\u2028\u2029") }), "1.3:separators",
					"expected line separators to be escaped, got %q", f.Raw)
			}
		}),
		overHTTP.driver("sse/headers", "1.11 1.3", "A stream is not cached, not compressed, and says what it is", func(s *Session, _ *Caller) {
			p := s.follow("vera", follow{header: http.Header{"Accept-Encoding": {"gzip, deflate, br"}}})
			p.begins("A42")
			coding, caching := p.stream.header.Get("Content-Encoding"), p.stream.header.Get("Cache-Control")
			s.failIf(coding != "" && coding != "identity", "1.3", "expected a stream not to be compressed, got %q", coding)
			s.failIf(!strings.Contains(caching, "no-cache") && !strings.Contains(caching, "no-store"), "1.11",
				"expected a stream not to be cached, got Cache-Control %q", caching)
		}),
		overHTTP.driver("sse/implicit-is-viewer", "3.2 8.1", "A stream of its own is a viewer that goes with it", func(s *Session, _ *Caller) {
			before := s.state()
			p := s.onlooker("ida")
			f := s.stateWith("3.2:implicit", "one more connection", func(f *Frame) bool {
				return number(f.at("state.connection_count")) == number(before.at("state.connection_count"))+1
			})
			for _, e := range listOf(f, "state.connections") {
				s.failIf(entryOf(before, textOf(e, "connection_id")) == nil && (e["role"] != "viewer" || e["controller_lease_granted"] != false), "8.1:viewer",
					"expected the stream's own connection to be a viewer, got %s", show(e))
			}
			p.close()
			s.stateWith("3.2:implicit", "the connection of the closed stream gone", func(f *Frame) bool {
				return number(f.at("state.connection_count")) == number(before.at("state.connection_count")) &&
					number(f.at("state.subscriber_count")) == number(before.at("state.subscriber_count"))
			})
		}),
		overHTTP.driver("sse/opt-outs", "A56 A53", "Opt-outs in the query hold for the stream and leave the state alone", func(s *Session, alice *Caller) {
			p := s.follow("vera", follow{optOuts: []string{"status", "connection_info"}})
			p.begins("A42")
			alice.prompt("unseen")
			s.stateWith("A53", "the unseen status", func(f *Frame) bool { return f.str("state.last_status") == "Prompt: unseen" })
			s.guest("victor") // would be announced
			alice.ask(contracts.RequestApproval, "seen")
			p.expect("A53", requested("seen"))
			p.still("A53", 0, anyOf(message("status"), message("connection_info"))) // and watched all along
			for range 2 {                                                           // opting out of everything leaves snapshots
				all := s.follow("valerie", follow{optOuts: []string{"status", "heartbeat", "connection_info", "compaction"}})
				all.begins("A53")
			}
		}),
		overHTTP.driver("sse/unknown-opt-out", "A56", "An unknown word to opt out of is refused", func(s *Session, _ *Caller) {
			for _, word := range []string{"gossip", "status,gossip", "message", "Status"} {
				s.refusesStream("A56:unknown", "optOutNotifications="+word, contracts.CodeBadRequest)
			}
		}),
		overHTTP.pilot("sse/opt-outs-by-hello", "2.4 A53", "Opt-outs of a later hello hold at once for the streams there are", optsOut("R33:http", "2.4:at-once")),
		overHTTP.attached("sse/raw-events", "A54", "Raw events reach only those who negotiated them", func(s *Session, alice *Caller, own *Peer) {
			rhea := s.caller("rhea", contracts.RoleViewer)
			cursor := rhea.connected(fields{"capabilities": fields{"rawAgentEvents": true}}).snapshot().Cursor
			rhea.subscribed(nil)
			raw := s.follow("rhea", follow{subscription: rhea.subscription, cursor: &cursor, raw: true, header: rhea.proof()})
			plain := s.onlooker("vera")
			alice.prompt(streamOf(3, 0))
			expectAll("A54", message("response_end"), own, raw, plain)
			back := s.follow("victor", follow{cursor: &cursor}) // nor do they come in a replay
			back.expect("A54", message("response_end"))
			for _, p := range []*Peer{own, plain, back} {
				p.still("A54", 0, message("raw_agent_event"))
			}
		}),
		overHTTP.attached("sse/private-hello-ok", "A60", "hello_ok goes to the streams of its sender alone", func(s *Session, alice *Caller, own *Peer) {
			viewers := []*Peer{s.guest("vera").followed(), s.follow("victor", follow{})}
			alice.hello(s.hello(contracts.RoleController)).ok("A60")
			own.expect("A60", message("hello_ok").with("connection_id", alice.connection))
			alice.finish(append(viewers, own)...)
			for _, p := range viewers { // and none was expected all along
				p.none("A60", 0, message("hello_ok"))
			}
			own.count("A60", own.log, message("hello_ok"), 1)
		}),
		overHTTP.driver("sse/unknown-subscription", "A55", "An unknown subscription is refused before any event", func(s *Session, alice *Caller) {
			for _, o := range []follow{{subscription: "sub_nobody"}, {header: http.Header{"X-Maestro-Headless-Subscriber-Id": {"sub_nobody"}}}} {
				s.refusesFollow("A55", o.request(s, "alice"), contracts.CodeStaleSubscription, textNoSubscriber)
			}
			alice.posted("A55", initNothing())
		}),
		overHTTP.pilot("sse/heartbeat", "A57", "An idle stream shows a heartbeat in every interval, with the latest cursor", heartbeats).slow(),
		overHTTP.scenario("sse/keepalive", "1.11 A53", "A stream without heartbeats shows comments instead", func(s *Session) {
			alice := s.pilot().p
			p := s.follow("quinn", follow{optOuts: []string{"heartbeat"}})
			p.begins("A42")
			p.awaitFor("1.11:keepalive", len(p.log), control(kindComment), alice.beat()+s.config.Patience)
			p.none("A53", 0, control("heartbeat"))
		}).slow(),
		overHTTP.attached("sse/newer-wins", "A61", "A second stream on a subscription ends the first", func(_ *Session, alice *Caller, first *Peer) {
			second := alice.follow(first.watch.cursor)
			first.finishes("A61")
			alice.finish(second)
			second.count("A61", second.log, prompted("the end"), 1)
		}),
		overHTTP.attached("sse/attached-does-not-expire", "3.2", "A controller whose stream is read stays", func(s *Session, alice *Caller, p *Peer) {
			lease := s.shortLease(alice.leaseEnd())
			s.pause("3.2", lease+lease/4)
			alice.posted("3.2", initNothing())
			s.failIf(p.ended != nil && p.ended != io.EOF, "3.2", "expected the stream to go on, got: %v", p.ended)
			p.expect("R33:http", initNothingReply)
		}).slow(),
		overHTTP.attached("sse/takeover-visible", "3.4", "The lease's moves are on every stream", func(s *Session, alice *Caller, p *Peer) {
			implicit := s.onlooker("vera")
			bob := s.takeFrom("bob")
			expectAll("3.4:announced", message("connection_info").with("controller_connection_id", bob.connection), p, implicit)
			bob.disconnect(nil).ok("A15")
			expectAll("3.4:announced", control("snapshot").with("state.controller_connection_id", nil), p, implicit)
			alice.posted("A30", initNothing())
			expectAll("3.4:announced", message("connection_info").with("controller_connection_id", alice.connection), p, implicit)
		}),
	}
}

// sameSequence fails at the first difference between a client and others.
func sameSequence(s *Session, rule string, after int64, a *Peer, others ...*Peer) {
	x := sequence(a.log, after)
	for _, b := range others {
		y := sequence(b.log, after)
		for i := range min(len(x), len(y)) {
			s.failIf(x[i] != y[i], rule, "after cursor %d, entry %d: %s received %d %s, %s received %d %s", after, i+1,
				a.name, x[i].cursor, abridge([]byte(x[i].text), 160), b.name, y[i].cursor, abridge([]byte(y[i].text), 160))
		}
		s.failIf(len(x) != len(y), rule, "after cursor %d %s received %d entries, %s %d", after, a.name, len(x), b.name, len(y))
	}
}

// endTogether has every peer read to the last status of its controller, and forget what
// follows.
func endTogether(peers ...*Peer) {
	for _, p := range peers {
		p.expect("A49", prompted("the end"))
		p.cut(prompted("the end"))
	}
}

func sameForAll(s *Session) {
	alice := s.pilot()
	var all []*Peer
	for i := range 5 {
		all = append(all, s.onlooker(fmt.Sprintf("v%d", i)))
	}
	joined := alice.head()
	alice.triggers(streamOf(50, 1))
	all[0].expect("R37", message("response_end"))
	alice.triggers(burstOf(300, 50))
	alice.poses(contracts.RequestApproval, "shared")
	alice.tell("R53", approve("shared", true))
	alice.end(all...)
	n := len(sequence(alice.p.log, joined))
	s.failIf(n < 300, "6.2", "expected at least the 300 messages of the burst, got %d", n)
	sameSequence(s, "2.5", joined, alice.p, all...)
}

func joinWhileLive(s *Session) {
	alice := s.pilot()
	alice.triggers(streamOf(100_000, 2)) // ends when all have joined, however long that takes
	alice.p.expect("R36", message("response_chunk"))
	var joined []*Peer
	for i := range 4 {
		joined = append(joined, s.onlooker(fmt.Sprintf("v%d", i)))
	}
	alice.tell("R37", &contracts.Interrupt{})
	expectAll("R37", message("response_end"), append(joined, alice.p)...)
	whole := chunksOf(alice.p.log)
	for _, p := range joined {
		snap := p.log[slices.IndexFunc(p.log, control("snapshot").ok)]
		got := snap.str("state.current_response.text") + chunksOf(p.log)
		s.failIf(got != whole, "A49", "%s: the snapshot as of %d and what followed hold %d bytes of the response, want %d: lost or repeated",
			p.name, snap.Cursor, len(got), len(whole))
	}
}

// flood publishes more than a system takes for a client that stopped reading. Over HTTP
// the receive buffer of clients is small.
func (d *pilot) flood() {
	const size = 16 << 10
	total := 12 << 20
	if d.c != nil {
		total = 6 << 20
	}
	d.triggers(burstOf(total/size, size))
	d.p.await("A52", d.p.pos, message("status").where("of the burst", func(f *Frame) bool { return len(f.str("message")) >= size }))
}

// slowly attaches a viewer that does not read what follows its handshake.
func (s *Session) slowly(name string) *Peer {
	p := s.onlooker(name)
	p.stall()
	return p
}

func slowFollower(s *Session) {
	alice := s.pilot()
	sloth := s.slowly("sloth")
	joined := alice.head()
	alice.flood()
	alice.end() // while nobody reads the other stream
	sloth.resumeReading()
	if sloth.catchesUp("A51") {
		sloth.cut(prompted("the end"))
		sameSequence(s, "D5", joined, alice.p, sloth)
	}
}

// catchesUp reads to the last status of [pilot.end], on another stream or socket if the server
// gave up on the first: a socket is closed with 4429, with 4408 if the client answered no ping
// either, or without a word, as nothing fits into a connection that is full. It reports false
// if there was a reset, with which a client starts over.
func (p *Peer) catchesUp(rule string) bool {
	givenUp := []int{0, contracts.CodeSlowConsumer.CloseCode(), contracts.CodeTimeout.CloseCode()}
	end := anyOf(prompted("the end"), control("reset").with("state.last_status", "Prompt: the end"))
	reader, log := p, []*Frame(nil)
	for range 3 {
		if reader.seek(0, end, 4*p.s.config.Patience) != nil {
			p.log = append(log, reader.log...)
			return !p.has(control("reset"))
		}
		if reader.ended == nil || !slices.Contains(givenUp, reader.closeCode()) {
			break
		}
		log = append(log, reader.log...)
		if p.stream != nil {
			reader = p.s.backOn(p.name, reader.watch.cursor, p.epoch)
		} else {
			reader = p.s.back(p.name, reader.watch.cursor, p.epoch)
		}
	}
	p.s.fail(rule, "expected a viewer that reads again to get everything, a reset, or a close with 4429, got: %v", reader.ended)
	return false
}

// line is one entry of a normalised sequence.
type line struct {
	cursor int64
	text   string
}

// sequence lists what a client received after a cursor. Consecutive chunks of
// one response count as one, whether or not a server that merges for slow
// readers did so (D5). Private messages are left out, and so is connection_info:
// a server may tell a reader that was slow of the outcome alone.
func sequence(frames []*Frame, after int64) []line {
	var lines []line
	open := "" // the chunks being joined, without their text
	for _, f := range frames {
		if f.Kind != "message" || f.Cursor <= after || f.Type == "hello_ok" || f.Type == "raw_agent_event" || f.Type == "connection_info" {
			continue
		}
		if f.Type != "response_chunk" {
			lines, open = append(lines, line{f.Cursor, string(encode(f.Fields))}), ""
			continue
		}
		key := fmt.Sprint(f.str("response_id"), f.at("is_thinking"))
		if key != open {
			lines, open = append(lines, line{text: key + " "}), key
		}
		last := &lines[len(lines)-1]
		last.cursor, last.text = f.Cursor, last.text+f.str("content")
	}
	return lines
}

// cut forgets what came after the first frame that w wants.
func (p *Peer) cut(w want) {
	if i := slices.IndexFunc(p.log, w.ok); i >= 0 {
		p.log = p.log[:i+1]
		p.pos = min(p.pos, len(p.log))
	}
}

func (p *Peer) has(w want) bool { return slices.ContainsFunc(p.log, w.ok) }

// longestHeartbeat is the longest interval a scenario waits for.
const longestHeartbeat = 20 * time.Second

// beat returns the interval, or skips if it is too long to wait for.
func (p *Peer) beat() time.Duration {
	d := time.Duration(number(p.attached["heartbeat_interval_ms"])) * time.Millisecond
	if d > longestHeartbeat {
		p.s.skip("the heartbeat interval is %s, longer than %s", d, longestHeartbeat)
	}
	return d
}

func streamSnapshotFirst(s *Session) {
	alice := s.driver()
	p := s.follow("vera", follow{})
	f := p.begins("A42")
	s.failIf(f.str("session_id") != s.ID || entryOf(f, alice.connection) == nil, "A42",
		"expected a snapshot of %s with %s in it, got %s", s.ID, alice.connection, f.said())
	alice.prompt("live")
	p.expect("A42", prompted("live"))
}

func heartbeats(s *Session, d *pilot) {
	for range 2 {
		f := d.p.awaitFor("A57", len(d.p.log), control("heartbeat"), d.p.beat()+s.config.Patience)
		head := d.cursor()
		s.failIf(f.Cursor != head, "A57", "expected the latest cursor %d in a heartbeat, got %d", head, f.Cursor)
	}
	d.tell("A57", initNothing())
}
