package journal

// A Store keeps a journal's entries. [Memory] and [File] are stores; package
// storetest holds the tests that every store has to pass.
//
// Append is called by one goroutine at a time. All methods may be called while
// others run; only Close must be the last.
type Store interface {
	// Epoch names the run of cursors: positions of another epoch mean nothing.
	Epoch() string

	// EpochStart returns the cursor after which the epoch began. Entries up to
	// it are kept for the owner's state; a follower's cursor before it counts in
	// an earlier epoch. It is zero for the first epoch.
	EpochStart() uint64

	// Bounds returns the oldest cursor that is kept and the newest that was
	// ever used. If all entries were removed, first is last+1. Both are zero
	// while nothing was ever appended.
	Bounds() (first, last uint64)

	// Append stores entries with one write. Their cursors continue from last
	// without a hole; the first batch of an empty store may begin anywhere.
	// When Append returns without error, the entries survive the death of this
	// process, if the store survives it at all; Sync protects them from the
	// death of the machine.
	//
	// It is all or nothing: after an error the store is as it was before, or,
	// if that was not possible, this and all later calls return ErrBroken.
	//
	// The store does not keep the bodies; they may be reused.
	Append(entries []Entry) error

	// Read calls fn with the entries after the cursor after, in order, until
	// fn returns false or the entries that existed at the time of the call are
	// through. A body is valid until fn returns. fn must not call the store.
	//
	// Read returns ErrGap if after+1 is no longer kept, if after lies beyond
	// the last cursor, or if retention overtakes the reader midway.
	// Cursors that were never used, or were lost with a machine, are skipped.
	Read(after uint64, fn func(Entry) bool) error

	// LastCheckpoint returns the cursor of the newest checkpoint that is kept,
	// or zero.
	LastCheckpoint() uint64

	// Sync returns once everything appended before the call is on stable
	// storage and retention has caught up.
	Sync() error

	// Close does what Sync does and releases the store. The second call does
	// nothing.
	Close() error
}
