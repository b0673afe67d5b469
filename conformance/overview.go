package conformance

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

const overviewPath = "/api/headless/overview"

// overviews judges the list of sessions for people, and what clients change in it.
func overviews() []Scenario {
	return []Scenario{
		overHTTP.connected("overview/title", "1.1", "A session is listed with the title that a client set", func(s *Session, _ *Caller) {
			title := "Title of\u202e " + s.ID
			a := s.change(fields{"title": title}).ok("1.1:overview").shaped("1.1:overview", "SessionSummary")
			want := "Title of " + s.ID
			a.has("1.1:overview", fields{"session_id": s.ID, "title": want, "archived": false})
			listed := s.overview(url.Values{"q": {want}})
			s.failIf(len(listed) != 1 || textOf(listed[0], "title") != want, "1.1:overview",
				"expected one session with the title %q, got %s", want, show(listed))
		}),
		overHTTP.connected("overview/archived", "1.1", "An archived session is listed for those who ask for archived ones", func(s *Session, _ *Caller) {
			for _, archived := range []bool{true, false} {
				s.change(fields{"archived": archived}).ok("1.1:overview").has("1.1:overview", fields{"archived": archived})
				for query, want := range map[string]bool{"false": !archived, "true": archived} {
					listed := s.overview(url.Values{"q": {s.ID}, "archived": {query}})
					s.failIf((len(listed) > 0) != want, "1.1:overview", "archived %t: expected it listed with archived=%s: %t, got %s", archived, query, want, show(listed))
				}
			}
		}),
		overHTTP.connected("overview/pages", "1.1", "The pages of the overview have each session once", func(s *Session, _ *Caller) {
			s.change(fields{}).ok("1.1:overview") // if there is an overview
			var seen []string
			for query := (url.Values{"limit": {"1"}, "q": {s.ID}}); len(seen) < 3; {
				a := s.get(overviewPath+"?"+query.Encode()).ok("1.1:overview").shaped("1.1:overview", "Overview")
				for _, entry := range listOf(&a.Frame, "sessions") {
					seen = append(seen, textOf(entry, "session_id"))
				}
				next := a.str("next")
				if next == "" {
					break
				}
				query.Set("after", next)
			}
			s.failIf(!slices.Equal(seen, []string{s.ID}), "1.1:overview", "expected session %s once, got %q", s.ID, seen)
			s.get(overviewPath+"?after=nonsense").refused("1.1:overview", contracts.CodeBadRequest, "")
		}),
		overHTTP.connected("overview/delete", "1.1", "A deleted session is not found until it is restored", func(s *Session, _ *Caller) {
			s.change(fields{}).ok("1.1:delete")
			a := s.call(request{who: "alice", method: http.MethodDelete, path: s.route("")}).ok("1.1:delete")
			a.has("1.1:delete", fields{"session_id": s.ID, "status": "deleted"})
			s.failIf(a.str("removed_at") == "", "1.1:delete", "expected the time of the removal, got %s", a.said())
			s.stateOf(s.ID).refused("1.1:delete", contracts.CodeStaleSession, "")
			s.put(sessionsPath, fields{"sessionId": s.ID}).refused("1.1:delete", contracts.CodeStaleSession, "")
			s.failIf(len(s.overview(url.Values{"q": {s.ID}})) > 0, "1.1:delete", "expected the deleted session not to be listed")
			s.put(s.route("restore"), fields{}).ok("1.1:delete").has("1.1:delete", fields{"session_id": s.ID})
			s.stateOf(s.ID).ok("1.1:delete")
		}),
		overHTTP.connected("overview/viewer", "1.1", "A viewer changes nothing of the overview", func(s *Session, _ *Caller) {
			s.change(fields{}).ok("1.1:delete")
			for method, path := range map[string]string{http.MethodPatch: s.route(""), http.MethodDelete: s.route(""), http.MethodPost: s.route("restore")} {
				r := request{who: "vera", method: method, path: path, header: http.Header{"X-Maestro-Headless-Role": {"viewer"}}, body: []byte(`{"archived":true}`)}
				s.call(r).refused("1.1:delete", contracts.CodeAccessDenied, "")
			}
			s.stateOf(s.ID).ok("1.1:delete")
		}),
	}
}

const inboxPath = "/api/headless/inbox"

// inboxes judges the list of the open questions of all sessions.
func inboxes() []Scenario {
	return []Scenario{
		seedOverHTTP.attached("inbox/one-answer", "1.1 D8", "A question in the inbox is answered once, without a connection", func(s *Session, alice *Caller, p *Peer) {
			if s.get(inboxPath).noRoute() {
				s.skip("needs a server with an inbox")
			}
			alice.ask(contracts.RequestApproval, "boxed")
			listed := func(want bool) func() (bool, string) {
				return func() (bool, string) {
					a := s.get(inboxPath).ok("1.1:inbox").shaped("1.1:inbox", "Inbox")
					found := slices.ContainsFunc(listOf(&a.Frame, "questions"), func(q map[string]any) bool {
						return textOf(q, "session_id") == s.ID && textOf(q, "request_id") == "boxed"
					})
					return found == want, a.said()
				}
			}
			s.until("1.1:inbox", "the question in the inbox", listed(true))
			answer := request{who: "vera", method: http.MethodPost, path: inboxPath + "/" + s.ID + "/boxed", body: encode(fields{"approved": true})}
			s.oneOf(s.together(slices.Repeat([]request{answer}, 5)...), "D8", contracts.CodeRequestNotFound, "")
			p.expect("D8", resolved("boxed"))
			s.until("1.1:inbox", "the inbox without the question", listed(false))
		}),
	}
}

// change changes what the overview shows of the session. It skips the scenario if the
// server has no overview.
func (s *Session) change(body fields) *Answer {
	if s.get(overviewPath).noRoute() {
		s.skip("needs a server with an overview")
	}
	return s.call(request{who: "alice", method: http.MethodPatch, path: s.route(""), body: encode(body)})
}

// overview returns the sessions of the first page.
func (s *Session) overview(query url.Values) []map[string]any {
	a := s.get(overviewPath+"?"+query.Encode()).ok("1.1:overview").shaped("1.1:overview", "Overview")
	return listOf(&a.Frame, "sessions")
}
