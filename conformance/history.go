package conformance

import (
	"fmt"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// histories judges reading the history backwards: 10.1 to 10.3.
func histories() []Scenario {
	seedOnSocket := Needs{Transport: Socket, Seed: true}
	return []Scenario{
		seedOverHTTP.triggers().driver("history/pages", "10.1", "Pages of any size give the whole history once and in order",
			func(s *Session, alice *Caller) {
				alice.converse()
				all := s.wholeHistory("history?limit=1000", "entries")
				var contents []string
				for _, e := range all {
					m, _ := e["message"].(map[string]any)
					if textOf(m, "type") == "status" {
						contents = append(contents, textOf(m, "message"))
					}
				}
				want := []string{"Prompt: one", "Prompt: two", "Prompt: three"}
				other := func(text string) bool { return !slices.Contains(want, text) }
				contents = slices.DeleteFunc(contents, other)
				s.failIf(!slices.Equal(contents, want), "10.1",
					"expected the answers %q in the history, got %q", want, contents)
				end := number(all[len(all)-1]["cursor"])
				newer := func(e map[string]any) bool { return number(e["cursor"]) > end } // a lease may have run out meanwhile
				for _, query := range []string{"history?limit=1", "history?limit=3", "history?bytes=1"} {
					s.equal("10.1", "the history by "+query, slices.DeleteFunc(s.wholeHistory(query, "entries"), newer), all)
				}
			}),
		seedOverHTTP.triggers().driver("history/last-turns", "10.1", "A page may begin with the prompt of some turns ago",
			func(s *Session, alice *Caller) {
				alice.converse()
				f := &s.get(s.route("history?turns=2")).ok("10.1").shaped("10.1", "HistoryPage").Frame
				first := listOf(f, "entries")
				s.failIf(len(first) == 0 || !s.asks(first[0], "two"), "10.1",
					"expected the prompt two first, got %s", f.said())
				s.failIf(f.at("before") == nil, "10.1", "expected a page before this one, got none")
			}),
		seedOverHTTP.triggers().driver("history/index", "10.2", "The index lists every prompt and how its run ended",
			func(s *Session, alice *Caller) {
				alice.converse()
				for _, query := range []string{"turns", "turns?limit=1"} {
					turns := s.wholeHistory(query, "turns")
					s.failIf(len(turns) != 3, "10.2", "expected 3 turns, got %s", show(turns))
					for i, line := range []string{"one", "two", "three"} {
						s.lists("10.2", turns[i], fields{"line": line, "outcome": "completed"})
						query := fmt.Sprintf("history?limit=1&before=%d", number(turns[i]["cursor"])+1)
						page := s.get(s.route(query)).ok("10.2")
						first := listOf(&page.Frame, "entries")
						s.failIf(len(first) != 1 || !s.asks(first[0], line), "10.2",
							"expected the prompt %s at the cursor of its turn, got %s", line, page.said())
					}
				}
			}),
		seedOverHTTP.triggers().driver("history/search", "10.2", "A search finds a text, and the turn that it is in",
			func(s *Session, alice *Caller) {
				alice.converse()
				turns := s.wholeHistory("turns", "turns")
				hits := s.wholeHistory("search?q=TWO", "hits")
				s.failIf(len(hits) == 0, "10.2", "expected the prompt two to be found, got nothing")
				for _, hit := range hits {
					s.lists("10.2", hit, fields{"turn": turns[1]["cursor"]})
				}
				none := s.wholeHistory("search?q=absent", "hits")
				s.failIf(len(none) > 0, "10.2", "expected no hit of an absent text")
			}),
		seedOverHTTP.visited("history/for-viewers", "10.1", "A viewer reads the history, and nobody reads it with wrong bounds",
			func(s *Session, _, vera *Caller) {
				r := request{who: "vera", method: "GET", path: s.route("history"), header: vera.proof()}
				s.call(r).ok("10.1").shaped("10.1", "HistoryPage")
				for _, query := range []string{"history?limit=1001", "history?limit=x", "history?before=-1",
					"history?turns=101", "history?bytes=-1", "search", "turns?q=x"} {
					s.get(s.route(query)).refused("10.1", contracts.CodeBadRequest, "")
				}
			}),
		seedOnSocket.triggers().controller("history/on-a-socket", "10.3", "A socket asks for pages, and gets one answer for each",
			func(s *Session, p *Peer) {
				p.prompt("one")
				p.fence()
				for _, ask := range []fields{{}, {"kind": "turns"}, {"kind": "search", "query": "one"}} {
					from := len(p.log)
					id := p.frame("ws.history", ask)
					f := p.await("10.3", from, control("history").with("id", id))
					list := map[any]string{nil: "entries", "turns": "turns", "search": "hits"}[ask["kind"]]
					s.failIf(len(listOf(f, "page."+list)) == 0, "10.3",
						"expected %s in the page, got %s", list, f.said())
				}
				p.notAccepted("10.3", p.frame("ws.history", fields{"limit": 5000}))
				p.fence()
			}),
		Needs{Transport: Stdio, Seed: true}.triggers().controller("history/on-stdio", "10.3",
			"A client on stdio asks for pages, and gets one line for each", func(s *Session, p *Peer) {
				p.prompt("one")
				p.fence()
				for list, ask := range map[string]string{
					"entries": `{"type":"ws.history","id":"entries","turns":1}`,
					"turns":   `{"type":"ws.history","id":"turns","kind":"turns"}`,
					"hits":    `{"type":"ws.history","id":"hits","kind":"search","query":"one"}`,
				} {
					from := len(p.log)
					p.send([]byte(ask))
					f := p.await("10.3", from, control("history").with("id", list))
					s.failIf(len(listOf(f, "page."+list)) == 0, "10.3",
						"expected %s in the page, got %s", list, f.said())
				}
				p.send([]byte(`{"type":"ws.history","id":"far","limit":5000}`))
				p.expect("10.3", message("error").with("request_id", "far"))
				p.fence()
			}),
		seedOnSocket.triggers().controller("history/attach", "10.3", "A client may begin with the state and the last turns",
			func(s *Session, alice *Peer) {
				alice.prompt("one")
				alice.prompt("two")
				alice.fence()
				vera := s.attach("vera", entry{role: contracts.RoleViewer, turns: 1})
				alice.prompt("three")
				vera.expect("10.3", prompted("three"))
				s.beginsWithTurn("10.3", vera)
			}),
		seedOverHTTP.triggers().driver("history/follow", "10.3", "A stream may begin with the state and the last turns",
			func(s *Session, alice *Caller) {
				alice.prompt("one")
				alice.prompt("two")
				alice.finishRun()
				vera := s.follow("vera", follow{turns: 1})
				alice.prompt("three")
				vera.expect("10.3", prompted("three"))
				s.beginsWithTurn("10.3", vera)
			}),
	}
}

// converse has three turns.
func (c *Caller) converse() {
	for _, prompt := range []string{"one", "two", "three"} {
		c.prompt(prompt)
		c.finishRun()
	}
}

// wholeHistory reads all pages of a route and returns a list in them.
func (s *Session) wholeHistory(query, list string) (all []map[string]any) {
	path, more := s.route(query), "?before="
	if slices.Contains([]byte(query), '?') {
		more = "&before="
	}
	for next := path; ; {
		a := s.get(next).ok("10.1").shaped("10.1", "HistoryPage")
		page := listOf(&a.Frame, list)
		all = append(slices.Clone(page), all...)
		for i := 1; i < len(all); i++ {
			s.failIf(number(all[i]["cursor"]) <= number(all[i-1]["cursor"]), "10.1",
				"expected cursors to increase, got %s", show(all))
		}
		before := a.at("before")
		if before == nil {
			return all
		}
		last := next
		next = path + more + fmt.Sprint(number(before))
		s.failIf(next == last, "10.1", "expected a page before %d, got the same again", number(before))
	}
}

// asks reports whether an entry of the history is a prompt.
func (s *Session) asks(e map[string]any, content string) bool {
	m, _ := e["message"].(map[string]any)
	return textOf(m, "type") == "prompt_accepted" && textOf(m, "content") == content
}

// beginsWithTurn fails unless a client got the state, then a page that begins with the
// prompt two, and then only what is new.
func (s *Session) beginsWithTurn(rule string, p *Peer) {
	at := func(w want) int { return slices.IndexFunc(p.log, w.ok) }
	state, page, news := at(control("snapshot")), at(control("history")), at(prompted("three"))
	s.failIf(state < 0 || page < state || news < page, rule,
		"%s: expected the state, a page and then what is new", p.name)
	first := listOf(p.log[page], "page.entries")
	s.failIf(len(first) == 0 || !s.asks(first[0], "two"), rule,
		"%s: expected the prompt two first, got %s", p.name, p.log[page].said())
	s.failIf(at(prompted("two")) >= 0, rule, "%s: expected nothing old after the state", p.name)
}
