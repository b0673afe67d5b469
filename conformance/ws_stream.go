package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// wsStreams judges what followers receive: A42 to A60.
var wsStreams = []Scenario{
	onSocket.scenario("stream/snapshot-first", "A42 9.3", "Without a cursor a stream starts with a snapshot, then lives", func(s *Session) {
		alice := s.controller() // welcome checks the order
		if got := alice.attached["resume"]; got != "snapshot" {
			s.fail("A42", "expected resume \"snapshot\" without a cursor, got %s", show(got))
		}
		if alice.attached["session_id"] != s.ID {
			s.fail("9.2", "expected ws.attached for session %s, got %s", s.ID, show(alice.attached["session_id"]))
		}
		if n := number(alice.attached["heartbeat_interval_ms"]); n <= 0 {
			s.fail("9.2", "expected a positive heartbeat_interval_ms, got %d", n)
		}
		at := slices.IndexFunc(alice.log, message("hello_ok").ok)
		if alice.log[at].Cursor <= alice.last(control("snapshot")).Cursor {
			s.fail("9.3", "expected hello_ok after the snapshot in cursor order, got %d after %d", alice.log[at].Cursor, alice.last(control("snapshot")).Cursor)
		}
	}),
	onSocket.scenario("stream/same-for-all", "2.5 A48", "Every viewer receives the identical sequence", func(s *Session) {
		alice := s.controller()
		var all []*Peer
		for i := range 5 {
			all = append(all, s.viewer(fmt.Sprintf("v%d", i)))
		}
		joined := all[len(all)-1].last(message("hello_ok")).Cursor
		alice.prompt(streamOf(50, 1))
		alice.expect("R37", message("response_end"))
		alice.prompt(burstOf(300, 50))
		alice.ask(contracts.RequestApproval, "shared")
		alice.accepted("R53", alice.command(approve("shared", true)))
		finish(alice, all...)
		if n := len(sequence(alice.log, joined)); n < 300 {
			s.fail("6.2", "expected at least the 300 messages of the burst, got %d", n)
		}
		for _, p := range all {
			sameSequence(s, "2.5", joined, alice, p)
		}
	}),
	onSocket.scenario("stream/join-while-live", "A49", "A client that joins under load misses nothing and sees nothing twice", func(s *Session) {
		alice := s.controller()
		alice.prompt(streamOf(10_000, 2)) // ends when all have joined, however long that takes
		alice.expect("R36", message("response_chunk"))
		var joined []*Peer
		for i := range 4 {
			joined = append(joined, s.viewer(fmt.Sprintf("v%d", i)))
		}
		alice.command(&contracts.Interrupt{})
		alice.expect("R37", message("response_end"))
		finish(alice, joined...)
		whole := chunksOf(alice.log)
		for _, p := range joined {
			snap := p.log[slices.IndexFunc(p.log, control("snapshot").ok)]
			if got := snap.str("state.current_response.text") + chunksOf(p.log); got != whole {
				s.fail("A49", "%s: the snapshot as of %d and what followed hold %d bytes of the response, want %d: lost or repeated",
					p.name, snap.Cursor, len(got), len(whole))
			}
		}
	}),
	onSocket.scenario("stream/slow-viewer", "A52", "A viewer that stops reading delays nobody", func(s *Session) {
		alice := s.controller()
		s.slowly("sloth")
		fast := s.viewer("vera")
		joined := fast.last(message("hello_ok")).Cursor
		flood(alice)
		finish(alice, fast)
		sameSequence(s, "A52", joined, alice, fast)
	}),
	onSocket.scenario("stream/slow-viewer-catches-up", "A51 D5", "A viewer that reads again gets all the text, or a reset that holds it", func(s *Session) {
		alice := s.controller()
		sloth := s.slowly("sloth")
		joined := sloth.last(message("hello_ok")).Cursor
		flood(alice)
		finish(alice)
		sloth.resumeReading()
		if sloth.catchesUp("A51") {
			sloth.cut(message("status").with("message", "Prompt: the end"))
			sameSequence(s, "D5", joined, alice, sloth)
		}
	}),
	onSocket.slowScenario("stream/heartbeat", "A57", "An idle stream shows a heartbeat in every interval", heartbeat),
	onSocket.slowScenario("stream/heartbeat-opted-out", "A53", "An opted-out heartbeat stays away", func(s *Session) {
		alice := s.controller()
		h := s.hello(contracts.RoleViewer)
		h.OptOutNotifications = []contracts.Notification{contracts.NotifyHeartbeat}
		quietOne := s.attach("quinn", entry{role: contracts.RoleViewer, hello: h})
		alice.awaitFor("A57", 0, control("heartbeat"), alice.beat()+3*time.Second)
		s.pause("A53", alice.beat()/2)
		quietOne.still("A53", 0, control("heartbeat"))
	}),
	onSocket.scenario("stream/connections-announced", "4.3", "Who comes and goes is announced", func(s *Session) {
		alice := s.controller()
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
			if c["controller_lease_granted"] != want {
				s.fail("4.3", "expected controller_lease_granted %t for %s, got %s", want, textOf(c, "connection_id"), show(c))
			}
		}
		vera.send([]byte(`{"type":"ws.bye"}`))
		alice.await("4.3", slices.Index(alice.log, f), anyOf(count(1),
			control("snapshot").with("state.connection_count", 1)))
	}),
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

// sameSequence fails at the first difference between two clients.
func sameSequence(s *Session, rule string, after int64, a, b *Peer) {
	x, y := sequence(a.log, after), sequence(b.log, after)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			s.fail(rule, "after cursor %d, entry %d: %s received %d %s, %s received %d %s", after, i+1,
				a.name, x[i].cursor, abridge([]byte(x[i].text), 160), b.name, y[i].cursor, abridge([]byte(y[i].text), 160))
		}
	}
	if len(x) != len(y) {
		s.fail(rule, "after cursor %d %s received %d entries, %s %d", after, a.name, len(x), b.name, len(y))
	}
}

// finish drives until every peer has seen a last status, so that their logs
// end at the same entry.
func finish(driver *Peer, peers ...*Peer) {
	driver.prompt("the end")
	done := message("status").with("message", "Prompt: the end")
	for _, p := range append(peers, driver) {
		p.expect("A49", done)
		p.cut(done)
	}
}

// cut forgets what came after the first frame that w wants.
func (p *Peer) cut(w want) {
	if i := slices.IndexFunc(p.log, w.ok); i >= 0 {
		p.log = p.log[:i+1]
		p.pos = min(p.pos, len(p.log))
	}
}

// bulky is how much a slow viewer is sent: enough to fill any socket buffer.
const bulky = 12 << 20

// flood publishes bulky bytes.
func flood(alice *Peer) {
	const size = 16 << 10
	alice.prompt(burstOf(bulky/size, size))
	alice.awaitFor("A52", alice.pos, message("status").where("of the burst", func(f *Frame) bool {
		return len(f.str("message")) >= size
	}), alice.s.config.Patience)
}

// slowly attaches a viewer that does not read what follows its handshake.
func (s *Session) slowly(name string) *Peer {
	p := s.viewer(name)
	p.stall()
	return p
}

// catchesUp reads to the last status of [finish], on another socket if the server
// gave up on the first: with 4429, or without a word, as nothing fits into a
// connection that is full. It reports false if there was a reset, with which a
// client starts over.
func (p *Peer) catchesUp(rule string) bool {
	const last = "Prompt: the end"
	end := anyOf(message("status").with("message", last), control("reset").with("state.last_status", last))
	reader, log := p, []*Frame(nil)
	for range 3 {
		if reader.readsUntil(end) {
			p.log = append(log, reader.log...)
			return !p.has(control("reset"))
		}
		if code := reader.closeCode(); reader.ended == nil || code != 0 && code != contracts.CodeSlowConsumer.CloseCode() {
			break
		}
		log = append(log, reader.log...)
		reader = p.s.back(p.name, reader.watch.cursor, p.epoch)
	}
	p.s.fail(rule, "expected a viewer that reads again to get everything, a reset, or a close with 4429, got: %v", reader.ended)
	return false
}

// readsUntil reads until w has come, and reports false if it did not.
func (p *Peer) readsUntil(w want) bool {
	ctx, cancel := p.s.within(4 * p.s.config.Patience)
	defer cancel()
	for !p.has(w) && p.pull(ctx) {
	}
	return p.has(w)
}

// has reports whether the log has what w wants.
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

func heartbeat(s *Session) {
	p := s.controller()
	f := p.awaitFor("A57", 0, control("heartbeat"), p.beat()+3*time.Second)
	if f.Cursor < p.last(control("snapshot")).Cursor {
		s.fail("A57", "expected the latest cursor in a heartbeat, got %d", f.Cursor)
	}
	p.accepted("9.4", p.command(initNothing()))
}
