//go:build unix

package acp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// hear has a peer in a run take in what a program might write. There is no
// program, and commands do nothing. The host checks that what comes of it is
// well-formed and in order.
func hear(t *testing.T, lines string) (host *hosttest.Host) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // calls that are held back are not waited for
		a := New([]string{"program"}, Options{Shell: "true"})
		host = hosttest.New(t)
		files, err := workspace.Open(t.TempDir())
		hosttest.Must(t, err)
		a.host, a.files = host, files
		a.life, a.stop = context.WithCancelCause(t.Context())
		p := newPeer(a)
		p.session = "s1"
		r := p.begin()
		p.listen(strings.NewReader(lines))
		time.Sleep(time.Minute) // whatever is held back is announced
		p.mu.Lock()
		r.heard = true // as the answer does
		p.mu.Unlock()
		p.endAnsweredRun(r, contracts.Usage{})
		p.finish(r)
		p.proc.Kill(errors.New("heard enough"))
		p.serving.Wait()
		hosttest.Must(t, files.Close())
	})
	return host
}

func FuzzOutput(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"x","kind":"é","status":"completed","content":[{"type":"diff","path":"f"}]}}}`)
	f.Add(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"plan","entries":[null,{}]}}}`)
	f.Add(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"usage_update","size":1e999,"cost":{}}}}`)
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"toolCall":null,"options":[{},{"kind":"allow_"}]}}`)
	f.Add(`{"jsonrpc":"2.0","id":[],"method":"terminal/create","params":{"command":"exit","outputByteLimit":-1}}`)
	f.Add(`{"jsonrpc":"2.0","id":"x","method":"elicitation/create","params":{"mode":"form","requestedSchema":7}}`)
	f.Add(`{"id":1,"result":{}}` + "\n" + `{"id":null,"error":{"code":"x"}}` + "\n" + `{"error":7}` + "\nnull\n7\n{")
	f.Fuzz(func(t *testing.T, lines string) { hear(t, lines) })
}

// FuzzOrder has a program tell of three calls in any order: whatever it does, each
// call is announced once, or again with each question about it, then starts, shows
// output and ends.
func FuzzOrder(f *testing.F) {
	f.Add([]byte{0, 8, 16, 24, 32, 40, 48, 56, 1, 9, 17, 25, 33, 41, 2, 10, 3, 11, 4, 12, 5, 13})
	f.Add([]byte{3, 0, 1, 2, 4, 5, 4, 3, 2, 1, 0, 6})
	f.Add([]byte{4, 4, 4, 1, 2, 4, 5, 4})
	f.Fuzz(func(t *testing.T, ops []byte) {
		var lines strings.Builder
		update := func(text string, args ...any) {
			fmt.Fprintf(&lines, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":`+text+"}}}\n", args...)
		}
		for i, op := range ops[:min(len(ops), 60)] {
			id := op / 8 % 3
			switch op % 8 {
			case 0:
				update(`"tool_call","toolCallId":"%d","title":"t","status":"pending"`, id)
			case 1:
				update(`"tool_call_update","toolCallId":"%d","status":"in_progress"`, id)
			case 2:
				update(`"tool_call_update","toolCallId":"%d","content":[{"type":"content","content":{"type":"text","text":"%d"}}]`, id, i)
			case 3:
				update(`"tool_call_update","toolCallId":"%d","status":"completed","rawOutput":"r"`, id)
			case 4:
				fmt.Fprintf(&lines, `{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"%d"},"options":[{"optionId":"a","kind":"allow_once"}]}}`+"\n", i, id)
			case 5:
				update(`"agent_message_chunk","content":{"type":"text","text":"x"}`)
			case 6:
				update(`"tool_call","toolCallId":"%d","title":"t","status":"failed"`, id)
			case 7:
				update(`"agent_thought_chunk","content":{"type":"text","text":"x"}`)
			}
		}
		host := hear(t, lines.String())
		announced := map[string]int{}
		for _, call := range hosttest.As[*contracts.ToolCall](host) {
			if announced[call.CallID]++; announced[call.CallID] > 1 && !call.RequiresApproval {
				t.Errorf("got %s announced again, want it once", call.CallID)
			}
		}
	})
}
