package mcp

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// A ledger counts what a session is told.
type ledger struct{ told, finished int }

func (l *ledger) progress(*sdk.ProgressNotificationParams) { l.told++ }
func (l *ledger) completed(string)                         { l.finished++ }

// newTestPipe returns a pipe whose program was not started, which keeps what the
// library and the program are to see.
func newTestPipe() (*pipe, *ledger, chan string) {
	l := &ledger{}
	sent := make(chan string, 1000)
	p := makePipe(proc.NewProcess(exec.Command("none"), proc.ProcessOptions{}), l)
	p.incoming = make(chan jsonrpc.Message, 1000)
	p.send = func(line []byte) error { sent <- string(line); return nil }
	return p, l, sent
}

// hear has the pipe receive a line of the program's.
func hear(t *testing.T, p *pipe, format string, args ...any) {
	t.Helper()
	messages, err := decode(fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if !p.receive(m) {
			t.Fatalf("got nobody who reads %s, want somebody", fmt.Sprintf(format, args...))
		}
	}
}

func TestTheLibrarySeesWhatMattersOnly(t *testing.T) {
	p, l, _ := newTestPipe()
	for i := range 500 {
		hear(t, p, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
		hear(t, p, `{"jsonrpc":"2.0","method":"notifications/unknown"}`)
		hear(t, p, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"a","progress":%d}}`, i)
		hear(t, p, `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"a"}}`)
		hear(t, p, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
		hear(t, p, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":[]}`)
	}
	if len(p.incoming) != 1 || l.told != 500 || l.finished != 500 {
		t.Errorf("got %d messages for the library, progress %d times, %d ends; want one, 500, 500", len(p.incoming), l.told, l.finished)
	}
	p.relisting.Store(false) // it has handled the change
	hear(t, p, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	if len(p.incoming) != 2 {
		t.Errorf("got %d messages, want the next change, too", len(p.incoming))
	}
	hear(t, p, `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"q","method":"ping"}]`)
	for range 3 {
		hear(t, p, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
	}
	if len(p.incoming) != 5 {
		t.Errorf("got %d messages, want an answer, a request and its withdrawal once", len(p.incoming))
	}
}

func TestRequestsTooManyAreRefused(t *testing.T) {
	p, _, sent := newTestPipe()
	for i := range maxRequests + 10 {
		hear(t, p, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
	}
	hear(t, p, `{"jsonrpc":"2.0","id":0,"method":"ping"}`)
	if len(p.incoming) != maxRequests || len(sent) != 11 {
		t.Fatalf("got %d requests, %d refusals; want %d, 11", len(p.incoming), len(sent), maxRequests)
	}
	if line := <-sent; !strings.Contains(line, "-32000") || !strings.Contains(line, fmt.Sprintf(`"id":%d`, maxRequests)) || !strings.HasSuffix(line, "\n") {
		t.Errorf("got %q, want that it is one too many", line)
	}
	id, err := jsonrpc.MakeID(3.0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), &jsonrpc.Response{ID: id, Result: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	hear(t, p, `{"jsonrpc":"2.0","id":"later","method":"ping"}`)
	if len(p.incoming) != maxRequests+1 {
		t.Errorf("got %d requests, want room for one after one was answered", len(p.incoming))
	}
}
