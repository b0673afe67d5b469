// Package journal stores one session's history: an ordered, bounded, replayable
// list of entries. Any number of followers read it, each at its own speed.
//
// A follower is a cursor. Live delivery, replay after a reconnect and recovery from
// lag are the same call, [View.Read]. It returns bytes from memory while the
// entries are in the window; these are encoded and shared by all followers of the
// same form. Older entries come from the store.
//
// # Guarantees
//
//   - One frame for each cursor: followers that skip different classes may see different
//     events of one entry ([Parts]), but each sees at most one.
//   - Order: cursors are consecutive. A follower that reads on from the cursor it
//     got sees every visible entry that it did not opt out of, once and in order.
//     From the store, consecutive texts may come merged.
//   - Written before shown: no follower sees an entry that the store has not
//     accepted. Entries that a [File] accepted survive the death of the process.
//   - A cursor that may have been shown is never used for another entry, not even
//     if entries were lost or the directory is a copy. The epoch changes then.
//   - A slow or stalled follower costs its cursor and at most the chunk that it is
//     writing. The cost of an append does not depend on the number of followers.
//   - Every limit is documented: those of the window in [Options], those of the
//     store in [MemoryOptions] and [FileOptions]. Beyond both, Read returns
//     [ErrGap].
//   - Damage is reported with file and offset and never repaired by guessing. Open
//     cuts off only what a crash explains. [Repair] keeps what can be read.
//
// # Limitations
//
//   - It does not know the meaning of entries or classes, and reads no clock.
//   - It does not wake followers: it calls [Options.Wake], and the owner of the
//     followers wakes them.
//   - Without [Store.Sync], entries may be lost if the machine fails.
//   - A [File] removes only entries that a later checkpoint replaces, whatever its
//     limits are: its owner must write checkpoints.
package journal
