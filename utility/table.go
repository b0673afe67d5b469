package utility

import (
	"context"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// An ownedID is the id of a command or a watch, chosen by a client and owned by
// one connection. It is in use until the last event about it has been
// published.
type ownedID struct {
	id, owner string
	gone      chan struct{} // closed when the id is free again
	leaving   bool          // guarded by Host.mu: the last event is being published
}

func (t *ownedID) held() *ownedID { return t }

// An entry is a command or a watch in a table.
type entry interface {
	held() *ownedID
	// halt ends the entry because its connection or session ended. grace is the
	// time for its processes.
	halt(reason string, grace time.Duration)
}

// A table holds running entries by id. Host.mu guards it.
type table[T entry] struct {
	limit   int
	taken   string // text before an id that is in use
	full    string // text when there are too many entries
	entries map[string]T
}

func newTable[T entry](limit int, taken, full string) table[T] {
	return table[T]{limit: limit, taken: taken, full: full, entries: make(map[string]T)}
}

// register adds e to the table, or refuses it. A client that has seen the last
// event of an entry may reuse its id, so register waits for an entry that is
// leaving.
func register[T entry](h *Host, c *call, t *table[T], e T) error {
	for {
		wait, err := tryRegister(h, c, t, e)
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

// tryRegister is one attempt of register. It returns a channel to wait for before the
// next attempt, if any.
func tryRegister[T entry](h *Host, c *call, t *table[T], e T) (<-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := e.held().id
	switch old, exists := t.entries[id]; {
	case h.closed:
		return nil, unavailable()
	case c.ctx.Err() != nil: // the connection may have ended
		return nil, context.Cause(c.ctx)
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

// owned returns the entry with id if owner owns it. For unknown ids and for
// entries that are leaving it returns the zero value.
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

// unregister publishes the last event of an entry, if any, and frees its id.
func unregister[T entry](h *Host, t *table[T], e T, last contracts.Event) {
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

// endIn halts the entries of matching owners and returns their gone channels.
// The caller holds Host.mu.
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
