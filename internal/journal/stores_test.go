package journal_test

import (
	"testing"

	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/storetest"
)

func TestMemoryIsAStore(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, retain int) journal.Store {
		return journal.NewMemory(journal.MemoryOptions{RetainBytes: retain})
	}, nil)
}

func TestFileIsAStore(t *testing.T) {
	type place struct {
		dir  string
		opts journal.FileOptions
	}
	places := map[journal.Store]place{}
	at := func(t *testing.T, p place) journal.Store {
		t.Helper()
		s, err := journal.Open(p.dir, p.opts)
		if err != nil {
			t.Fatal(err)
		}
		places[s] = p
		return s
	}
	storetest.Run(t, func(t *testing.T, retain int) journal.Store {
		p := place{dir: t.TempDir(), opts: journal.FileOptions{RetainBytes: int64(retain)}}
		p.opts.SegmentBytes = max(8<<10, int64(retain)/8)
		return at(t, p)
	}, func(t *testing.T, s journal.Store) journal.Store {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return at(t, places[s])
	})
}
