package conformance

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// resumes judges coming back after a cursor: A43 to A50, A58, A59, A62, A114, and 9.3.
func resumes() []Scenario {
	return []Scenario{
		onSocket.scenario("resume/missed-items", "A43 A114", "A cursor of this epoch yields exactly what was missed", missedItems),
		overHTTP.scenario("return/missed-items", "A43", "A cursor yields exactly what was missed, then what follows", missedItems),
		onSocket.scenario("resume/nothing-missed", "A43 A114", "An up-to-date cursor yields nothing old", nothingMissed),
		overHTTP.scenario("return/nothing-missed", "A43", "An up-to-date cursor yields nothing old", nothingMissed),
		onSocket.scenario("resume/from-the-start", "A43", "A cursor at the start yields the whole journal", fromTheStart),
		overHTTP.scenario("return/from-the-start", "A43", "Cursor 0 yields the whole journal", fromTheStart),
		onSocket.scenario("resume/many-items", "A50 A43", "A long replay is complete and is no lag", manyItems),
		overHTTP.scenario("return/many-items", "A50 A43", "A long replay is complete and is no lag", manyItems),
		onSocket.scenario("resume/under-load", "A49 A114", "A client that resumes while the agent speaks sees one sequence", underLoad),
		overHTTP.scenario("return/under-load", "A49", "A client that comes back while the agent speaks sees one sequence", underLoad),
		onSocket.scenario("resume/negative-cursor", "A45", "A negative cursor yields a reset", negativeCursor),
		overHTTP.scenario("return/negative-cursor", "A45", "A negative cursor yields a reset", negativeCursor),
		onSocket.scenario("resume/future-cursor", "A46", "A cursor beyond the head yields a reset", futureCursor),
		overHTTP.scenario("return/future-cursor", "A46", "A cursor beyond the head yields a reset", futureCursor),
		onSocket.scenario("resume/other-epoch", "A114", "A cursor of another epoch yields a reset", otherEpoch("A114")),
		overHTTP.scenario("return/other-epoch", "1.11", "A cursor of another epoch yields a reset", otherEpoch("1.11:epoch")),
		onSocket.scenario("resume/pending-requests", "A43 A67", "A request made while a client was away is in what it missed", missedRequest),
		overHTTP.scenario("return/pending-requests", "A67 A43", "A question asked while a client was away is in what it missed, before its answer", missedRequest),

		onSocket.controller("resume/same-connection", "A114 9.3", "With its token a dropped client is the same connection, lease included", func(s *Session, alice *Peer) {
			alice.prompt("before")
			alice.expect("6.2", prompted("before"))
			alice.fence()
			how := returning(alice, alice.token)
			alice.close() // the network drops
			again := s.attach("alice", how)
			again.isAgain(alice)
			again.replays("A114")
			again.prompt("after")
			again.expect("9.3", prompted("after"))
		}),
		onSocket.controller("resume/after-bye-keep", "9.2 9.3", "ws.bye with keep only detaches", func(s *Session, alice *Peer) {
			alice.fence()
			how := returning(alice, alice.token)
			alice.send([]byte(`{"type":"ws.bye","keep":true}`))
			alice.closes("9.5", 1000)
			s.try("bob", entry{role: contracts.RoleController}).heldRefusal(s)
			s.attach("alice", how).isAgain(alice)
		}),
		onSocket.controller("resume/wrong-token", "9.3 A40", "With a wrong token it is a new connection without the lease", func(s *Session, alice *Peer) {
			how := returning(alice, "not-"+alice.token)
			how.role, how.hello = contracts.RoleViewer, s.hello(contracts.RoleViewer)
			mallory := s.attach("mallory", how)
			mallory.told("9.3", fields{"controller_lease_granted": false})
			s.failIf(mallory.connection == alice.connection, "9.3", "expected a new connection for a wrong token, got %s again", alice.connection)
			alice.accepted("A40", alice.command(initNothing()))
		}),
		onSocket.controller("resume/superseded", "A61 9.5", "A newer socket on a connection ends the older", func(s *Session, alice *Peer) {
			alice.fence()
			again := s.attach("alice", returning(alice, alice.token))
			again.isAgain(alice)
			alice.closes("9.5", contracts.CodeSuperseded.CloseCode())
			again.accepted("A61", again.command(initNothing()))
		}),

		overHTTP.scenario("return/at-once", "A62", "What was missed comes before anything new happens", func(s *Session) {
			_, cursor := away(s)
			victor := s.backOn("victor", cursor, "") // nobody does anything any more
			victor.expect("A62", message("status").where("with ten b", func(f *Frame) bool { return strings.HasSuffix(f.str("message"), "bbbbbbbbbb") }))
			victor.expect("A62", prompted("last"))
		}),
		overHTTP.scenario("return/own-epoch", "1.11", "A cursor with its epoch yields a replay, and every answer names that epoch", func(s *Session) {
			alice, cursor := away(s)
			epochs := []string{alice.p.epoch, s.get(s.route("state")).epoch(), s.get(s.route("")).epoch(),
				alice.c.connected(nil).epoch(), alice.c.subscribed(nil).epoch()}
			for _, e := range epochs {
				s.failIf(e != epochs[0], "1.11:epoch", "expected one epoch in every answer, got %q", epochs)
			}
			victor := s.backOn("victor", cursor, epochs[0])
			alice.end(victor)
			sameSequence(s, "1.11:epoch", cursor, alice.p, victor)
			victor.none("1.11:epoch", 0, control("reset"))
		}),
		overHTTP.driver("return/bad-cursor", "1.11", "A cursor that is no number is refused before any event", func(s *Session, _ *Caller) {
			for _, cursor := range []string{"abc", "1.5", "0x10", "1e3", "99999999999999999999999"} {
				s.refusesStream("1.11:cursor", "cursor="+cursor, contracts.CodeBadRequest)
			}
		}),
		overHTTP.scenario("return/last-event-id", "A59 1.11", "Last-Event-ID wins over the cursor in the query", func(s *Session) {
			alice, cursor := away(s)
			late := s.state().Cursor
			for _, query := range []*int64{nil, &late, new(int64)} {
				victor := s.follow("victor", follow{cursor: query, header: lastEvent(eventID(alice.p, cursor))})
				victor.watch.cursor = cursor
				f := victor.first("A59")
				s.failIf(f.Kind != "message" || f.Cursor <= cursor, "A59", "expected a replay after %d in spite of the query, got %s", cursor, f.said())
				alice.end(victor)
				sameSequence(s, "A59", cursor, alice.p, victor)
			}
		}),
		overHTTP.scenario("return/foreign-event-id", "A59 1.11", "A Last-Event-ID of another epoch yields a reset", func(s *Session) {
			alice, cursor := away(s)
			s.follow("victor", follow{cursor: new(int64), header: lastEvent("x" + eventID(alice.p, cursor))}).resetTo("A59", "replay_gap")
		}),
		overHTTP.scenario("return/odd-event-id", "1.11", "A Last-Event-ID of another form is ignored", func(s *Session) {
			_, cursor := away(s)
			for _, id := range []string{"nonsense", "17", "a.b.c", "x."} {
				f := s.follow("victor", follow{cursor: &cursor, header: lastEvent(id)}).first("1.11:odd-id")
				s.failIf(f.Kind != "message", "1.11:odd-id", "expected the Last-Event-ID %q to be ignored and the cursor to count, got %s", id, f.said())
				s.follow("vera", follow{header: lastEvent(id)}).begins("1.11:odd-id")
			}
		}),
		overHTTP.scenario("return/subscription", "A58", "A subscription survives its stream, and shows what it missed when followed again", func(s *Session) {
			alice, vera, p := detached(s)
			all := s.onlooker("judge")
			cursor := max(s.state().Cursor, p.watch.cursor)
			alice.prompt(burstOf(50, 10))
			again := vera.follow(cursor)
			alice.finish(all, again)
			sameSequence(s, "A58", cursor, all, again)
			again.none("A58", 0, control("reset"))
		}),
		overHTTP.scenario("return/subscription-without-cursor", "A58 1.11", "A subscription followed again without a cursor loses nothing", func(s *Session) {
			alice, vera, _ := detached(s)
			alice.prompt("while away")
			again := s.follow("vera", follow{subscription: vera.subscription, header: vera.proof()})
			again.expect("A58", anyOf(prompted("while away"), control("snapshot").with("state.last_status", "Prompt: while away")))
			alice.prompt("now")
			again.expect("A58", prompted("now"))
		}),
	}
}

// away publishes things while a client is away. It returns the controller, which saw them
// all, and the cursor that the client had before.
func away(s *Session) (alice *pilot, cursor int64) {
	alice = s.pilot()
	alice.triggers("before")
	alice.p.expect("A43", prompted("before"))
	cursor = alice.head()
	if s.scripted() {
		for range 10 {
			alice.triggers(strings.Repeat("b", 10))
		}
	} else {
		alice.triggers(streamOf(10, 0))
		alice.p.expect("A43", message("response_end"))
		alice.triggers(burstOf(30, 10))
	}
	alice.triggers("last")
	alice.p.expect("A43", prompted("last"))
	return alice, cursor
}

// back attaches a viewer with a cursor.
func (s *Session) back(name string, cursor int64, epoch string) *Peer {
	return s.attach(name, entry{role: contracts.RoleViewer, cursor: &cursor, epoch: epoch})
}

// backOn opens a stream of its own after a cursor.
func (s *Session) backOn(name string, cursor int64, epoch string) *Peer {
	return s.follow(name, follow{cursor: &cursor, epoch: epoch})
}

// replays fails unless a client is shown a replay: a socket is promised one.
func (p *Peer) replays(rule string) *Peer {
	if p.stream == nil {
		p.s.equal(rule, p.name+"'s resume", p.attached["resume"], "replay")
	}
	p.none(rule, 0, control("reset"))
	if p.stream == nil {
		p.none(rule, 0, control("snapshot"))
	}
	return p
}

func missedItems(s *Session) {
	alice, cursor := away(s)
	victor := alice.comesBack("victor", cursor)
	victor.expect("A43", prompted("last"))
	alice.end(victor.replays("A43"))
	sameSequence(s, "A43", cursor, alice.p, victor)
	victor.none("A43", 0, control("reset"))
}

func nothingMissed(s *Session) {
	alice, _ := away(s)
	head := alice.head()
	victor := alice.comesBack("victor", head).replays("A43")
	alice.end(victor)
	sameSequence(s, "A43", head, alice.p, victor)
	victor.none("A43", 0, anyOf(control("reset"), prompted("last")))
}

func fromTheStart(s *Session) {
	alice, _ := away(s)
	start := int64(0)
	if alice.c == nil {
		start = alice.p.last(control("snapshot")).Cursor
	}
	victor := alice.comesBack("victor", start)
	victor.expect("A43", prompted("before"))
	victor.expect("A43", prompted("last"))
	alice.end(victor.replays("A43"))
	from := alice.p.log[slices.IndexFunc(alice.p.log, control("message").ok)].Cursor - 1
	sameSequence(s, "A43", max(start, from), alice.p, victor)
}

func manyItems(s *Session) {
	alice := s.pilot()
	cursor := alice.head()
	alice.triggers(burstOf(3000, 40))
	alice.end()
	victor := alice.comesBack("victor", cursor)
	done := anyOf(prompted("the end"), control("reset"))
	victor.expect("A50", done)
	victor.cut(done)
	if victor.last(anyItem).Kind != "reset" { // else retention is shorter than this
		sameSequence(s, "A50", cursor, alice.p, victor)
	}
	victor.none("A50", 0, control("reset").where("reason lagged", func(f *Frame) bool { return f.Body["reason"] == "lagged" }))
}

func underLoad(s *Session) {
	alice := s.pilot()
	alice.triggers(streamOf(400, 2))
	from := map[*Peer]int64{}
	for _, name := range []string{"v0", "v1", "v2", "v3"} {
		cursor := alice.p.expect("R36", message("response_chunk")).Cursor
		from[alice.comesBack(name, cursor).replays("A49")] = cursor
	}
	alice.p.expect("R37", message("response_end"))
	alice.end(slices.Collect(maps.Keys(from))...)
	for p, cursor := range from {
		sameSequence(s, "A49", cursor, alice.p, p)
		p.none("A49", 0, control("reset"))
	}
}

// resetFor attaches a viewer with a cursor that is not in the journal's range.
func resetFor(s *Session, rule string, where func(head int64, epoch string) (int64, string)) {
	alice, _ := away(s)
	cursor, epoch := where(alice.head(), alice.p.epoch)
	var victor *Peer
	if alice.c != nil {
		victor = s.backOn("victor", cursor, epoch)
		victor.watch.cursor = 0 // whatever comes, it need not lie beyond that
	} else {
		how := entry{role: contracts.RoleViewer, cursor: &cursor, epoch: epoch}
		victor = s.dialed("victor", how)
		victor.greet(how)
		s.shows(rule, victor.await(rule, 0, control("ws.attached")), fields{"resume": "reset"})
		victor.welcome(how) // checks that a reset comes first
	}
	f := victor.resetTo(rule, "replay_gap")
	s.shows(rule, f, fields{"session_id": s.ID, "state.last_status": "Prompt: last"})
	alice.end(victor)
	victor.none(rule, victor.indexAfter(f), anyOf(control("reset"), prompted("last")))
}

func negativeCursor(s *Session) {
	resetFor(s, "A45", func(int64, string) (int64, string) { return -999, "" })
}

func futureCursor(s *Session) {
	resetFor(s, "A46", func(head int64, epoch string) (int64, string) {
		if s.wire != nil {
			epoch = ""
		}
		return head + 1_000_000, epoch
	})
}

func otherEpoch(rule string) func(*Session) {
	return func(s *Session) {
		resetFor(s, rule, func(head int64, epoch string) (int64, string) { return head, "x" + epoch })
	}
}

func missedRequest(s *Session) {
	alice := s.pilot()
	cursor := alice.head()
	alice.poses(contracts.RequestApproval, "missed")
	alice.tell("A67", approve("missed", true))
	victor := alice.comesBack("victor", cursor)
	asked := victor.await("A43", 0, requested("missed"))
	ended := victor.await("A67", victor.indexAfter(asked), resolved("missed").with("resolution", "approved"))
	s.failIf(ended.Cursor <= asked.Cursor, "A67", "expected the resolution after the request, got cursors %d and %d", ended.Cursor, asked.Cursor)
}

// returning is how a controller comes back to its own connection.
func returning(p *Peer, token string) entry {
	cursor := p.watch.cursor
	return entry{role: contracts.RoleController, cursor: &cursor, epoch: p.epoch, connection: p.connection, resume: token}
}

func (p *Peer) isAgain(earlier *Peer) {
	for _, key := range []string{"connection_id", "subscription_id", "epoch"} {
		p.s.equal("9.3", "the "+key+" of a client that comes back", p.attached[key], earlier.attached[key])
	}
	p.s.failIf(p.attached["controller_lease_granted"] != true, "9.3", "expected the lease to be kept for a client that comes back in time")
}

// refusesStream fails unless opening a stream with a query is refused.
func (s *Session) refusesStream(rule, query string, code contracts.Code) {
	s.refusesFollow(rule, request{who: "victor", method: http.MethodGet, path: s.route("events?" + query)}, code, "")
}

// refusesFollow is refusesStream for any request.
func (s *Session) refusesFollow(rule string, r request, code contracts.Code, text string) {
	p, a := s.tryFollow(r, follow{})
	s.failIf(p != nil, rule, "expected %s to be refused, got a stream", r.path)
	a.refused(rule, code, text)
}

func eventID(p *Peer, cursor int64) string { return p.epoch + "." + strconv.FormatInt(cursor, 10) }

func lastEvent(id string) http.Header { return http.Header{"Last-Event-Id": {id}} }

// detached returns a controller, a viewer whose stream dropped after the first prompt, and
// the stream.
func detached(s *Session) (alice, vera *Caller, p *Peer) {
	alice, vera = s.driver(), s.guest("vera")
	p = vera.followed()
	alice.prompt("before")
	p.expect("A58", prompted("before"))
	alice.finishRun()
	p.close() // the network drops
	s.stateWith("A58", "the subscription detached", func(f *Frame) bool {
		e := entryOf(f, vera.connection)
		return same(e["subscription_count"], 1) && same(e["attached_subscription_count"], 0)
	})
	return alice, vera, p
}
