package hecate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/seed-028515a8/maestro/conformance"
)

// lists judges the lists of a run's events and the errors: E5, E7 to E10, and E16.
func (u *suite) lists() []conformance.Scenario {
	return []conformance.Scenario{
		u.onSample("list/same-bytes", "E5", "Two fetches of a run that has ended give the same bytes", func(s *play, r *run) {
			first, second := s.whole("E5", r.ref, -1), s.whole("E5", r.ref, -1)
			s.sameEvents("E5", "the second fetch", second, "the first", first)
			s.sameEvents("E5", "a fetch after the end", first[:min(len(first), len(r.events))], "the fetch at the end", r.events)
		}),
		u.onSample("list/pages", "E7", "limit bounds a page, and pages joined by after_sequence are the whole log", func(s *play, r *run) {
			for _, limit := range []int{1, 3} {
				var all []*event
				path := fmt.Sprintf("%s?limit=%d", r.url(), limit)
				for len(all) <= len(r.events) {
					page, _ := s.list("E7", path)
					s.failIf(len(page) > limit, "E7", "%s: expected at most %d events, got %d", path, limit, len(page))
					if len(page) == 0 {
						break
					}
					all = append(all, page...)
					path = fmt.Sprintf("%s?limit=%d&after_sequence=%d", r.url(), limit, page[len(page)-1].sequence)
				}
				s.sameEvents("E7", fmt.Sprintf("the log in pages of %d", limit), all, "the log", r.events)
			}
		}),
		u.onSample("list/after", "E8", "after_sequence=N gives what is after N; absent or -1, everything", func(s *play, r *run) {
			for i, e := range r.events[:min(len(r.events), 4)] { // enough of them
				rest, _ := s.list("E8", fmt.Sprintf("%s?limit=500&after_sequence=%d", r.url(), e.sequence))
				s.sameEvents("E8", fmt.Sprintf("the list after %d", e.sequence), rest, "the log after it", r.events[i+1:])
			}
			for _, cursor := range []string{"", "&after_sequence=-1"} {
				first, _ := s.list("E8", r.url()+"?limit=1"+cursor)
				s.sameEvents("E8", "the list with limit=1"+cursor, first, "the first event", r.events[:1])
			}
		}),
		u.onSample("list/bad-cursor", "E9", "A limit or a cursor that is none is refused with 400", func(s *play, r *run) {
			for _, query := range []string{"limit=0", "limit=x", "limit=1&after_sequence=x", "limit=1&after_sequence=-2", "limit=1&after_sequence=9223372036854775808"} {
				for _, path := range []string{r.url(), feedList} {
					s.refused("E9", http.StatusBadRequest, http.MethodGet, path+"?"+query, nil)
				}
			}
		}),
		u.onSample("list/most", "E9", "A page has at most 500 events", func(s *play, _ *run) {
			longest := s.suite.feed.longest()
			page, _ := s.list("E9", longest.url()+"?limit=100000")
			s.failIf(len(page) > maxPage, "E9", "limit=100000: expected at most %d events, got %d", maxPage, len(page))
			s.failIf(len(page) == 0, "E9", "limit=100000: expected the events of %s, got none", longest.path())
		}),
		u.onSample("list/exhausted", "E10", "A list has object and data, and data is [] after the last event", func(s *play, r *run) {
			for _, after := range []int64{r.events[len(r.events)-1].sequence, 1 << 40} {
				events, page := s.list("E10", fmt.Sprintf("%s?limit=10&after_sequence=%d", r.url(), after))
				s.failIf(page.Object == "", "E10", "the list after %d: expected the member object", after)
				s.failIf(len(events) > 0, "E10", "the list after %d: expected no event, got %v", after, events)
			}
		}),
		u.onSample("list/unknown", "E16", "An unknown task or run, and a run of another task, are not found", func(s *play, r *run) {
			const id = "01ZZZZZZZZZZZZZZZZZZZZZZZZ"
			refs := []ref{{r.task, "run_" + id}, {"task_" + id, r.ref.run}, {"task_" + id, "run_" + id}}
			runs, _ := s.suite.feed.list()
			for _, k := range runs {
				if k.task != r.task && k.task != "" {
					refs = append(refs, ref{k.task, r.ref.run})
					break
				}
			}
			for _, unknown := range refs {
				s.refused("E16", http.StatusNotFound, http.MethodGet, unknown.url()+"?limit=1", nil)
				resp, err := s.suite.wire.Open(s.ctx, http.MethodGet, unknown.url(), acceptStream, nil)
				s.failIf(err != nil, "E16", "the stream of %s: expected an answer, got: %v", unknown.path(), err)
				_ = resp.Body.Close() // its status says all
				s.failIf(resp.StatusCode != http.StatusNotFound, "E16", "the stream of %s: expected 404, got %d", unknown.path(), resp.StatusCode)
			}
		}),
	}
}

// maxPage bounds the events of a page.
const maxPage = 500

// refused sends what must be refused with a status, and looks at the body.
func (s *play) refused(rule string, status int, method, path string, body []byte) {
	a := s.call(rule, method, path, body)
	s.failIf(a.status != status, rule, "%s: expected %d, got %d %s", a.what, status, a.status, short(a.body))
	s.errorBody(rule, a)
}

// errorBody fails unless the body of an answer is an error of the protocol.
func (s *play) errorBody(rule string, a *answer) {
	var refusal struct {
		Error struct{ Type, Message string } `json:"error"`
	}
	err := json.Unmarshal(a.body, &refusal)
	s.failIf(err != nil || refusal.Error.Type == "" || refusal.Error.Message == "", rule,
		"%s: expected the body of a %d to have error with type and message, got %s", a.what, a.status, short(a.body))
}

// sameEvents fails unless two lists have the same bytes.
func (s *play) sameEvents(rule, what string, got []*event, other string, want []*event) {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			s.fail(rule, "expected %s to be %s, but it lacks %s: it has %d events instead of %d", what, other, want[i], len(got), len(want))
		case i >= len(want):
			s.fail(rule, "expected %s to be %s, but it has %s too: %d events instead of %d", what, other, got[i], len(got), len(want))
		case !bytes.Equal(got[i].raw, want[i].raw):
			s.fail(rule, "expected %s to be %s, but they differ at %d: %s and %s", what, other, want[i].sequence, short(got[i].raw), short(want[i].raw))
		}
	}
}
