package utility

import (
	"context"

	"github.com/seed-028515a8/maestro/contracts"
)

// A tenure is what a command and a watch have in common: a client chose its id,
// one connection owns it, and its id is taken until its last event was shown.
type tenure struct {
	id, owner string
	gone      chan struct{} // closed once the id is free again
	leaving   bool          // guarded by Host.mu: the last event is being published
}

func (t *tenure) held() *tenure { return t }

// A table holds what runs, by id. Host.mu guards it.
type table[T interface{ held() *tenure }] struct {
	limit   int
	taken   string // text before an id that is taken
	full    string // text when there are too many
	entries map[string]T
}

func newTable[T interface{ held() *tenure }](limit int, taken, full string) table[T] {
	return table[T]{limit: limit, taken: taken, full: full, entries: make(map[string]T)}
}

// take puts entry in the table, or refuses it. Whoever has seen the last event of
// an entry may use its id, so it waits for one that is about to leave.
func take[T interface{ held() *tenure }](h *Host, c *call, t *table[T], entry T) error {
	for {
		wait, err := tryTake(h, c, t, entry)
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
func tryTake[T interface{ held() *tenure }](h *Host, c *call, t *table[T], entry T) (<-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := entry.held().id
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
	t.entries[id] = entry
	h.work.Add(1)
	return nil, nil
}

// owned returns what a table has under id, if owner may act on it. Unknown ids
// and those about to leave yield the zero value.
func owned[T interface{ held() *tenure }](h *Host, t *table[T], owner, id, what string) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var none T
	entry, ok := t.entries[id]
	switch {
	case !ok || entry.held().leaving:
		return none, nil
	case entry.held().owner != owner:
		return none, refuse(contracts.CodeAccessDenied, id, "Headless "+what+" "+id+" is owned by another connection")
	}
	return entry, nil
}

// depart shows the last event of an entry, if it has one, and frees its id.
func depart[T interface{ held() *tenure }](h *Host, t *table[T], entry T, last contracts.Event) {
	h.mu.Lock()
	entry.held().leaving = true
	h.mu.Unlock()
	if last != nil {
		h.show(last)
	}
	h.mu.Lock()
	delete(t.entries, entry.held().id)
	h.mu.Unlock()
	close(entry.held().gone)
	h.work.Done()
}
