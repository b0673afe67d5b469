package journal_test

import (
	"fmt"
	"log"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// sseForm makes server-sent events.
type sseForm struct{}

func (sseForm) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	return fmt.Appendf(dst, "id: %d\ndata: %s\n\n", cursor, body)
}

func (sseForm) AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte {
	return fmt.Appendf(dst, "id: %d\nevent: snapshot\ndata: %s\n\n", cursor, body)
}

func Example() {
	store := journal.NewMemory(journal.MemoryOptions{})
	defer store.Close()
	j, err := journal.New(store, journal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	view := j.Follow(sseForm{})
	defer view.Close()

	_, err = j.Append(
		journal.Entry{Kind: journal.Message, Body: []byte(`{"type":"ready"}`)},
		journal.Entry{Kind: journal.Note, Body: []byte(`{"lease":7}`)}, // for recovery only
		journal.Entry{Kind: journal.Message, Body: []byte(`{"type":"status"}`)},
	)
	if err != nil {
		log.Fatal(err)
	}

	// A follower is a cursor. This one has seen nothing yet.
	frames, cursor, err := view.Read(new([]byte), 0, j.Visible(), 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%sreached %d\n", frames, cursor)
	// Output:
	// id: 1
	// data: {"type":"ready"}
	//
	// id: 3
	// data: {"type":"status"}
	//
	// reached 3
}
