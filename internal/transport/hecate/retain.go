package hecate

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
)

// markPruned appends gap.events_pruned to each run whose oldest events retention has
// removed. It tries runs for which that fails again the next time.
func (l *scopeLog) markPruned() error {
	l.prune()
	l.writing.Lock()
	lost := l.unmarked
	l.unmarked = nil
	l.writing.Unlock()
	var errs []error
	for _, r := range lost {
		if err := l.markRun(r); err != nil {
			errs = append(errs, err)
			l.writing.Lock()
			l.unmarked = append(l.unmarked, r)
			l.writing.Unlock()
		}
	}
	return errors.Join(errs...)
}

// prune removes from the index what retention has removed from the store.
func (l *scopeLog) prune() {
	l.writing.Lock()
	defer l.writing.Unlock()
	first := l.journal.First()
	if first == l.oldest {
		return
	}
	l.oldest = first
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unmarked = l.index.prune(first) // those of before are among them
}

// markRun appends the marker of one run. Its session must know that the run has one more
// event.
func (l *scopeLog) markRun(r *run) error {
	l.mu.Lock()
	s := l.index.Sessions[r.Session]
	l.mu.Unlock()
	if s == nil { // both have left the index
		return nil
	}
	return l.revived(s, func() error {
		l.mu.Lock()
		lost, from, upTo, epoch := r.lost(), r.Unpruned, r.first()-1, s.Epoch
		if r.Abandoned {
			lost = 0
		}
		l.mu.Unlock()
		if lost == 0 { // it has its marker
			return nil
		}
		now := time.Now().UTC()
		data := fmt.Sprintf(`{"first_pruned_sequence":%d,"last_pruned_sequence":%d,"pruned_at":%q,"reason":"retention_window"}`,
			from, upTo, now.Format(time.RFC3339Nano))
		s.live.Inserted(r.ID)
		marker := wire.Draft{RunID: r.ID, Type: "gap.events_pruned", At: now, Data: json.RawMessage(data)}
		return s.keep(l, epoch, s.seen.Load(), []wire.Draft{marker})
	})
}

// disconnectAll says in every session that its log may have a hole.
func (l *scopeLog) disconnectAll() error {
	for _, s := range l.index.Sessions {
		err := l.revived(s, func() error {
			return s.keep(l, s.Epoch, s.Cursor, s.live.Disconnected(time.Now(), "log_damaged"))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// introduce makes the log know sessions before their events are read. It takes the first of
// the ids if there are more than Options.MaxSessions.
func (l *scopeLog) introduce(ids []string) error {
	for _, id := range ids {
		l.mu.Lock()
		known, count := l.index.Sessions[id] != nil, len(l.index.Sessions)
		l.mu.Unlock()
		if known || count >= l.opts.MaxSessions {
			continue
		}
		if err := l.revived(l.session(id, func(*session) {}), func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// session calls use with a session while the log is locked, and returns the session. If the
// log did not know it, and knows too many, the oldest sessions leave the log.
func (l *scopeLog) session(id string, use func(*session)) *session {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	over := len(l.index.Sessions) + 1 - l.opts.MaxSessions
	if l.index.Sessions[id] == nil && over > 0 {
		l.index.evictSessions(max(over, l.opts.MaxSessions/16))
	}
	s := l.index.session(id)
	use(s)
	return s
}
