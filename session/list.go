package session

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// put removes the entry with the same key, if any, and appends e. A list that
// would grow beyond limit loses its oldest entry.
func put[T any](list *[]T, e T, same func(T) bool, limit int) {
	drop(list, same)
	if over := len(*list) + 1 - limit; over > 0 {
		*list = slices.Delete(*list, 0, over)
	}
	*list = append(*list, e)
}

// drop removes the entries with the key and reports whether there were any.
func drop[T any](list *[]T, same func(T) bool) bool {
	before := len(*list)
	*list = slices.DeleteFunc(*list, same)
	return len(*list) < before
}

// The keys of the lists.

func hasCall(callID string) func(contracts.PendingEntry) bool {
	return func(e contracts.PendingEntry) bool { return e.CallID == callID }
}

func hasID(id string) func(contracts.PendingEntry) bool {
	return func(e contracts.PendingEntry) bool { return e.ID() == id }
}

func isTool(callID string) func(tool) bool {
	return func(t tool) bool { return t.callID == callID }
}

func isCommand(id string) func(command) bool {
	return func(c command) bool { return c.facts.CommandID == id }
}

func isWatch(id string) func(contracts.ActiveWatch) bool {
	return func(w contracts.ActiveWatch) bool { return w.WatchID == id }
}
