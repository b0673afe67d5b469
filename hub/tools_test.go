package hub_test

import (
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// The agent is offered what the client that controls does for it, and nothing of
// others.
func TestToolsOfTheControllerAreOffered(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() journal.Store) {
		agent := newPlayer(nil)
		r := openRoom(t, hub.Options{Store: open(), Agent: agent})
		offers := func(want string) {
			t.Helper()
			got := ""
			for _, tool := range agent.host.ClientTools() {
				got += tool.Name + " "
			}
			if got != want {
				t.Errorf("got tools %q, want %q", got, want)
			}
		}
		offers("")
		hello := `{"type":"hello","capabilities":{"server_requests":["client_tool"]},"client_tools":[{"name":"lint","input_schema":{"type":"object"}}]}`
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController}, hello)
		offers("lint ")
		r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce}, `{"type":"hello"}`)
		offers("")
		r.send(alice, `{"type":"ws.take_control","id":"lease"}`)
		r.until(alice, `"ws.result","id":"lease"`)
		offers("lint ")
		r.send(alice, `{"type":"ws.send","id":"2","message":{"type":"hello","capabilities":{"server_requests":["client_tool"]}}}`)
		r.until(alice, `"ws.result","id":"2"`)
		offers("") // a later hello replaces what it leaves out, too (R29)
		r.close()
	})
}
