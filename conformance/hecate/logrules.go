package hecate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// A check holds the runs of a log against a rule.
type check struct {
	*play
	rule   string
	judged int // how much there was to judge
}

// wrongIf fails if the log breaks the rule.
func (c *check) wrongIf(broken bool, format string, args ...any) {
	c.failIf(broken, c.rule, format, args...)
}

// logRule returns a scenario that judges all runs there are. none says what is missing if
// there was nothing to judge.
func (u *suite) logRule(name, rules, title, none string, story func(*check, []*run)) conformance.Scenario {
	sc := u.scenario("log/"+name, rules, title, func(s *play) {
		c := &check{play: s, rule: strings.Fields(rules)[0]}
		story(c, s.history().runs)
		if c.judged == 0 {
			s.skip("no run has %s", none)
		}
	})
	sc.Last = true
	return sc
}

// runRule returns a scenario that judges runs one by one.
func (u *suite) runRule(name, rule, title, none string, story func(*check, *run)) conformance.Scenario {
	return u.logRule(name, rule, title, none, func(c *check, runs []*run) {
		for _, r := range runs {
			story(c, r)
		}
	})
}

// eventRule returns a scenario that judges events one by one: those that about accepts. wrong
// says what is wrong with an event, or nothing.
func (u *suite) eventRule(name, rule, title, none string, about func(*event) bool, wrong func(*check, *event) string) conformance.Scenario {
	return u.runRule(name, rule, title, none, func(c *check, r *run) {
		for _, e := range r.of(about) {
			c.judged++
			text := wrong(c, e)
			c.wrongIf(text != "", "%s: %s; in %s", e, text, short(e.raw))
		}
	})
}

func anyEvent(*event) bool { return true }

// problem says what parseEvent found about the rule.
func problem(c *check, e *event) string {
	for _, p := range e.problems {
		if p.rule == c.rule {
			return p.text
		}
	}
	return ""
}

// logRules are the scenarios about what a log says. They need no server.
func (u *suite) logRules() []conformance.Scenario {
	const events = "an event"
	return []conformance.Scenario{
		u.eventRule("schema", "E1", "Every envelope has the members of version 1 and no other", events, anyEvent, problem),
		u.eventRule("ids", "E2", "Ids are a prefix and a ULID", events, anyEvent, problem),
		u.logRule("unique-ids", "E3", "Event ids are unique and increase within a run", events, func(c *check, runs []*run) {
			seen := map[string]*event{}
			for _, r := range runs {
				last := ""
				for _, e := range r.events {
					c.judged++
					c.wrongIf(seen[e.id] != nil, "%s and %s have the same event_id %q", seen[e.id], e, e.id)
					c.wrongIf(e.id <= last, "%s has the event_id %q, which is not greater than %q before it", e, e.id, last)
					seen[e.id], last = e, e.id
				}
			}
		}),
		// The first number may be greater than 0 only if the log says that the events before it
		// were removed. The events that say so have numbers of their own.
		u.runRule("numbering", "E4", "The events of a run are numbered from 0 without a gap", events, func(c *check, r *run) {
			removed, next := removals(r), int64(0)
			for _, e := range r.events {
				for next < e.sequence && removed.has(next) {
					next++
				}
				c.judged++
				c.wrongIf(e.sequence != next, "%s comes where %d was expected", e, next)
				next++
			}
		}),
		u.eventRule("data", "E45", "data is an object in every event", events, anyEvent, problem),
		u.runRule("one-end", "E20", "A run ends once, and only gap events follow", "an end", func(c *check, r *run) {
			end := r.end()
			if end == nil {
				return
			}
			c.judged++
			for _, e := range r.events[slices.Index(r.events, end)+1:] {
				c.wrongIf(!strings.HasPrefix(e.kind, "gap."), "%s comes after %s", e, end)
			}
		}),
		// A log whose beginning was removed is not judged. A log may lack run.queued.
		u.runRule("order", "E21", "A run is queued, started and ended in this order", "an end", func(c *check, r *run) {
			end := r.end()
			if end == nil || r.events[0].sequence > 0 {
				return
			}
			c.judged++
			at := func(k string) int { return slices.IndexFunc(r.events, kind(k)) }
			queued, started := at("run.queued"), at("run.started")
			if started < 0 {
				c.wrongIf(end.kind != "run.cancelled", "%s ends a run that never had run.started", end)
				return
			}
			c.wrongIf(started > slices.Index(r.events, end), "%s comes after %s", r.events[started], end)
			c.wrongIf(queued > started, "%s comes after %s", r.events[max(queued, 0)], r.events[started])
		}),
		u.runRule("text", "E22", "The text of a block is what its deltas say", "a complete text with deltas", func(c *check, r *run) {
			deltas := map[string][]byte{}
			for _, e := range r.events {
				block := e.round() + "/" + show(e.data["block_index"])
				switch e.kind {
				case "assistant.text_delta":
					deltas[block] = append(deltas[block], e.str("delta")...)
				case "assistant.text_complete":
					if said, ok := deltas[block]; ok && r.events[0].sequence == 0 {
						c.judged++
						c.wrongIf(string(said) != e.str("text"), "%s says %s, and its deltas say %s", e, show(e.str("text")), show(string(said)))
					}
					delete(deltas, block)
				}
			}
		}),
		u.runRule("tools", "E23", "A tool call that was invoked ends once, before its run ends", "a tool call", func(c *check, r *run) {
			end := r.end()
			for i, e := range r.events {
				if e.kind != "tool.invoked" {
					continue
				}
				ends, call := 0, e.str("tool_call_id")
				for _, later := range r.events[i+1:] {
					c.wrongIf(later == end && ends == 0, "%s: the call %q has not ended when %s ends the run", e, call, end)
					if later.endsTool() && later.str("tool_call_id") == call {
						ends++
					}
				}
				c.wrongIf(ends > 1, "%s: the call %q ends %d times", e, call, ends)
				c.judged += ends
			}
		}),
		u.runRule("chunks", "E24", "Chunks of output are numbered by bytes and cut no character", "tool output", func(c *check, r *run) {
			last := map[string]*event{} // of a stream of a call
			for _, e := range r.of(kind("tool.shell.output_chunk")) {
				stream := e.str("tool_call_id") + "/" + e.str("stream")
				before, expected := last[stream], int64(0)
				if before != nil {
					expected, _ = before.num("byte_offset")
					expected += int64(len(before.str("data")))
				}
				last[stream] = e
				c.judged++
				offset, ok := e.num("byte_offset")
				removed := before == nil && r.events[0].sequence > 0 // earlier chunks may have been
				c.wrongIf(!ok || offset != expected && !removed, "%s has byte_offset %s, want %d", e, show(e.data["byte_offset"]), expected)
				if before != nil && cutsCharacter(before.str("data"), e.str("data")) {
					c.fail(c.rule, "%s and %s cut a character: %s and %s", before, e, show(before.str("data")), show(e.str("data")))
				}
			}
		}),
		u.runRule("exit", "E26", "The exit of a shell comes after its output and before the end of its call", "a shell's exit", func(c *check, r *run) {
			for i, e := range r.events {
				if e.kind != "tool.shell.exited" {
					continue
				}
				c.judged++
				for at, other := range r.events {
					if other.str("tool_call_id") == e.str("tool_call_id") {
						c.wrongIf(other.kind == "tool.shell.output_chunk" && at > i, "%s comes after %s of the same call", other, e)
						c.wrongIf(other.endsTool() && at < i, "%s comes before %s of the same call", other, e)
					}
				}
			}
		}),
		u.eventRule("env-keys", "E27", "Environment variables are named without values", "env_keys",
			func(e *event) bool { return e.data["env_keys"] != nil }, func(_ *check, e *event) string {
				list, ok := e.data["env_keys"].([]any)
				if !ok {
					return "env_keys is no list"
				}
				for _, v := range list {
					if name, ok := v.(string); !ok || !envName().MatchString(name) {
						return "env_keys has " + show(v) + ", which is not the name of a variable"
					}
				}
				return ""
			}),
		needs(u.eventRule("secret", "E28", "A secret that the server knows is nowhere in the log", events, anyEvent, func(c *check, e *event) string {
			if !strings.Contains(string(e.raw), c.config.Secret) {
				return ""
			}
			e.raw = []byte("(not shown)") // a report is no place for it either
			return "the event has the secret in it"
		}), hasSecret, noSecret),
		u.runRule("approvals", "E31", "An approval is decided at most once, with a known decision", "an approval", func(c *check, r *run) {
			over := map[string]*event{}
			for _, e := range r.of(kind("approval.requested", "approval.resolved", "approval.timed_out")) {
				c.judged++
				if e.kind == "approval.requested" {
					continue
				}
				id, decision := e.str("approval_id"), e.str("decision")
				c.wrongIf(over[id] != nil, "%s decides %q, which %s decided", e, id, over[id])
				over[id] = e
				c.wrongIf(e.kind == "approval.resolved" && !slices.Contains([]string{"approved", "rejected", "cancelled"}, decision),
					"%s has the decision %q, want approved, rejected or cancelled", e, decision)
			}
		}),
		u.runRule("pruned", "E35", "Events that were removed are named by a gap event", "removed events", func(c *check, r *run) {
			removed := removals(r)
			if len(r.events) == 0 || r.events[0].sequence == 0 && len(removed) == 0 {
				return
			}
			c.judged++
			c.wrongIf(len(removed) == 0, "%s is the first event there is, and no gap.events_pruned names those before it", r.events[0])
			for i, p := range removed[1:] {
				c.wrongIf(p.first <= removed[i].last, "%s: a gap.events_pruned names %s, and a later one %s", r.run, removed[i], p)
			}
			for _, e := range r.events {
				c.wrongIf(e.kind != "gap.events_pruned" && removed.has(e.sequence), "%s is there, and a gap.events_pruned names it", e)
			}
		}),
		// A run that is gone as a whole is not judged.
		needs(u.logRule("unchanged", "E5 E35", "Events of an earlier time have the same bytes or are named as removed", "an event of the earlier time",
			func(c *check, runs []*run) {
				for _, old := range c.suite.before.runs {
					at := slices.IndexFunc(runs, func(r *run) bool { return r.run == old.run })
					if at < 0 {
						continue
					}
					now, removed := map[int64]*event{}, removals(runs[at])
					for _, e := range runs[at].events {
						now[e.sequence] = e
					}
					for _, e := range old.events {
						c.judged++
						same := now[e.sequence]
						if same == nil {
							c.failIf(!removed.has(e.sequence), "E35", "%s was there earlier, and neither it nor a gap.events_pruned about it is there now", e)
							continue
						}
						c.failIf(!bytes.Equal(same.raw, e.raw), "E5", "%s has other bytes than earlier: %s and %s", e, short(same.raw), short(e.raw))
					}
				}
			}), func(*conformance.Config) bool { return u.before != nil }, "needs a log that was saved earlier"),
		u.eventRule("resumed", "E37", "A resumed run is a new run, and its event 0 names the old one", "a resumption",
			kind("run.resumed_from_event"), func(_ *check, e *event) string {
				switch {
				case e.sequence != 0:
					return "it is not event 0 of its run"
				case e.str("from_run_id") == e.run || !e.has("from_run_id"):
					return "it names no other run"
				}
				return ""
			}),
		needs(u.eventRule("thinking", "E41", "Thinking is in the log only if it was enabled", events, anyEvent, func(_ *check, e *event) string {
			if strings.HasPrefix(e.kind, "assistant.thinking_") {
				return "thinking is hidden unless it is enabled"
			}
			return ""
		}), func(c *conformance.Config) bool { return !c.Thinking }, "the server was told to show thinking"),
		u.eventRule("retired", "E42", "No retired type is in the log", events, anyEvent, func(_ *check, e *event) string {
			if now := retiredTypes[e.kind]; now != "" {
				return "the type is retired; it is called " + now
			}
			return ""
		}),
		// The totals are added up member by member. A member that a round or the tick lacks is left out.
		u.runRule("totals", "E43", "The totals of all rounds are those of the last cost.tick", "totals of rounds and a cost.tick", func(c *check, r *run) {
			rounds, ticks := r.of(func(e *event) bool { return e.isRound("completed") }), r.of(kind("cost.tick"))
			if len(rounds) == 0 || len(ticks) == 0 || r.events[0].sequence > 0 || r.end() == nil {
				return
			}
			last := ticks[len(ticks)-1]
			for _, name := range []string{"input_tokens", "output_tokens", "cost_micros_usd"} {
				total, known := last.num("cumulative_" + name)
				sum := int64(0)
				for _, e := range rounds {
					n, ok := e.num(name)
					sum, known = sum+n, known && ok
				}
				if known {
					c.judged++
					c.wrongIf(sum != total, "%s says cumulative_%s %d, and the rounds of the run add up to %d", last, name, total, sum)
				}
			}
		}),
		u.logRule("vocabulary", "5", "A log calls model rounds by one name only", "a model round", func(c *check, runs []*run) {
			isTurn := func(e *event) bool { return strings.HasPrefix(e.kind, "turn.") }
			var first *event
			for _, r := range runs {
				for _, e := range r.of(func(e *event) bool { return isTurn(e) || strings.HasPrefix(e.kind, "model.call.") }) {
					c.judged++
					first = cmp.Or(first, e)
					c.wrongIf(isTurn(e) != isTurn(first), "%s and %s call model rounds by different names", first, e)
				}
			}
		}),
		u.eventRule("members", "9", "Events about runs have the members that the reference validator requires", "an event about a run",
			func(e *event) bool { return requiredOf[e.kind] != nil }, func(_ *check, e *event) string {
				for _, name := range requiredOf[e.kind] {
					if !e.has(name) {
						return name + " is " + show(e.data[name])
					}
				}
				if status := e.str("final_status"); e.kind == "run.finished" && status != "completed" {
					return "final_status is " + show(status) + ", want completed"
				}
				return ""
			}),
		// Readers must accept types outside the core, so these are advice.
		u.logRule("core-types", "9", "All types are those that the reference validator knows", events, func(c *check, runs []*run) {
			others := map[string]bool{}
			for _, r := range runs {
				c.judged += len(r.events)
				for _, e := range r.of(func(e *event) bool { return !slices.Contains(knownTypes, e.kind) }) {
					others[e.kind] = true
				}
			}
			if len(others) > 0 {
				c.t.Advise(conformance.Advice{
					Rule: "9", Text: "Readers must accept types outside the core, but the reference validator refuses them.",
					Seen: "the log has " + strings.Join(slices.Sorted(maps.Keys(others)), ", "),
				})
			}
		}),
	}
}

// A span is a range of numbers of events.
type span struct{ first, last int64 }

func (s span) String() string { return fmt.Sprintf("%d to %d", s.first, s.last) }

type spans []span

// has reports whether a number is in one of the ranges.
func (all spans) has(n int64) bool {
	return slices.ContainsFunc(all, func(s span) bool { return s.first <= n && n <= s.last })
}

// removals returns the numbers that the gap events of a run name.
func removals(r *run) (all spans) {
	for _, e := range r.of(kind("gap.events_pruned")) {
		first, ok := e.num("first_pruned_sequence")
		last, too := e.num("last_pruned_sequence")
		if ok && too {
			all = append(all, span{first, last})
		}
	}
	return all
}

// cutsCharacter reports whether a character was cut at the border of two chunks, so that each
// has a replacement character there. Output that is no text has more of them.
func cutsCharacter(a, b string) bool {
	const replacement = "\uFFFD"
	return strings.HasSuffix(a, replacement) && strings.HasPrefix(b, replacement) &&
		strings.Count(a, replacement) == 1 && strings.Count(b, replacement) == 1
}

// envName is the form of the name of an environment variable.
var envName = lazyregexp.New(`^[^=\s]+$`)

// retiredTypes are the names that nothing may have any more, and what replaced them.
var retiredTypes = map[string]string{
	"approval.approved": "approval.resolved", "approval.rejected": "approval.resolved",
	"run.claimed": "run.started", "run.running": "run.started", "run.completed": "run.finished",
	"run.resumed": "run.resumed_from_event", "run.resume_requested": "run.resumed_from_event",
}

// requiredOf lists what the reference validator wants events about runs to have.
var requiredOf = map[string][]string{
	"run.queued":             {"kind", "model", "provider"},
	"run.started":            {"worker_id", "lease_until"},
	"run.finished":           {"final_status", "duration_ms"},
	"run.failed":             {"code", "message", "retriable"},
	"run.cancelled":          {"by", "reason"},
	"run.resumed_from_event": {"from_run_id", "from_sequence"},
	"run.checkpoint_saved":   {"checkpoint_id"},
}

// knownTypes are what the reference validator knows, with both names of model rounds.
var knownTypes = strings.Fields(`
	run.queued run.started run.finished run.failed run.cancelled run.resumed_from_event run.checkpoint_saved
	turn.started turn.completed turn.failed model.call.started model.call.completed model.call.failed
	assistant.text_delta assistant.text_complete assistant.tool_call_proposed assistant.final_answer
	tool.invoked tool.started tool.completed tool.failed tool.cancelled tool.timed_out
	tool.shell.command tool.shell.output_chunk tool.shell.exited
	tool.file.patch tool.file.applied tool.file.reverted
	approval.requested approval.resolved approval.timed_out
	cost.tick cost.budget_warning cost.budget_exceeded policy.tool_blocked policy.model_rewrote
	error.tool_unavailable error.model_capability_missing error.upstream
	gap.run_disconnected gap.events_pruned`)
