package conformance

import "github.com/seed-028515a8/maestro/contracts"

// queues judges the queue of prompts: R42:queue.
func queues() []Scenario {
	seed, onSocket := Needs{Seed: true}, Needs{Transport: Socket, Seed: true}
	return []Scenario{
		seed.scenario("queue/order", "R42", "Prompts that may wait start after the run, in order", func(s *Session) {
			p := s.join("alice", s.asksForPeople(contracts.RoleController))
			s.skipWithoutPeople(p)
			p.prompt(hang())
			p.refused(p.command(later("at once", contracts.PromptNow)), busyRefusal("R42"))
			for i, content := range []string{"one", "two", "three", "never"} {
				when := contracts.PromptNext
				if i == 1 {
					when = contracts.PromptSteer // this agent takes none
				}
				p.accepted("R42:queue", p.command(later(content, when)))
			}
			ids := p.queued("one", "two", "three", "never")
			p.accepted("R42:queue", p.command(&contracts.QueueMove{PromptID: ids[2], Before: &ids[0]}))
			p.queued("three", "one", "two", "never")
			p.accepted("R42:queue", p.command(&contracts.QueueEdit{PromptID: ids[0], Content: "1"}))
			p.queued("three", "1", "two", "never")
			p.accepted("R42:queue", p.command(&contracts.QueueCancel{PromptID: ids[3]}))
			p.queued("three", "1", "two")
			p.refused(p.command(&contracts.QueueCancel{PromptID: ids[3]}),
				refusal{rule: "R42:queue", names: ids[3], kind: contracts.ErrorProtocol, code: contracts.CodeRequestNotFound})
			p.command(&contracts.Interrupt{})
			p.expect("R42:queue", message("queue_changed").with("held", true))
			p.still("R42:queue", p.pos, message("prompt_accepted"))
			p.command(&contracts.QueueResume{})
			for i, content := range []string{"three", "1", "two"} {
				f := p.expect("R42:queue", message("prompt_accepted").with("content", content).
					with("author.claimed_name", "the user of alice"))
				id := []string{ids[2], ids[0], ids[1]}[i]
				s.failIf(f.str("prompt_id") != id, "R42:queue", "expected the prompt %s to keep its id, got %s", id, f.said())
				p.expect("R42:queue", prompted(content))
			}
			p.still("R42:queue", p.pos, message("prompt_accepted"))
		}),
		onSocket.controller("queue/capability", "R42", "Only clients with people queue prompts and see them", func(s *Session, alice *Peer) {
			rhea := s.observer("rhea")
			s.skipWithoutPeople(rhea)
			alice.prompt(hang())
			next, now := later("x", contracts.PromptNext), later("x", contracts.PromptNow)
			for _, cmd := range []contracts.Command{next, now, &contracts.QueueResume{}} {
				alice.refused(alice.command(cmd), refusal{
					rule: "R42:queue", text: cmd.CommandType() + " requires people capability",
					kind: contracts.ErrorTool, code: contracts.CodeUnsupportedCapability,
				})
			}
			alice.refused(alice.command(&contracts.Prompt{Content: "x"}), busyRefusal("R42"))
			rhea.still("R42:queue", 0, message("queue_changed"))
		}),
		onSocket.scenario("queue/snapshot", "R42", "Others find the queue in the snapshot", func(s *Session) {
			alice := s.join("alice", s.asksForPeople(contracts.RoleController))
			s.skipWithoutPeople(alice)
			alice.prompt(hang())
			alice.accepted("R42:queue", alice.command(later("inherited", contracts.PromptNext)))
			alice.queued("inherited")
			f := s.observer("rhea").last(control("snapshot"))
			queue := listOf(f, "state.people.queue")
			ok := len(queue) == 1 && textOf(queue[0], "content") == "inherited"
			s.failIf(!ok, "R42:queue", "expected the queue in the snapshot, got %s", show(f.at("state.people")))
			f = s.viewer("vera").last(control("snapshot"))
			s.failIf(f.at("state.people") != nil, "R42:queue",
				"expected no queue for a client that did not ask, got %s", f.said())
		}),
		seedOverHTTP.scenario("queue/http", "R42", "Over HTTP too, prompts wait for the end of the run", func(s *Session) {
			alice, p := s.callerWithPeople()
			alice.prompt(hang())
			alice.posted("R42:queue", later("one", contracts.PromptNext))
			alice.posted("R42:queue", later("two", contracts.PromptNext))
			p.queued("one", "two")
			alice.posted("R42:queue", &contracts.Interrupt{})
			alice.posted("R42:queue", &contracts.QueueResume{})
			for _, content := range []string{"one", "two"} {
				p.expect("R42:queue", message("prompt_accepted").with("content", content))
				p.expect("R42:queue", prompted(content))
			}
		}),
	}
}

func later(content string, when contracts.PromptTime) *contracts.Prompt {
	return &contracts.Prompt{Content: content, When: when}
}

// queued waits until the queue has these contents, and returns the ids of its prompts.
func (p *Peer) queued(contents ...string) (ids []string) {
	f := p.expect("R42:queue", message("queue_changed").where("with the right prompts", func(f *Frame) bool {
		list := listOf(f, "prompts")
		for i, prompt := range list {
			if i == len(contents) || textOf(prompt, "content") != contents[i] {
				return false
			}
		}
		return len(list) == len(contents)
	}))
	for _, prompt := range listOf(f, "prompts") {
		ids = append(ids, textOf(prompt, "prompt_id"))
	}
	return ids
}
