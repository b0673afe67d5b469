package conformance

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// everywhere, networked and tooled are the needs of scenarios about any agent:
// on every transport, where clients watch, and where the agent runs tools.
var (
	everywhere = Needs{Transport: Anywhere, Responds: true}
	networked  = Needs{Transport: Networked, Responds: true}
	tooled     = Needs{Transport: Anywhere, Responds: true, Runtime: RuntimeAny}
)

// agents judges the runs of any agent: R36 to R46.
func agents() []Scenario {
	return []Scenario{
		everywhere.scenario("agent/answers", "R36 R37", "A prompt leads to a response, which ends", func(s *Session) {
			d := s.pilot()
			d.says()
			start := d.awaits("R36", message("response_start"))
			d.after("R36", start, message("response_end").with("response_id", start.str("response_id")))
			d.ends("R37")
		}),
		everywhere.scenario("agent/answers-in-turn", "R36 R37", "Each prompt has responses of its own", func(s *Session) {
			d := s.pilot()
			from := len(d.p.log)
			const prompts = 3
			for range prompts - 1 {
				d.says()
				d.awaits("R37", message("response_end"))
			}
			d.ends("R37")
			ids := map[string]bool{} // the watch refuses one that comes back
			for _, f := range d.p.log[from:] {
				if f.Type == "response_end" {
					ids[f.str("response_id")] = true
				}
			}
			if len(ids) < prompts {
				s.fail("R37", "expected a response for each of %d prompts, got %d", prompts, len(ids))
			}
		}),
		everywhere.scenario("agent/missing-attachment", "R43 R37", "An unreadable attachment costs one tool error and the prompt is answered", func(s *Session) {
			d := s.pilot()
			const name = "conformance-no-such-file.txt"
			d.decide(contracts.ApprovalAuto)
			d.send(&contracts.Prompt{Content: s.say(), Attachments: []string{name}})
			failed := d.awaits("R43", message("error").with("message", "Attachment not readable: "+name).with("error_type", "tool").with("fatal", false))
			d.after("R37", failed, message("response_end"))
			d.ends("R37")
		}),
		tooled.scenario("agent/tools", "R46", "A call is announced, runs and ends once", func(s *Session) {
			d := s.pilot()
			began := len(d.p.log)
			d.calls()
			call := d.awaits("R46", message("tool_call")) // the watch knows the order
			d.after("R46", call, message("tool_end").with("call_id", call.str("call_id")))
			d.ends("R37")
			d.p.none("R51", began, aboutApprovals)
		}),
		tooled.scenario("agent/summary", "R38 R39 R40", "Summaries name the tools of the run, sorted, and count what ended", func(s *Session) {
			d := s.pilot()
			began := len(d.p.log)
			d.calls()
			d.ends("R37")
			var called, used []string
			ended, counted := 0, int64(0)
			for _, f := range d.p.log[began:] {
				switch f.Type {
				case "tool_call":
					called = append(called, f.str("tool"))
				case "tool_end":
					ended++
				case "response_end": // the watch knows the rest of R38 to R40
					used = append(used, texts(f.at("tools_summary.tools_used"))...)
					counted += number(f.at("tools_summary.calls_succeeded")) + number(f.at("tools_summary.calls_failed"))
				}
			}
			if i := slices.IndexFunc(used, func(name string) bool { return !slices.Contains(called, name) }); i >= 0 {
				s.fail("R39", "expected summaries of what was called, %q, got %q", called, used[i])
			}
			if counted > int64(ended) || len(used) == 0 {
				s.fail("R39", "expected summaries that name the tools of a run and count at most the %d calls that ended, got %q and %d", ended, used, counted)
			}
		}),
		everywhere.scenario("agent/busy", "R42 A71", "A prompt during a run is refused, disturbs nothing and is not kept", func(s *Session) {
			d := s.pilot()
			first := d.works()
			early := &contracts.Prompt{Content: s.say()}
			for range 2 {
				d.refused(early, busyRefusal("R42"))
			}
			d.p.none("R42", d.p.indexAfter(first), interrupted("Run interrupted by user"))
			d.tell("R42", &contracts.Interrupt{})
			end := d.cancelled("Run interrupted by user")
			d.p.still("R42", d.p.indexAfter(end), signOfWork) // which a kept prompt would show
			d.idle("R42")
			d.ends("R37")
		}),
	}
}

// interrupted wants the error that tells clients of a run that was stopped.
func interrupted(text string) want {
	return message("error").with("message", text).with("error_type", "cancelled").with("fatal", false)
}
