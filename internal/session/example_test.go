package session_test

import (
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

// A client that attaches late starts from a snapshot and then follows.
func Example() {
	server := session.New()
	server.Apply(&contracts.ResponseStart{ResponseID: "r1"})
	server.Apply(&contracts.ResponseChunk{ResponseID: "r1", Content: "It is "})

	client := session.New()
	client.Restore(server.Snapshot(2))
	client.Apply(&contracts.ResponseChunk{ResponseID: "r1", Content: "a clock skew."})

	fmt.Println(client.Snapshot(3).State.CurrentResponse.Text)
	// Output: It is a clock skew.
}
