package conformance

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// httpResumes judges coming back to an event stream: A43 to A50, A58, A59, A62.
var httpResumes = []Scenario{
	overHTTP.scenario("return/missed-items", "A43", "A cursor yields exactly what was missed, then what follows", returnToMissed),
	overHTTP.scenario("return/at-once", "A62", "What was missed comes before anything new happens", func(s *Session) {
		_, _, cursor := gone(s)
		victor := s.backOn("victor", cursor, "") // nobody does anything any more
		victor.expect("A62", message("status").where("with ten b", func(f *Frame) bool { return strings.HasSuffix(f.str("message"), "bbbbbbbbbb") }))
		victor.expect("A62", message("status").with("message", "Prompt: last"))
	}),
	overHTTP.scenario("return/from-the-start", "A43", "Cursor 0 yields the whole journal", returnToStart),
	overHTTP.scenario("return/nothing-missed", "A43", "An up-to-date cursor yields nothing old", func(s *Session) {
		alice, all, _ := gone(s)
		alice.finishRun()
		head := s.state().Cursor
		victor := s.backOn("victor", head, "")
		alice.finish(all, victor)
		sameSequence(s, "A43", head, all, victor)
		victor.none("A43", 0, anyOf(control("reset"), message("status").with("message", "Prompt: last")))
	}),
	overHTTP.scenario("return/many-items", "A50 A43", "A long replay is complete and is no lag", func(s *Session) {
		alice, all := s.attached()
		cursor := s.state().Cursor
		alice.prompt(burstOf(3000, 40))
		alice.finish(all)
		victor := s.backOn("victor", cursor, "")
		done := anyOf(message("status").with("message", "Prompt: the end"), control("reset"))
		victor.expect("A50", done)
		victor.cut(done)
		if victor.last(anyItem).Kind != "reset" { // else retention is shorter than this
			sameSequence(s, "A50", cursor, all, victor)
		}
		victor.none("A50", 0, control("reset").where("reason lagged", func(f *Frame) bool { return f.Body["reason"] == "lagged" }))
	}),
	overHTTP.scenario("return/under-load", "A49", "A client that comes back while the agent speaks sees one sequence", func(s *Session) {
		alice, all := s.attached()
		alice.prompt(streamOf(400, 2))
		var returned []*Peer
		var from []int64
		for _, name := range []string{"v0", "v1", "v2", "v3"} {
			cursor := all.expect("R36", message("response_chunk")).Cursor
			returned, from = append(returned, s.backOn(name, cursor, "")), append(from, cursor)
		}
		all.expect("R37", message("response_end"))
		alice.finish(append(returned, all)...)
		for i, p := range returned {
			sameSequence(s, "A49", from[i], all, p)
			p.none("A49", 0, control("reset"))
		}
	}),
	overHTTP.scenario("return/negative-cursor", "A45", "A negative cursor yields a reset", returnReset("A45", func(*Frame, string) (int64, string) { return -999, "" })),
	overHTTP.scenario("return/future-cursor", "A46", "A cursor beyond the head yields a reset", returnReset("A46", func(f *Frame, _ string) (int64, string) { return f.Cursor + 1_000_000, "" })),
	overHTTP.scenario("return/other-epoch", "1.11", "A cursor of another epoch yields a reset", returnReset("1.11:epoch", func(f *Frame, e string) (int64, string) { return f.Cursor, "x" + e })),
	overHTTP.scenario("return/own-epoch", "1.11", "A cursor with its epoch yields a replay, and every answer names that epoch", func(s *Session) {
		alice, all, cursor := gone(s)
		epochs := []string{all.epoch, s.get(s.route("state")).epoch(), s.get(s.route("")).epoch(),
			alice.connected(nil).epoch(), alice.subscribed(nil).epoch()}
		for _, e := range epochs {
			if e != epochs[0] {
				s.fail("1.11:epoch", "expected one epoch in every answer, got %q", epochs)
			}
		}
		victor := s.backOn("victor", cursor, epochs[0])
		alice.finish(all, victor)
		sameSequence(s, "1.11:epoch", cursor, all, victor)
		victor.none("1.11:epoch", 0, control("reset"))
	}),
	overHTTP.scenario("return/bad-cursor", "1.11", "A cursor that is no number is refused before any event", func(s *Session) {
		s.driver()
		for _, cursor := range []string{"abc", "1.5", "0x10", "1e3", "99999999999999999999999"} {
			s.refusesStream("1.11:cursor", "cursor="+cursor, contracts.CodeBadRequest)
		}
	}),
	overHTTP.scenario("return/last-event-id", "A59 1.11", "Last-Event-ID wins over the cursor in the query", func(s *Session) {
		alice, all, cursor := gone(s)
		late := s.state().Cursor
		for _, query := range []*int64{nil, &late, new(int64)} {
			victor := s.follow("victor", follow{cursor: query, header: http.Header{"Last-Event-Id": {eventID(all, cursor)}}})
			victor.watch.cursor = cursor
			f := victor.first("A59")
			if f.Kind != "message" || f.Cursor <= cursor {
				s.fail("A59", "expected a replay after %d in spite of the query, got %s", cursor, abridge(f.Raw, maxTraceText))
			}
			alice.finish(all, victor)
			sameSequence(s, "A59", cursor, all, victor)
		}
	}),
	overHTTP.scenario("return/foreign-event-id", "A59 1.11", "A Last-Event-ID of another epoch yields a reset", func(s *Session) {
		_, all, cursor := gone(s)
		zero := int64(0)
		victor := s.follow("victor", follow{cursor: &zero, header: http.Header{"Last-Event-Id": {"x" + eventID(all, cursor)}}})
		victor.resetTo("A59", "replay_gap")
	}),
	overHTTP.scenario("return/odd-event-id", "1.11", "A Last-Event-ID of another form is ignored", func(s *Session) {
		_, _, cursor := gone(s)
		for _, id := range []string{"nonsense", "17", "a.b.c", "x."} {
			victor := s.follow("victor", follow{cursor: &cursor, header: http.Header{"Last-Event-Id": {id}}})
			if f := victor.first("1.11:odd-id"); f.Kind != "message" {
				s.fail("1.11:odd-id", "expected the Last-Event-ID %q to be ignored and the cursor to count, got %s", id, abridge(f.Raw, maxTraceText))
			}
			s.follow("vera", follow{header: http.Header{"Last-Event-Id": {id}}}).begins("1.11:odd-id")
		}
	}),
	overHTTP.scenario("return/subscription", "A58", "A subscription survives its stream, and shows what it missed when followed again", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		p := vera.followed()
		all := s.follow("judge", follow{})
		all.begins("A42")
		alice.prompt("before")
		p.expect("A58", message("status").with("message", "Prompt: before"))
		alice.finishRun()
		p.close() // the network drops
		cursor := s.stateWith("A58", "the subscription detached", func(f *Frame) bool {
			e := entryOf(f, vera.connection)
			return same(e["subscription_count"], 1) && same(e["attached_subscription_count"], 0)
		}).Cursor
		cursor = max(cursor, p.watch.cursor)
		alice.prompt(burstOf(50, 10))
		again := vera.follow(cursor)
		alice.finish(all, again)
		sameSequence(s, "A58", cursor, all, again)
		again.none("A58", 0, control("reset"))
	}),
	overHTTP.scenario("return/subscription-without-cursor", "A58 1.11", "A subscription followed again without a cursor loses nothing", func(s *Session) {
		alice := s.driver()
		vera := s.guest("vera")
		p := vera.followed()
		alice.prompt("before")
		p.expect("A58", message("status").with("message", "Prompt: before"))
		p.close()
		s.stateWith("A58", "the subscription detached", func(f *Frame) bool {
			return same(entryOf(f, vera.connection)["attached_subscription_count"], 0)
		})
		alice.prompt("while away")
		again := s.follow("vera", follow{subscription: vera.subscription, header: vera.proof()})
		again.expect("A58", anyOf(message("status").with("message", "Prompt: while away"),
			control("snapshot").with("state.last_status", "Prompt: while away")))
		alice.prompt("now")
		again.expect("A58", message("status").with("message", "Prompt: now"))
	}),
	overHTTP.scenario("return/pending-requests", "A67 A43", "A question asked while a client was away is in what it missed, before its answer", func(s *Session) {
		alice := s.driver()
		cursor := s.state().Cursor
		alice.ask(contracts.RequestApproval, "missed")
		alice.posted("A67", approve("missed", true))
		victor := s.backOn("victor", cursor, "")
		asked := victor.expect("A67", message("server_request").with("request_id", "missed"))
		ended := victor.expect("A67", message("server_request_resolved").with("request_id", "missed").with("resolution", "approved"))
		if ended.Cursor <= asked.Cursor {
			s.fail("A67", "expected the resolution after the request, got cursors %d and %d", ended.Cursor, asked.Cursor)
		}
	}),
}

// gone publishes things while a client is away, and returns the client that saw
// them all and the cursor the other one had before.
func gone(s *Session) (alice *Caller, all *Peer, cursor int64) {
	alice, all = s.attached()
	alice.prompt("before")
	all.expect("A43", message("status").with("message", "Prompt: before"))
	alice.finishRun()
	cursor = s.state().Cursor
	if s.scripted() {
		for range 10 {
			alice.prompt(strings.Repeat("b", 10))
		}
	} else {
		alice.prompt(streamOf(10, 0))
		all.expect("A43", message("response_end"))
		alice.prompt(burstOf(30, 10))
	}
	alice.prompt("last")
	all.expect("A43", message("status").with("message", "Prompt: last"))
	return alice, all, cursor
}

// backOn opens a stream of its own after a cursor.
func (s *Session) backOn(name string, cursor int64, epoch string) *Peer {
	return s.follow(name, follow{cursor: &cursor, epoch: epoch})
}

func returnToMissed(s *Session) {
	alice, all, cursor := gone(s)
	victor := s.backOn("victor", cursor, "")
	victor.expect("A43", message("status").with("message", "Prompt: last"))
	alice.finish(all, victor)
	sameSequence(s, "A43", cursor, all, victor)
	victor.none("A43", 0, control("reset"))
}

func returnToStart(s *Session) {
	alice, all, _ := gone(s)
	victor := s.backOn("victor", 0, "")
	for _, content := range []string{"Prompt: before", "Prompt: last"} {
		victor.expect("A43", message("status").with("message", content))
	}
	alice.finish(all, victor)
	from := all.log[slices.IndexFunc(all.log, control("message").ok)].Cursor - 1
	sameSequence(s, "A43", from, all, victor)
}

// returnReset opens a stream with a cursor that is not in the journal's range.
func returnReset(rule string, where func(f *Frame, epoch string) (int64, string)) func(*Session) {
	return func(s *Session) {
		alice, all, _ := gone(s)
		alice.finishRun()
		cursor, epoch := where(s.state(), all.epoch)
		victor := s.backOn("victor", cursor, epoch)
		victor.watch.cursor = 0 // whatever comes, it need not lie beyond that
		f := victor.resetTo(rule, "replay_gap")
		if f.str("session_id") != s.ID || f.str("state.last_status") != "Prompt: last" {
			s.fail(rule, "expected a reset to the present state, got %s", abridge(f.Raw, maxTraceText))
		}
		alice.finish(victor)
		victor.none(rule, slices.Index(victor.log, f)+1, anyOf(control("reset"), message("status").with("message", "Prompt: last")))
	}
}

// refusesStream fails unless opening a stream with a query is refused.
func (s *Session) refusesStream(rule, query string, code contracts.Code) {
	p, a := s.tryFollow(request{who: "victor", method: http.MethodGet, path: s.route("events?" + query)}, follow{})
	if p != nil {
		s.fail(rule, "expected the query %s to be refused, got a stream", query)
	}
	a.refused(rule, code, "")
}

// eventID is the id of the event with a cursor.
func eventID(p *Peer, cursor int64) string { return p.epoch + "." + strconv.FormatInt(cursor, 10) }
