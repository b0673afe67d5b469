package heddle

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// happenings are what the session and the clock do between the lines of the client. A
// line of the fuzzer's input that is ! and a digit or letter names one.
var happenings = []func(r *rig){
	func(r *rig) { r.opened() },
	func(r *rig) { r.begins() },
	func(r *rig) { r.ends() },
	func(r *rig) { r.event(&contracts.ResponseStart{ResponseID: "r"}) },
	func(r *rig) { r.event(&contracts.ResponseChunk{ResponseID: "r", Content: "text\u2028\n\x00"}) },
	func(r *rig) {
		r.event(&contracts.ResponseEnd{ResponseID: "r", Usage: contracts.Usage{TotalTokens: 3, ModelID: "n"}})
	},
	func(r *rig) {
		r.event(&contracts.ToolCall{CallID: "c", Tool: "read", Args: json.RawMessage(`{"a":1}`)})
	},
	func(r *rig) { r.event(&contracts.ToolStart{CallID: "c"}) },
	func(r *rig) { r.event(&contracts.ToolOutput{CallID: "c", Content: strings.Repeat("äx", 999)}) },
	func(r *rig) { r.event(&contracts.ToolEnd{CallID: "c", Success: true}) },
	func(r *rig) { r.event(&contracts.ToolEnd{CallID: "c", GovernedOutcome: "denied"}) },
	func(r *rig) {
		r.event(&contracts.ServerRequest{RequestID: "c", RequestType: contracts.RequestApproval, CallID: "c", Tool: "read", Args: json.RawMessage(`{}`), Reason: "why"})
	},
	func(r *rig) {
		r.event(&contracts.ServerRequestResolved{RequestID: "c", RequestType: contracts.RequestApproval, CallID: "c", Resolution: contracts.VerdictDenied, ResolvedBy: contracts.ResolvedByUser})
	},
	func(r *rig) { r.event(&contracts.ErrorEvent{Message: "bad", ErrorType: contracts.ErrorTool}) },
	func(r *rig) { r.rawEvent(`{"type":"model_error","message":"m","details":{"a":1},"status":500}`) },
	func(r *rig) { r.rawEvent(`{"type":"turn_limit"}`) },
	func(r *rig) {
		id := r.lastID()
		r.frame(&contracts.Refusal{ID: &id, Code: contracts.CodeControllerLeaseHeld, Message: "held"})
	},
	func(r *rig) {
		id := r.lastID()
		r.frame(&contracts.Refusal{ID: &id, Code: contracts.CodeRuntimeBusy, Message: "busy"})
	},
	func(r *rig) {
		id := r.lastID()
		r.frame(&contracts.Refusal{ID: &id, Code: contracts.CodeBadRequest, Message: "bad"})
	},
	func(r *rig) { r.frame(&contracts.LeaseChange{Granted: true, Reason: contracts.LeaseGranted}) },
	func(r *rig) { r.frame(&contracts.LeaseChange{Reason: contracts.LeaseDenied}) },
	func(r *rig) {
		r.frame(&contracts.ResetEnvelope{Reason: contracts.ResetLagged, Snapshot: json.RawMessage(`{"state":{"is_responding":true}}`)})
	},
	func(r *rig) {
		r.do(func(t dialect.Translator, out *dialect.Out) { t.Detached(out, errors.New("gone")) })
	},
	func(r *rig) { r.do(dialect.Translator.LongLine) },
	func(r *rig) { r.do(dialect.Translator.EOF) },
	func(r *rig) { r.passes(7 * time.Second) },
	func(r *rig) { r.passes(2 * time.Minute) },
	func(r *rig) {
		r.event(&contracts.ServerRequest{RequestID: "u", RequestType: contracts.RequestUserInput, CallID: "u", Tool: "ask_user", Args: json.RawMessage(`{}`), Reason: "why"})
	},
}

// happening returns the line that names a happening.
func happening(n int) string { return "!" + string(rune('A'+n)) }

// FuzzHeddleLine holds that any lines in any order, with anything from the session
// between them, give lines of which each is one object, one result for each send at
// most, and events that are numbered without gaps and belong to the send in progress.
func FuzzHeddleLine(f *testing.F) {
	init := `{"type":"init","id":"i","protocol_version":"0.5.0",` + configText + `,"extensions":["call_ids"]}}`
	send, all := `{"type":"send","id":"a","message":"x"}`, []string{}
	for i := range happenings {
		all = append(all, happening(i))
	}
	f.Add([]byte(strings.Join(append([]string{init, "!A", send}, all...), "\n")))
	f.Add([]byte(strings.Join(append(append([]string{init, "!A", send, "!B"}, all[3:16]...), "!C", `{"type":"shutdown","id":"z"}`), "\n")))
	f.Add([]byte(strings.Join([]string{init, send, send, `{"type":"cancel","id":"k","target_id":"a"}`, "!A", "!B", "!C", init, "!A", "!Y"}, "\n")))
	f.Add([]byte(strings.Join([]string{init, "!A", send, "!B", "!G", "!G", "!G", "!H", "!J", "!C", `{"type":"status","id":"s"}`, "[", "{}", "\xff"}, "\n")))
	f.Add([]byte(strings.Join([]string{init, "!A", send, "!Q", "!T", "!R", "!C", "!S", send, "!Q", "!U", send, "!Z"}, "\n")))
	f.Fuzz(func(t *testing.T, input []byte) {
		r := newRig(t, Options{})
		asked := map[string]int{} // lines that may be answered, by id
		for text := range bytes.SplitSeq(input, []byte("\n")) {
			if n := 0; len(text) == 2 && text[0] == '!' {
				if n = int(text[1]) - 'A'; n >= 0 && n < len(happenings) {
					asked["unknown"]++ // LongLine
					happenings[n](r)
					continue
				}
			}
			req, _ := decode(text)
			asked[req.ID]++
			r.line(string(text))
		}
		r.do(dialect.Translator.EOF)
		r.passes(5 * time.Minute)
		checkLines(t, r.read(), asked)
	})
}

func checkLines(t *testing.T, lines []map[string]any, asked map[string]int) {
	t.Helper()
	seq, current := 0, ""
	for _, line := range lines {
		id, _ := line["id"].(string)
		switch line["type"] {
		case "event":
			if line["send_id"] != current || line["event_seq"] == 0.0 { // a client may use an id again
				current, seq = line["send_id"].(string), 0
			}
			if line["event_seq"] != float64(seq) {
				t.Fatalf("H12: got %v, want event %d", line, seq)
			}
			seq++
			continue
		case "result", "init_ok", "status_ok", "shutdown_ok":
		default:
			t.Fatalf("got %v, want a response", line)
		}
		if asked[id]--; asked[id] < 0 {
			t.Fatalf("H15: got %v, one answer too many", line)
		}
	}
}
