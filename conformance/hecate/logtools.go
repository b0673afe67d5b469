package hecate

import (
	"fmt"
	"regexp"
	"strings"
)

func judgeTools(r *run) (judged int, wrong string) {
	end := r.end()
	for i, e := range r.events {
		if e.kind != "tool.invoked" {
			continue
		}
		ends := 0
		for _, later := range r.events[i+1:] {
			if later == end && ends == 0 {
				return judged, fmt.Sprintf("%s: the call %q has not ended when %s ends the run", e, e.str("tool_call_id"), end)
			}
			if later.endsTool() && later.str("tool_call_id") == e.str("tool_call_id") {
				ends++
			}
		}
		if ends > 1 {
			return judged, fmt.Sprintf("%s: the call %q ends %d times", e, e.str("tool_call_id"), ends)
		}
		judged += ends
	}
	return judged, ""
}

func judgeChunks(r *run) (judged int, wrong string) {
	last := map[string]*event{} // of a stream of a call
	for _, e := range r.of(kind("tool.shell.output_chunk")) {
		stream := e.str("tool_call_id") + "/" + e.str("stream")
		before, expected := last[stream], int64(0)
		if before != nil {
			expected, _ = before.num("byte_offset")
			expected += int64(len(before.str("data")))
		}
		last[stream] = e
		judged++
		offset, ok := e.num("byte_offset")
		removed := before == nil && r.events[0].sequence > 0 // earlier chunks may have been
		if !ok || offset != expected && !removed {
			return judged, fmt.Sprintf("%s has byte_offset %s, want %d", e, show(e.data["byte_offset"]), expected)
		}
		if before != nil && cutsCharacter(before.str("data"), e.str("data")) {
			return judged, fmt.Sprintf("%s and %s cut a character: %s and %s", before, e, show(before.str("data")), show(e.str("data")))
		}
	}
	return judged, ""
}

// cutsCharacter reports whether a character was cut at the border of two chunks, so that each
// has a replacement character there. Output that is no text has more of them.
func cutsCharacter(a, b string) bool {
	const replacement = "\uFFFD"
	return strings.HasSuffix(a, replacement) && strings.HasPrefix(b, replacement) &&
		strings.Count(a, replacement) == 1 && strings.Count(b, replacement) == 1
}

func judgeExit(r *run) (judged int, wrong string) {
	for i, e := range r.events {
		if e.kind != "tool.shell.exited" {
			continue
		}
		judged++
		same := func(other *event) bool { return other.str("tool_call_id") == e.str("tool_call_id") }
		for j, other := range r.events {
			switch {
			case !same(other):
			case other.kind == "tool.shell.output_chunk" && j > i:
				return judged, fmt.Sprintf("%s comes after %s of the same call", other, e)
			case other.endsTool() && j < i:
				return judged, fmt.Sprintf("%s comes before %s of the same call", other, e)
			}
		}
	}
	return judged, ""
}

// envName is the form of the name of an environment variable.
var envName = regexp.MustCompile(`^[^=\s]+$`)

func judgeEnvKeys(e *event) string {
	list, ok := e.data["env_keys"].([]any)
	if !ok {
		return "env_keys is no list"
	}
	for _, v := range list {
		if name, ok := v.(string); !ok || !envName.MatchString(name) {
			return fmt.Sprintf("env_keys has %s, which is not the name of a variable", show(v))
		}
	}
	return ""
}

func judgeSecret(s *play) judgement {
	secret := s.config.Secret
	if secret == "" {
		s.skip("needs a secret that the server knows")
	}
	return eachEvent("E28", func(*event) bool { return true }, func(e *event) string {
		if strings.Contains(string(e.raw), secret) {
			e.raw = []byte("(not shown)") // a report is no place for it either
			return "the event has the secret in it"
		}
		return ""
	})(s)
}

func judgeApprovals(r *run) (judged int, wrong string) {
	over := map[string]*event{}
	for _, e := range r.of(kind("approval.requested", "approval.resolved", "approval.timed_out")) {
		id := e.str("approval_id")
		judged++
		if e.kind == "approval.requested" {
			continue
		}
		if first := over[id]; first != nil {
			return judged, fmt.Sprintf("%s decides %q, which %s decided", e, id, first)
		}
		over[id] = e
		if d := e.str("decision"); e.kind == "approval.resolved" && d != "approved" && d != "rejected" && d != "cancelled" {
			return judged, fmt.Sprintf("%s has the decision %q, want approved, rejected or cancelled", e, d)
		}
	}
	return judged, ""
}
