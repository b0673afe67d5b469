package contracts_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// A snapshot may wait in memory for a client, whatever part of it is large.
func TestSnapshotHasLittleSpareRoom(t *testing.T) {
	said := strings.Repeat("x", 3<<20)
	snap := &contracts.Snapshot{ProtocolVersion: contracts.ProtocolVersion, SessionID: "s", LastInit: json.RawMessage(`{"type":"init","system_prompt":"` + said + `"}`)}
	text, err := contracts.EncodeSnapshot(snap, 0)
	if err != nil || len(text) < len(said) || cap(text) > len(text)+128<<10 {
		t.Errorf("got %d bytes with room for %d, %v, want hardly more room", len(text), cap(text), err)
	}
}
