package hecate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// A history is what a server or a file knows of some runs.
type history struct {
	runs []*run
}

// A run is the log of one run, in the order received.
type run struct {
	ref
	events []*event
	since  string // a cursor of the cross-run stream before the run; empty is the beginning
}

// A ref is the way to a run.
type ref struct{ task, run string }

// maxFile bounds the file of a log, in bytes.
const maxFile = 256 << 20

// readHistory reads a JSON array of envelopes of any number of runs.
func readHistory(path string) (*history, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), maxFile)
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: want a JSON array of envelopes: %w", path, err)
	}
	h, at := &history{}, map[string]*run{}
	for _, raw := range list {
		e := parseEvent(raw)
		r := at[e.run]
		if r == nil {
			r = &run{ref: ref{e.task, e.run}}
			at[e.run] = r
			h.runs = append(h.runs, r)
		}
		r.events = append(r.events, e)
	}
	return h, nil
}

// save writes the envelopes to a file that readHistory reads, byte by byte as they were
// received. An empty path writes nothing.
func (h *history) save(path string) error {
	if path == "" {
		return nil
	}
	var all [][]byte
	for _, r := range h.runs {
		for _, e := range r.events {
			all = append(all, e.raw)
		}
	}
	text := slices.Concat([]byte("[\n"), bytes.Join(all, []byte(",\n")), []byte("\n]\n"))
	return os.WriteFile(path, text, 0o600) // events may be private
}

// of returns the events of a run that f accepts.
func (r *run) of(f func(*event) bool) []*event {
	return slices.DeleteFunc(slices.Clone(r.events), func(e *event) bool { return !f(e) })
}

// end returns the first event that ends the run, or nil.
func (r *run) end() *event {
	if at := slices.IndexFunc(r.events, (*event).ends); at >= 0 {
		return r.events[at]
	}
	return nil
}

// kind returns a predicate for events of one of some types.
func kind(names ...string) func(*event) bool {
	return func(e *event) bool { return slices.Contains(names, e.kind) }
}
