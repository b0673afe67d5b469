package session

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// putEntry removes entries with the same key and appends e. If the list would
// exceed limit, it removes the oldest entries.
func putEntry[T any](list *[]T, e T, same func(T) bool, limit int) {
	dropEntries(list, same)
	if over := len(*list) + 1 - limit; over > 0 {
		*list = slices.Delete(*list, 0, over)
	}
	*list = append(*list, e)
}

func dropEntries[T any](list *[]T, same func(T) bool) { *list = slices.DeleteFunc(*list, same) }

// Keys of the lists.

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
