package hecate

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/conformance"
)

// feeds judges the events of all runs: E17 to E19.
func (u *suite) feeds() []conformance.Scenario {
	return []conformance.Scenario{
		u.scenario("feed/concurrent", "E17", "The cross-run stream has the events of concurrent runs, in order, with increasing ids", func(s *play) {
			s.mustSettle()
			st := s.stream("E17", feedStream, s.suite.feed.position())
			defer st.close()
			slow, fast := s.follow(s.drive(long)), s.follow(s.drive(say))
			fast.end("E17")
			s.cancelRun("E17", slow.ref)
			slow.end("E17")
			want := map[string][]*event{slow.ref.run: slow.upToEnd(), fast.ref.run: fast.upToEnd()}
			got, open := map[string][]*event{}, len(want)
			frames, _ := s.readUntil(st, func(e *event) bool {
				if want[e.run] != nil {
					got[e.run] = append(got[e.run], e)
					if e.ends() {
						open--
					}
				}
				return open == 0
			})
			for id, events := range want {
				s.sameEvents("E17", "the events of "+id+" on the cross-run stream", got[id], "its log", events)
			}
			s.increase("E17", frames)
		}),
		u.onSample("feed/resume", "E18", "The cross-run stream goes on after its own Last-Event-ID and misses nothing", func(s *play, r *run) {
			last := r.end()
			isLast := func(e *event) bool { return e.id == last.id }
			whole := s.stream("E18", feedStream, r.since)
			frames, events := s.readUntil(whole, isLast)
			whole.close()
			s.failIf(len(events) == 0 || !isLast(events[len(events)-1]), "E18", "%s: expected it to come to %s", whole.what, last)
			for _, at := range []int{0, len(frames) / 3, len(frames) - 2} {
				if at < 0 {
					continue
				}
				st := s.stream("E18", feedStream, frames[at].id)
				_, rest := s.readUntil(st, isLast)
				st.close()
				s.sameEvents("E18", "the cross-run stream with Last-Event-ID "+frames[at].id, rest, "what followed that event before", events[at+1:])
			}
		}),
		u.onSample("feed/filters", "E19", "event_type and task_id restrict the cross-run list and stream", func(s *play, r *run) {
			types := []string{r.events[0].kind, r.end().kind}
			ofTask := s.feedPages(url.Values{"task_id": {r.task}})
			for _, e := range ofTask {
				s.failIf(e.task != r.task, "E19", "task_id=%s: expected only events of this task, got %s of %q", r.task, e, e.task)
			}
			s.failIf(len(ofTask) < len(r.events), "E19", "task_id=%s: expected at least the %d events of %s, got %d", r.task, len(r.events), r.ref.run, len(ofTask))
			both := s.feedPages(url.Values{"task_id": {r.task}, "event_type": {strings.Join(types, ",")}})
			want := slices.DeleteFunc(slices.Clone(ofTask), func(e *event) bool { return !slices.Contains(types, e.kind) })
			s.sameEvents("E19", fmt.Sprintf("event_type=%s with task_id=%s", strings.Join(types, ","), r.task), both, "the events of these types and this task", want)
			for _, e := range s.feedPages(url.Values{"event_type": {types[0]}}) {
				s.failIf(e.kind != types[0], "E19", "event_type=%s: expected only this type, got %s", types[0], e)
			}
			st := s.stream("E19", feedStream+"?"+url.Values{"task_id": {r.task}, "event_type": {strings.Join(types, ",")}}.Encode(), "")
			defer st.close()
			_, streamed := s.readUntil(st, func(e *event) bool { return e.id == want[len(want)-1].id })
			s.sameEvents("E19", "the stream with event_type and task_id", streamed, "the list", want)
		}),
	}
}

// increase fails unless the ids of frames increase.
func (s *play) increase(rule string, frames []frame) {
	last := int64(-1)
	for _, f := range frames {
		id, err := strconv.ParseInt(f.id, 10, 64)
		s.failIf(err != nil || id <= last, rule, "the cross-run stream: expected an id greater than %d, got %q", last, f.id)
		last = id
	}
}

// maxPages bounds the pages of a cross-run list that are read.
const maxPages = 100

// feedPages returns the cross-run list with some filters, as far as the server gives cursors.
func (s *play) feedPages(query url.Values) (all []*event) {
	query.Set("limit", "200")
	for range maxPages {
		events, page := s.list("E19", feedList+"?"+query.Encode())
		if all = append(all, events...); len(events) == 0 || page.Next == "" {
			break
		}
		query.Set("after_sequence", page.Next.String())
	}
	return all
}
