package utility

import (
	"context"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// An ownedID is the id of a command or a watch. A client chose it, one connection
// owns it, and it is taken until the last event about it has been published.
type ownedID struct {
	id, owner string
	gone      chan struct{} // closed once the id is free again
	leaving   bool          // guarded by Host.mu: the last event is being published
}

func (t *ownedID) held() *ownedID { return t }

// An entry is what a table holds: a command or a watch.
type entry interface {
	held() *ownedID
	// halt has it end because of what happened to its connection or session.
	// grace is how long processes have.
	halt(reason string, grace time.Duration)
}

// A table holds what runs, by id. Host.mu guards it.
type table[T entry] struct {
	limit   int
	taken   string // text before an id that is taken
	full    string // text when there are too many
	entries map[string]T
}

func newTable[T entry](limit int, taken, full string) table[T] {
	return table[T]{limit: limit, taken: taken, full: full, entries: make(map[string]T)}
}

// take puts e in the table, or refuses it. Whoever has seen the last event of
// an entry may use its id, so it waits for one that is about to leave.
func take[T entry](h *Host, c *call, t *table[T], e T) error {
	for {
		wait, err := tryTake(h, c, t, e)
		if wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
}

// tryTake is one attempt. It returns what to wait for before the next.
func tryTake[T entry](h *Host, c *call, t *table[T], e T) (<-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := e.held().id
	switch old, exists := t.entries[id]; {
	case h.closed || c.disowned:
		return nil, unavailable()
	case exists && old.held().leaving:
		return old.held().gone, nil
	case exists:
		return nil, refuse(contracts.CodeBadRequest, id, t.taken+id)
	}
	if len(t.entries) >= t.limit {
		for _, old := range t.entries {
			if old.held().leaving {
				return old.held().gone, nil
			}
		}
		return nil, refuse(contracts.CodeOverloaded, id, t.full)
	}
	t.entries[id] = e
	h.work.Add(1)
	if c.took = e.held(); c.stopped != "" {
		e.halt(c.stopped, drainDelay)
	}
	return nil, nil
}

// owned returns what a table has under id, if owner may act on it. Unknown ids
// and those about to leave yield the zero value.
func owned[T entry](h *Host, t *table[T], owner, id, what string) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var none T
	e, ok := t.entries[id]
	switch {
	case !ok || e.held().leaving:
		return none, nil
	case e.held().owner != owner:
		return none, refuse(contracts.CodeAccessDenied, id, "Headless "+what+" "+id+" is owned by another connection")
	}
	return e, nil
}

// depart shows the last event of an entry, if it has one, and frees its id.
func depart[T entry](h *Host, t *table[T], e T, last contracts.Event) {
	h.mu.Lock()
	e.held().leaving = true
	h.mu.Unlock()
	if last != nil {
		h.show(last)
	}
	h.mu.Lock()
	delete(t.entries, e.held().id)
	h.mu.Unlock()
	close(e.held().gone)
	h.work.Done()
}

// endIn halts what belongs to the owners that match and returns what to wait
// for. The caller holds Host.mu.
func endIn[T entry](t *table[T], reason string, grace time.Duration, match func(owner string) bool) []<-chan struct{} {
	var ends []<-chan struct{}
	for _, e := range t.entries {
		if match(e.held().owner) {
			e.halt(reason, grace)
			ends = append(ends, e.held().gone)
		}
	}
	return ends
}
