package hecate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/conformance"
)

// A judgement looks at a history and returns how much there was to judge, and what is wrong
// first, or nil.
type judgement func(h *history) (judged int, bad *finding)

// logRule returns a scenario that judges every run there is. none says what is missing if
// there was nothing to judge.
func logRule(name, rules, title, none string, judge func(*play) judgement) scenario {
	return scenario{name: "log/" + name, rules: rules, title: title, offline: true, story: func(s *play) {
		judged, bad := judge(s)(s.history())
		if bad != nil {
			s.fail(bad.rule, "%s", bad.text)
		}
		if judged == 0 {
			s.skip("no run has %s", none)
		}
	}}
}

func always(j judgement) func(*play) judgement { return func(*play) judgement { return j } }

// eachEvent judges the events that are about the rule, one by one. The function returns what
// is wrong, or nothing.
func eachEvent(rule string, about func(*event) bool, wrong func(*event) string) func(*play) judgement {
	return always(func(h *history) (judged int, bad *finding) {
		for _, r := range h.runs {
			for _, e := range r.of(about) {
				judged++
				if text := wrong(e); text != "" {
					return judged, &finding{rule, fmt.Sprintf("%s: %s; in %s", e, text, short(e.raw))}
				}
			}
		}
		return judged, nil
	})
}

// eachRun judges runs one by one. The function returns how much it judged and what is wrong.
func eachRun(rule string, judge func(*run) (int, string)) func(*play) judgement {
	return always(func(h *history) (judged int, bad *finding) {
		for _, r := range h.runs {
			n, text := judge(r)
			judged += n
			if text != "" {
				return judged, &finding{rule, text}
			}
		}
		return judged, nil
	})
}

// problems judges what parseEvent found about a rule.
func problems(rule string) func(*play) judgement {
	return eachEvent(rule, func(*event) bool { return true }, func(e *event) string {
		for _, p := range e.problems {
			if p.rule == rule {
				return p.text
			}
		}
		return ""
	})
}

// logRules are the scenarios about what a log says. They need no server.
func logRules() []scenario {
	const events, tools = "an event", "a tool call"
	return []scenario{
		logRule("schema", "E1", "Every envelope has the members of version 1 and no other", events, problems("E1")),
		logRule("ids", "E2", "Ids are a prefix and a ULID", events, problems("E2")),
		logRule("unique-ids", "E3", "Event ids are unique and increase within a run", events, always(judgeIDs)),
		logRule("numbering", "E4", "The events of a run are numbered from 0 without a gap", events, eachRun("E4", judgeNumbers)),
		logRule("data", "E45", "data is an object in every event", events, problems("E45")),
		logRule("one-end", "E20", "A run ends once, and only gap events follow", "an end", eachRun("E20", judgeEnd)),
		logRule("order", "E21", "A run is queued, started and ended in this order", "an end", eachRun("E21", judgeOrder)),
		logRule("text", "E22", "The text of a block is what its deltas say", "a complete text with deltas", eachRun("E22", judgeText)),
		logRule("tools", "E23", "A tool call that was invoked ends once, before its run ends", tools, eachRun("E23", judgeTools)),
		logRule("chunks", "E24", "Chunks of output are numbered by bytes and cut no character", "tool output", eachRun("E24", judgeChunks)),
		logRule("exit", "E26", "The exit of a shell comes after its output and before the end of its call", "a shell's exit", eachRun("E26", judgeExit)),
		logRule("env-keys", "E27", "Environment variables are named without values", "env_keys", eachEvent("E27",
			func(e *event) bool { return e.data["env_keys"] != nil }, judgeEnvKeys)),
		logRule("secret", "E28", "A secret that the server knows is nowhere in the log", events, judgeSecret),
		logRule("approvals", "E31", "An approval is decided at most once, with a known decision", "an approval", eachRun("E31", judgeApprovals)),
		logRule("pruned", "E35", "Events that were removed are named by a gap event", "removed events", eachRun("E35", judgePruned)),
		logRule("unchanged", "E5 E35", "Events of an earlier time have the same bytes or are named as removed", "an event of the earlier time", judgeUnchanged),
		logRule("resumed", "E37", "A resumed run is a new run, and its event 0 names the old one", "a resumption", eachRun("E37", judgeResumed)),
		logRule("thinking", "E41", "Thinking is in the log only if it was enabled", events, judgeThinking),
		logRule("retired", "E42", "No retired type is in the log", events, eachEvent("E42", func(*event) bool { return true }, judgeRetired)),
		logRule("totals", "E43", "The totals of all rounds are those of the last cost.tick", "totals of rounds and a cost.tick", eachRun("E43", judgeTotals)),
		logRule("vocabulary", "5", "A log calls model rounds by one name only", "a model round", always(judgeVocabulary)),
		logRule("members", "9", "Events about runs have the members that the reference validator requires", "an event about a run", eachEvent("9",
			func(e *event) bool { return requiredOf[e.kind] != nil }, judgeMembers)),
		{name: "log/core-types", rules: "9", title: "All types are those that the reference validator knows", offline: true, story: coreTypes},
	}
}

func judgeIDs(h *history) (judged int, bad *finding) {
	seen := map[string]*event{}
	for _, r := range h.runs {
		last := ""
		for _, e := range r.events {
			judged++
			if first := seen[e.id]; first != nil {
				return judged, &finding{"E3", fmt.Sprintf("%s and %s have the same event_id %q", first, e, e.id)}
			}
			if seen[e.id] = e; e.id <= last {
				return judged, &finding{"E3", fmt.Sprintf("%s has the event_id %q, which is not greater than %q before it", e, e.id, last)}
			}
			last = e.id
		}
	}
	return judged, nil
}

// judgeNumbers accepts a first number greater than 0 only if the log says that the events
// before it were removed; markers of removals keep their own numbers.
func judgeNumbers(r *run) (int, string) {
	if len(r.events) == 0 {
		return 0, ""
	}
	removed := removals(r)
	next := int64(0)
	for _, e := range r.events {
		for next < e.sequence && slices.ContainsFunc(removed, func(p [2]int64) bool { return p[0] <= next && next <= p[1] }) {
			next++
		}
		if e.sequence != next {
			return 1, fmt.Sprintf("%s comes where %d was expected", e, next)
		}
		next++
	}
	return len(r.events), ""
}

func judgeEnd(r *run) (int, string) {
	end := r.end()
	if end == nil {
		return 0, ""
	}
	for _, e := range r.events[slices.Index(r.events, end)+1:] {
		if !strings.HasPrefix(e.kind, "gap.") {
			return 1, fmt.Sprintf("%s comes after %s", e, end)
		}
	}
	return 1, ""
}

// judgeOrder accepts a log whose beginning was removed, and one without run.queued.
func judgeOrder(r *run) (int, string) {
	end := r.end()
	at := func(k string) int { return slices.IndexFunc(r.events, kind(k)) }
	queued, started := at("run.queued"), at("run.started")
	if end == nil || r.events[0].sequence > 0 {
		return 0, ""
	}
	over := slices.Index(r.events, end)
	switch {
	case started < 0 && end.kind != "run.cancelled":
		return 1, fmt.Sprintf("%s ends a run that never had run.started", end)
	case started > over:
		return 1, fmt.Sprintf("%s comes after %s", r.events[started], end)
	case queued >= 0 && started >= 0 && queued > started:
		return 1, fmt.Sprintf("%s comes after %s", r.events[queued], r.events[started])
	}
	return 1, ""
}

func judgeText(r *run) (judged int, wrong string) {
	deltas := map[string]*strings.Builder{}
	block := func(e *event) string { return e.round() + "/" + show(e.data["block_index"]) }
	whole := len(r.events) > 0 && r.events[0].sequence == 0
	for _, e := range r.events {
		switch e.kind {
		case "assistant.text_delta":
			if deltas[block(e)] == nil {
				deltas[block(e)] = &strings.Builder{}
			}
			deltas[block(e)].WriteString(e.str("delta"))
		case "assistant.text_complete":
			if said := deltas[block(e)]; said != nil && whole {
				judged++
				if said.String() != e.str("text") {
					return judged, fmt.Sprintf("%s says %s, and its deltas say %s", e, show(e.str("text")), show(said.String()))
				}
			}
			delete(deltas, block(e))
		}
	}
	return judged, ""
}

func judgeThinking(s *play) judgement {
	if s.config.Thinking {
		s.skip("the server was told to show thinking")
	}
	return eachEvent("E41", func(*event) bool { return true }, func(e *event) string {
		if strings.HasPrefix(e.kind, "assistant.thinking_") {
			return "thinking is hidden unless it is enabled"
		}
		return ""
	})(s)
}

// retiredTypes are the names that nothing may have any more, and what replaced them.
var retiredTypes = map[string]string{
	"approval.approved": "approval.resolved", "approval.rejected": "approval.resolved",
	"run.claimed": "run.started", "run.running": "run.started", "run.completed": "run.finished",
	"run.resumed": "run.resumed_from_event", "run.resume_requested": "run.resumed_from_event",
}

func judgeRetired(e *event) string {
	if now := retiredTypes[e.kind]; now != "" {
		return "the type is retired; it is called " + now
	}
	return ""
}

// judgeTotals adds up what all rounds of a run say, member by member. A round without a
// member, or a tick without it, leaves the member out.
func judgeTotals(r *run) (judged int, wrong string) {
	rounds, ticks := r.of(func(e *event) bool { return e.isRound("completed") }), r.of(kind("cost.tick"))
	if len(rounds) == 0 || len(ticks) == 0 || r.events[0].sequence > 0 || r.end() == nil {
		return 0, ""
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
			judged++
			if sum != total {
				return judged, fmt.Sprintf("%s says cumulative_%s %d, and the rounds of the run add up to %d", last, name, total, sum)
			}
		}
	}
	return judged, ""
}

func judgeVocabulary(h *history) (judged int, bad *finding) {
	var first *event
	for _, r := range h.runs {
		for _, e := range r.events {
			if !strings.HasPrefix(e.kind, "turn.") && !strings.HasPrefix(e.kind, "model.call.") {
				continue
			}
			if judged++; first == nil {
				first = e
			}
			if strings.HasPrefix(e.kind, "turn.") != strings.HasPrefix(first.kind, "turn.") {
				return judged, &finding{"5", fmt.Sprintf("%s and %s call model rounds by different names", first, e)}
			}
		}
	}
	return judged, nil
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

func judgeMembers(e *event) string {
	for _, name := range requiredOf[e.kind] {
		if !e.has(name) {
			return fmt.Sprintf("%s is %s", name, show(e.data[name]))
		}
	}
	if status := e.str("final_status"); e.kind == "run.finished" && status != "completed" {
		return fmt.Sprintf("final_status is %q, want completed", status)
	}
	return ""
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

// coreTypes advises about types outside the core. Readers must accept them.
func coreTypes(s *play) {
	var others []string
	events := 0
	for _, r := range s.history().runs {
		for _, e := range r.events {
			if events++; !slices.Contains(knownTypes, e.kind) && !slices.Contains(others, e.kind) {
				others = append(others, e.kind)
			}
		}
	}
	if events == 0 {
		s.skip("no run has an event")
	}
	if len(others) > 0 {
		slices.Sort(others)
		s.t.Advise(conformance.Advice{Rule: "9", Text: "Readers must accept types outside the core, but the reference validator refuses them.", Seen: "the log has " + strings.Join(others, ", ")})
	}
}
