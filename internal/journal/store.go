package journal

// A Store stores a journal's entries. [Memory] and [File] are stores; package
// storetest has tests for every store.
//
// Append is called by one goroutine at a time. All methods may be called while
// others run, except that Close must be the last.
type Store interface {
	// Epoch returns the epoch. Cursors of different epochs are not comparable.
	Epoch() string

	// EpochStart returns the cursor after which the epoch began, zero for the first
	// epoch. Entries up to it are kept for the owner's state. A follower's cursor
	// before it belongs to an earlier epoch.
	EpochStart() uint64

	// Bounds returns the oldest stored cursor and the newest cursor that was ever
	// used. If all entries were removed, first is last+1. Both are zero if no entry
	// was ever appended.
	Bounds() (first, last uint64)

	// Append stores entries with one write. Their cursors continue from last
	// without a hole; the first batch of an empty store may begin at any cursor.
	// When Append returns without error, the entries survive the death of this
	// process, if the store survives it at all; Sync protects them against a
	// failure of the machine.
	//
	// If Append fails, the store is as it was before. If that was not possible,
	// this and all later calls return ErrBroken.
	//
	// The store does not keep the bodies; the caller may reuse them.
	Append(entries []Entry) error

	// Read calls fn with the entries after the cursor after, in order, until fn
	// returns false or all entries that existed at the time of the call were read.
	// A body is valid until fn returns. fn must not call the store.
	//
	// Read returns ErrGap if after+1 is no longer stored, if after is greater than
	// the last cursor, or if retention removes entries that are being read. Cursors
	// that were never used or were lost are skipped.
	Read(after uint64, fn func(Entry) bool) error

	// Rewind returns the cursor after which Read begins in order to reach before
	// after at most n entries: fewer if fewer are stored. It returns false if no
	// entry before the cursor before is stored. It skips cursors that were never used
	// or were lost.
	Rewind(before, n uint64) (after uint64, ok bool)

	// LastCheckpoint returns the cursor of the newest stored checkpoint, or zero.
	LastCheckpoint() uint64

	// Sync returns when all entries appended before the call are on stable storage
	// and retention has been applied.
	Sync() error

	// Close does what Sync does and releases the store. Later calls do nothing.
	Close() error
}
