package session_test

import (
	"bytes"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

// FuzzState: whatever can be decoded can be applied. Each line is an event, a
// command or a snapshot to start over from; the state stays within its bounds,
// can be encoded, and comes back from its own snapshot unchanged.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"type":"response_start","response_id":"r"}
{"type":"response_chunk","response_id":"r","content":"caf\u00e9 \ud83d\ude00","is_thinking":false}
{"type":"tool_call","call_id":"c","tool":"bash","args":{"command":"ls"},"requires_approval":true}
{"type":"server_request","request_id":"a","request_type":"approval","call_id":"c","tool":"bash","display_name":"Bash","args":null,"reason":"policy"}
{"type":"tool_response","call_id":"a","approved":false}
{"type":"server_request_resolved","request_id":"a","request_type":"approval","call_id":"c","resolution":"denied","resolved_by":"user"}
{"type":"tool_end","call_id":"c","success":false}`))
	f.Add([]byte(`{"type":"init","system_prompt":"\u2028<x>"}
{"type":"tool_start","call_id":"c"}
{"type":"tool_output","call_id":"c","content":"out"}
{"type":"utility_command_started","command_id":"k","command":"make","shell_mode":"shell","terminal_mode":"pipe","pid":5}
{"type":"utility_command_output","command_id":"k","stream":"stderr","content":"\u0000"}
{"type":"utility_file_watch_started","watch_id":"w","root_dir":"/srv","debounce_ms":0,"include_patterns":[]}
{"type":"interrupt"}`))
	f.Add([]byte(`{"type":"connection_info","connections":[{"connection_id":"a","role":"viewer","subscription_count":0,"attached_subscription_count":0,"controller_lease_granted":false,"lease_expires_at":null}],"controller_connection_id":null}
{"type":"hello","role":"viewer","opt_out_notifications":["status","status"],"capabilities":{}}
{"type":"client_tool_request","call_id":"u","tool":"ask_user","args":[]}
{"type":"client_tool_result","call_id":"u","content":[],"is_error":true}
{"type":"error","message":"","fatal":true}
{"type":"ready","model":"m","provider":"p"}`))
	f.Add([]byte(`{"protocolVersion":"2026-04-02","session_id":"s","cursor":3,"last_init":null,"state":{"connection_count":1,"subscriber_count":2,"connections":[],"pending_approvals":[{"call_id":"c","request_id":"c","tool":"t","args":1}],"pending_client_tools":[],"pending_mcp_elicitations":[],"pending_user_inputs":[],"pending_tool_retries":[],"active_tools":[{"call_id":"c","tool":"t","output":"x"}],"active_utility_commands":[],"active_file_watches":[],"tracked_tools":[],"is_ready":true,"is_responding":true,"current_response":{"response_id":"r","text":"a","thinking":"b"}}}
{"type":"server_request_response","request_id":"c","request_type":"approval"}`))
	f.Fuzz(func(t *testing.T, input []byte) {
		var decoder contracts.Decoder
		state := session.New()
		for line := range bytes.Lines(input) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			if ev, err := decoder.Event(line); err == nil {
				state.Apply(ev)
			} else if cmd, err := decoder.Command(line); err == nil {
				state.ApplyCommand(cmd)
			} else if snap, err := decoder.Snapshot(line); err == nil {
				state.Restore(snap)
			}
		}
		snap := state.Snapshot(1)
		checkBounds(t, snap)
		body := wire(t, snap)
		decoded, err := decoder.Snapshot([]byte(body))
		if err != nil {
			t.Fatalf("decode snapshot: %v\n%s", err, body)
		}
		state.Restore(decoded)
		if got := wire(t, state.Snapshot(1)); got != body {
			t.Fatalf("restored:\ngot  %s\nwant %s", got, body)
		}
	})
}
