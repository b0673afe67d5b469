package journal_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// event is a typical message: 200 bytes, of which 100 are text.
var event = text("response", string(bytes.Repeat([]byte("lorem "), 25)))

// envelope is a form like those of the transports, without fmt.
type envelope struct{}

func (envelope) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	dst = append(dst, 0x81, 126, byte(len(body)>>8), byte(len(body)))
	for shift := 0; shift < 64; shift += 8 {
		dst = append(dst, byte(cursor>>shift))
	}
	return append(dst, body...)
}

func (f envelope) AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte {
	return f.AppendMessage(dst, cursor, body)
}

// A discard store keeps nothing, to show what the journal alone costs.
type discard struct{ journal.Store }

func (discard) Append([]journal.Entry) error { return nil }

func stores(b *testing.B) map[string]journal.Store {
	file, err := journal.Open(b.TempDir(), journal.FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := file.Close(); err != nil {
			b.Error(err)
		}
	})
	return map[string]journal.Store{
		"discard": discard{journal.NewMemory(journal.MemoryOptions{})},
		"memory":  journal.NewMemory(journal.MemoryOptions{}),
		"file":    file,
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, name := range []string{"discard", "memory", "file"} {
		for forms := range 2 {
			b.Run(fmt.Sprintf("store=%s/forms=%d", name, forms), func(b *testing.B) {
				j, err := journal.New(stores(b)[name], journal.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if forms > 0 {
					defer j.Follow(envelope{}).Close()
				}
				batch := []journal.Entry{event}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := j.Append(batch...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkPublish shows that followers who do not read cost nothing.
func BenchmarkPublish(b *testing.B) {
	for _, views := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("views=%d", views), func(b *testing.B) {
			j, err := journal.New(stores(b)["discard"], journal.Options{})
			if err != nil {
				b.Fatal(err)
			}
			for range views {
				defer j.Follow(envelope{}).Close()
			}
			batch := []journal.Entry{event}
			for b.Loop() {
				if _, err := j.Append(batch...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRead measures a follower that is a whole window behind: ready
// frames, frames with gaps between them, and entries of the store, where the
// texts merge.
func BenchmarkRead(b *testing.B) {
	const count = 10_000
	for _, c := range []struct {
		name   string
		window int
		skip   journal.Class
	}{{"contiguous", count, 0}, {"every second skipped", count, 1}, {"store", 1, 0}} {
		b.Run(c.name, func(b *testing.B) {
			j, err := journal.New(stores(b)["file"], journal.Options{WindowEntries: c.window})
			if err != nil {
				b.Fatal(err)
			}
			v := j.Follow(envelope{})
			defer v.Close()
			for i := range count {
				e := event
				e.Class = journal.Class(i % 2)
				if c.skip == 0 {
					e.Class = 0
				}
				if _, err := j.Append(e); err != nil {
					b.Fatal(err)
				}
			}
			buf := make([]byte, 0, 128<<10)
			b.ReportAllocs()
			for b.Loop() {
				for after := uint64(0); after < count; {
					if _, after, err = v.Read(&buf, after, count, c.skip, 0); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/entry")
		})
	}
}
