// Package journal keeps one session's history: an ordered, bounded, replayable
// list of entries, which any number of followers read at their own pace.
//
// A follower is a cursor. Live delivery, replay after a reconnect and recovery
// from lag are the same call, [View.Read]; it takes its bytes from memory while
// the entries are there, ready to be sent and shared with all followers of
// the same form, and from the store after that.
//
// # What it promises
//
//   - Order: cursors are consecutive, and a follower that reads on from the
//     cursor it got sees every visible entry it did not leave out, once, in
//     order. Far behind, texts that follow each other may come as one.
//   - Written before shown: no follower sees an entry that the store has not
//     accepted. What a [File] accepted survives the death of the process.
//   - Cursors are never used twice for something that may have been shown, not
//     even when entries were lost or the directory is a copy; the epoch changes
//     then.
//   - A slow or stalled follower costs its cursor and at most the chunk it is
//     writing. Appending costs the same for one follower as for ten thousand.
//   - Every bound is stated: the window's in [Options], the store's in
//     [MemoryOptions] and [FileOptions]. Beyond both there is [ErrGap].
//   - Damage is reported with its place and never repaired by guessing.
//     Only what a crash explains is cut off. [Repair] keeps what can be read.
//
// # What it does not
//
//   - It does not know what an entry means, nor what its classes are; it reads
//     no clock.
//   - It does not wake anybody: [Options.Wake] is told, and whoever owns the
//     followers wakes them.
//   - Without [Store.Sync], entries may be lost with the machine.
//   - A [File] removes only what a later checkpoint replaces, whatever its
//     bounds say: its owner must write checkpoints.
package journal
