package contracts

import "time"

// A Feed is a part of a session's history, for a reader inside the process that is no
// client.
type Feed struct {
	Epoch  string     // of Cursor
	Cursor uint64     // position after this part
	Events []FedEvent // in order; raw agent events are among them

	// Reset is the state at Cursor if the events up to it cannot be read: they left
	// the journal, or belong to an earlier epoch. Nil means that nothing is missing.
	Reset *Snapshot
}

// A FedEvent is an event with its position and its time.
type FedEvent struct {
	Cursor uint64
	Time   time.Time // in milliseconds, by the clock of the server
	Event  Event     // nil if what is stored cannot be decoded
}
