package hecate

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// heartbeat is how long a stream may be silent (2.3).
const heartbeat = 15 * time.Second

// streams judges the streams of a run: E6, E11 to E15, E36 and E44.
func (u *suite) streams() []conformance.Scenario {
	return []conformance.Scenario{
		u.onSample("stream/same-bytes", "E6 2.3", "The data of a streamed event is the element of the list, byte by byte", func(s *play, r *run) {
			frames, events := s.wholeStream("E6", r, "", "")
			s.sameEvents("E6", "the stream", events, "the list", r.events)
			for _, f := range frames {
				s.failIf(f.name != "", "2.3", "expected no event: line, which keeps a browser's message handler from the event; got %q", f.name)
			}
		}),
		u.onSample("stream/opens", "E11", "A stream begins within a second, also if there is nothing to send", func(s *play, r *run) {
			last := strconv.FormatInt(r.events[len(r.events)-1].sequence, 10)
			for _, path := range []string{r.url() + "?after_sequence=" + last, feedStream + "?event_type=conformance.nothing"} {
				took := s.firstLine(path)
				for tries := 1; took > time.Second && tries < 3; tries++ { // the client's machine may be busy
					took = s.firstLine(path)
				}
				s.failIf(took > time.Second, "E11", "GET %s: expected a first line within 1 s, got none in %s", path, took.Round(time.Millisecond))
			}
		}),
		u.onSample("stream/resume", "E12", "The id of an event is its sequence, and Last-Event-ID goes on after it", func(s *play, r *run) {
			frames, events := s.wholeStream("E12", r, "", "")
			for i, f := range frames {
				s.failIf(f.id != strconv.FormatInt(events[i].sequence, 10), "E12", "%s: expected the id %d, got %q", events[i], events[i].sequence, f.id)
			}
			for _, at := range []int{0, len(r.events) / 2, len(r.events) - 2} {
				if at < 0 {
					continue
				}
				_, rest := s.wholeStream("E12", r, "", strconv.FormatInt(r.events[at].sequence, 10))
				s.sameEvents("E12", fmt.Sprintf("the stream with Last-Event-ID %d", r.events[at].sequence), rest, "the log after it", r.events[at+1:])
			}
		}),
		u.onSample("stream/larger-cursor", "E13", "Of after_sequence and Last-Event-ID the larger counts", func(s *play, r *run) {
			if len(r.events) < 3 {
				s.skip("the run has only %d events", len(r.events))
			}
			low, high := strconv.FormatInt(r.events[0].sequence, 10), strconv.FormatInt(r.events[1].sequence, 10)
			for _, pair := range [][2]string{{low, high}, {high, low}} {
				_, rest := s.wholeStream("E13", r, "?after_sequence="+pair[0], pair[1])
				s.sameEvents("E13", fmt.Sprintf("the stream with after_sequence %s and Last-Event-ID %s", pair[0], pair[1]), rest, "the log after "+high, r.events[2:])
			}
		}),
		u.scenario("stream/live", "E14", "A stream that is opened during a run has every event once, in order", func(s *play) {
			r := s.drive(long)
			f := s.follow(r)
			f.await("E14", "run.started", kind("run.started"))
			early := s.stream("E14", r.url(), "")
			defer early.close()
			first := s.next(early, s.config.Patience)
			s.failIf(first == nil, "E14", "%s: expected the events that the run has so far, got none", early.what)
			s.pause() // there may be more events meanwhile
			s.cancelRun("E14", r)
			_, rest := s.readUntil(early, (*event).ends)
			f.end("E14")
			s.sameEvents("E14", "what a stream showed that was opened during the run", append([]*event{first.envelope()}, rest...), "the log", f.upToEnd())
		}),
		slow(u.scenario("stream/heartbeat", "E15", "A silent stream gets a comment within 15 s, without an id", func(s *play) {
			silence := s.suite.silence
			st := s.stream("E15", feedStream+"?event_type=conformance.nothing", "")
			defer st.close()
			for began := time.Now(); time.Since(began) < silence/2; { // later it is no comment of the beginning
				select {
				case f, open := <-st.frames:
					s.failIf(!open, "E15", "%s: expected a stream that stays open, and it ended: %v", st.what, st.err)
					s.failIf(!f.comment || f.id != "", "E15", "%s: expected only comments without an id, got the id %q and %q", st.what, f.id, f.data)
				case <-time.After(silence + s.config.Patience):
					s.fail("E15", "%s: expected a comment within %s of silence, got none", st.what, silence)
				case <-s.ctx.Done():
					s.fail("E15", "the scenario ran out of time")
				}
			}
		}), 2*(heartbeat+conformance.DefaultPatience)),
		u.scenario("stream/pruned-cursor", "E36", "A cursor among removed events goes on at the first event there is", func(s *play) {
			runs, _ := s.runs()
			for _, k := range runs {
				kept, _ := s.list("E36", k.url()+"?limit=1")
				if len(kept) == 0 || kept[0].sequence == 0 {
					continue
				}
				cursor := strconv.FormatInt(kept[0].sequence/2, 10)
				if kept[0].sequence == 1 {
					cursor = "0"
				}
				rest, _ := s.list("E36", k.url()+"?limit=1&after_sequence="+cursor)
				s.sameEvents("E36", "the list after "+cursor, rest, "the first event there is", kept)
				st := s.stream("E36", k.url()+"?after_sequence="+cursor, "")
				first := s.next(st, s.config.Patience)
				st.close()
				s.failIf(first == nil, "E36", "%s: expected %s, got nothing", st.what, kept[0])
				s.sameEvents("E36", "the stream after "+cursor, []*event{first.envelope()}, "the first event there is", kept)
				return
			}
			s.skip("no run lacks its beginning")
		}),
		u.burstScenario("stream/slow", "E44", "A client that does not read loses no event and does not slow the run", func(s *play, b *burst) {
			s.sameEvents("E44", "what a client saw that read only after the run", b.stalled, "the log", b.upToEnd())
		}),
	}
}

// wholeStream reads the stream of a run that has ended, up to the last event of its list.
func (s *play) wholeStream(rule string, r *run, query, lastEventID string) ([]frame, []*event) {
	st := s.stream(rule, r.url()+query, lastEventID)
	defer st.close()
	last := r.events[len(r.events)-1]
	return s.readUntil(st, func(e *event) bool { return e.sequence >= last.sequence })
}

// firstLine returns how much longer the first line of a stream took that has nothing to send than the
// answer to a list does on this machine.
func (s *play) firstLine(path string) time.Duration {
	began := time.Now()
	st := s.stream("E11", path, "")
	defer st.close()
	select {
	case f, open := <-st.frames:
		s.failIf(open && !f.comment, "E11", "%s: expected a comment first, as there is nothing to send; got %s", st.what, f.data)
	case <-time.After(s.config.Patience):
	case <-s.ctx.Done():
	}
	took := time.Since(began)
	s.call("E11", http.MethodGet, feedList+"?limit=1", nil)
	return 2*took - time.Since(began)
}

// upToEnd returns the events of a run without the gap events after its end.
func (r *run) upToEnd() []*event {
	at := slices.IndexFunc(r.events, (*event).ends)
	if at < 0 {
		return r.events
	}
	return r.events[:at+1]
}

// cancelRun cancels a run and fails if the server refuses. If the run ended by itself before,
// the scenario is skipped.
func (s *play) cancelRun(rule string, r ref) {
	a := s.call(rule, http.MethodPost, r.path()+"/cancel", []byte(`{"reason":"conformance"}`))
	if all := (&run{events: s.whole(rule, r, -1)}); a.status/100 != 2 && all.end() != nil {
		s.skip("the run ended before it was cancelled: %s", short(all.end().raw))
	}
	s.failIf(a.status/100 != 2, rule, "%s: expected the run to be cancelled, got %d %s", a.what, a.status, short(a.body))
}

// quiet is how long a scenario waits before it believes that nothing comes.
const quiet = 300 * time.Millisecond

// pause waits until what must not happen would have happened.
func (s *play) pause() { _ = sleep.For(s.ctx, quiet) }
