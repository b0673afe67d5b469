package hecate

import (
	"bytes"
	"fmt"
	"slices"
)

// removals returns the ranges of numbers that the gap events of a run name.
func removals(r *run) (ranges [][2]int64) {
	for _, e := range r.of(kind("gap.events_pruned")) {
		first, ok := e.num("first_pruned_sequence")
		last, too := e.num("last_pruned_sequence")
		if ok && too {
			ranges = append(ranges, [2]int64{first, last})
		}
	}
	return ranges
}

// judgePruned holds the first number of a run and the numbers inside against its gap events.
func judgePruned(r *run) (int, string) {
	ranges := removals(r)
	if len(r.events) == 0 || r.events[0].sequence == 0 && len(ranges) == 0 {
		return 0, ""
	}
	if len(ranges) == 0 {
		return 1, fmt.Sprintf("%s is the first event there is, and no gap.events_pruned names those before it", r.events[0])
	}
	for i := 1; i < len(ranges); i++ {
		if ranges[i][0] <= ranges[i-1][1] {
			return 1, fmt.Sprintf("%s: a gap.events_pruned names %d to %d, and a later one %d to %d", r.run, ranges[i-1][0], ranges[i-1][1], ranges[i][0], ranges[i][1])
		}
	}
	for _, e := range r.events {
		for _, p := range ranges {
			if e.kind != "gap.events_pruned" && p[0] <= e.sequence && e.sequence <= p[1] {
				return 1, fmt.Sprintf("%s is there, and a gap.events_pruned says that %d to %d are not", e, p[0], p[1])
			}
		}
	}
	return 1, ""
}

// judgeUnchanged holds the runs against what they were earlier. A run that is gone as a whole
// is not judged.
func judgeUnchanged(s *play) judgement {
	before := s.suite.before
	if before == nil {
		s.skip("needs a log that was saved earlier")
	}
	return func(h *history) (judged int, bad *finding) {
		for _, old := range before.runs {
			at := slices.IndexFunc(h.runs, func(r *run) bool { return r.run == old.run })
			if at < 0 {
				continue
			}
			now := map[int64]*event{}
			for _, e := range h.runs[at].events {
				now[e.sequence] = e
			}
			removed := removals(h.runs[at])
			for _, e := range old.events {
				judged++
				same := now[e.sequence]
				isRemoved := slices.ContainsFunc(removed, func(p [2]int64) bool { return p[0] <= e.sequence && e.sequence <= p[1] })
				switch {
				case same == nil && !isRemoved:
					return judged, &finding{"E35", fmt.Sprintf("%s was there earlier, and neither it nor a gap.events_pruned about it is there now", e)}
				case same != nil && !bytes.Equal(same.raw, e.raw):
					return judged, &finding{"E5", fmt.Sprintf("%s has other bytes than earlier: %s and %s", e, short(same.raw), short(e.raw))}
				}
			}
		}
		return judged, nil
	}
}

func judgeResumed(r *run) (n int, wrong string) {
	for _, e := range r.of(kind("run.resumed_from_event")) {
		n++
		switch {
		case e.sequence != 0:
			return n, fmt.Sprintf("%s is not event 0 of its run", e)
		case e.str("from_run_id") == r.run || !e.has("from_run_id"):
			return n, fmt.Sprintf("%s names no other run: from_run_id is %s", e, show(e.data["from_run_id"]))
		}
	}
	return n, ""
}
