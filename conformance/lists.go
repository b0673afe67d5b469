package conformance

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/seed-028515a8/maestro/contracts"
)

const listsPath = "/api/headless/lists/ws"

// lists judges the socket that carries the list of sessions and the inbox.
func lists() []Scenario {
	seedOnSocket := Needs{Transport: Socket, Seed: true}
	return []Scenario{
		seedOnSocket.triggers().controller("lists/one-socket", "1.1 D8",
			"A socket carries the sessions and the inbox, and takes an answer", func(s *Session, alice *Peer) {
				dash := s.listSocket("dash", "")
				dash.accepted("1.1:lists", dash.frame("ws.follow", fields{"lists": []string{"sessions", "inbox"}, "limit": 500}))
				dash.expect("1.1:lists", listed("sessions", "sessions"))
				dash.await("1.1:lists", 0, listed("inbox", "questions"))
				alice.ask(contracts.RequestApproval, "boxed")
				question := listed("inbox", "question").where("of this session", func(f *Frame) bool {
					return f.at("inbox.question.session_id") == s.ID && f.at("inbox.question.request_id") == "boxed"
				})
				q := dash.await("1.1:lists", 0, question)
				dash.await("1.1:lists", 0, listed("sessions", "session").where("that this session waits", func(f *Frame) bool {
					return f.at("sessions.session.session_id") == s.ID && f.at("sessions.session.status") == "waiting"
				}))
				answer := func(digest any) string {
					return dash.frame("ws.answer", fields{"session_id": s.ID, "message": fields{
						"type": "server_request_response", "request_id": "boxed", "request_type": "approval", "approved": true, "digest": digest,
					}})
				}
				digest := q.at("inbox.question.digest")
				dash.notAccepted("D8", answer("x"))
				f := dash.accepted("D8", answer(digest))
				s.failIf(f.at("ended") != true, "1.1:lists", "expected that the question ended, got %s", f.said())
				alice.expect("D8", resolved("boxed"))
				refusal := dash.notAccepted("D8", answer(digest))
				s.failIf(refusal.str("code") != string(contracts.CodeRequestNotFound), "D8",
					"expected a second answer to be refused with request_not_found, got %s", refusal.said())
				dash.await("1.1:lists", 0, listed("inbox", "ended").where("of this question", func(f *Frame) bool {
					return f.at("inbox.ended.session_id") == s.ID && f.at("inbox.ended.resolution") == "approved"
				}))
			}),
		seedOnSocket.triggers().controller("lists/unfollow", "1.1",
			"A list that is not followed any more sends nothing", func(s *Session, alice *Peer) {
				dash, other := s.listSocket("dash", ""), s.listSocket("other", "")
				for _, p := range []*Peer{dash, other} {
					p.accepted("1.1:lists", p.frame("ws.follow", fields{"lists": []string{"inbox"}}))
				}
				dash.accepted("1.1:lists", dash.frame("ws.follow", fields{"lists": []string{}}))
				from := len(dash.log)
				alice.ask(contracts.RequestApproval, "unseen")
				other.await("1.1:lists", 0, listed("inbox", "question").where("of this session", func(f *Frame) bool {
					return f.at("inbox.question.session_id") == s.ID
				}))
				dash.fence()
				dash.none("1.1:lists", from, control("list"))
			}),
		seedOnSocket.scenario("lists/viewer", "1.1", "A viewer follows sessions, and neither sees nor answers questions",
			func(s *Session) {
				vera := s.listSocket("vera", contracts.RoleViewer)
				vera.accepted("1.1:lists", vera.frame("ws.follow", fields{"lists": []string{"sessions"}}))
				vera.expect("1.1:lists", listed("sessions", "sessions"))
				answer := fields{"session_id": s.ID, "message": fields{
					"type": "server_request_response", "request_id": "x", "request_type": "approval", "approved": true,
				}}
				for kind, body := range map[string]fields{"ws.follow": {"lists": []string{"inbox"}}, "ws.answer": answer} {
					f := vera.notAccepted("1.1:lists", vera.frame(kind, body))
					s.failIf(f.str("code") != string(contracts.CodeAccessDenied), "1.1:lists",
						"expected %s to be refused with access_denied, got %s", kind, f.said())
				}
			}),
		seedOnSocket.scenario("lists/bad-frame", "9.5", "A frame that is not JSON closes a socket of lists", func(s *Session) {
			p := s.listSocket("dash", "")
			p.send([]byte(`{"type":"ws.follow"`))
			p.closes("9.5", contracts.CodeBadRequest.CloseCode())
		}),
	}
}

// listed wants an event of a list.
func listed(list, kind string) want {
	return control("list").where("of "+list+": "+kind, func(f *Frame) bool { return f.at(list+".type") == kind })
}

// listSocket opens a socket of lists.
func (s *Session) listSocket(name string, role contracts.Role) *Peer {
	o := s.dialOptions(entry{})
	o.path, o.query = listsPath, url.Values{}
	if role != "" {
		o.query.Set("role", string(role))
	}
	link, err := dialSocket(s.ctx, o)
	if refused, ok := errors.AsType[*Refused](err); ok && refused.Status == http.StatusNotFound {
		s.skip("needs a server with a socket of lists")
	}
	s.failIf(err != nil, "1.1:lists", "%s: expected the upgrade to succeed, got: %v", name, err)
	return s.newPeer(name, link)
}
