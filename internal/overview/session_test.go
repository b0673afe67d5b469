package overview_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// No goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lasting is a store in memory that outlives the hub that closes it.
type lasting struct{ journal.Store }

func (lasting) Close() error { return nil }

// A puppet is an agent that does what the test orders. It can act on answers to the
// questions of an earlier process.
type puppet struct {
	host   contracts.Host
	orders chan order // taken by the run that is active

	mu       sync.Mutex
	outcomes []contracts.Outcome
}

// An order is one thing to do in a run. It reports whether the run is over.
type order func(ctx context.Context) (over bool, err error)

func newPuppet() *puppet { return &puppet{orders: make(chan order)} }

func (p *puppet) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	p.host = host
	return contracts.AgentInfo{Model: "puppet", Provider: "test", Executor: contracts.ExecutorLive, Requests: contracts.RequestTypes()}, nil
}

func (p *puppet) Configure(*contracts.Init) {}

func (p *puppet) Run(ctx context.Context, _ contracts.Work) error {
	for {
		select {
		case do := <-p.orders:
			if over, err := do(ctx); over {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *puppet) Resume(ctx context.Context, _ *contracts.ServerRequest, out contracts.Outcome) error {
	p.learn(out)
	return p.Run(ctx, contracts.Work{})
}

func (p *puppet) Close(context.Context) error { return nil }

func (p *puppet) learn(out contracts.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcomes = append(p.outcomes, out)
}

// learned returns the outcomes of its questions.
func (p *puppet) learned() []contracts.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.outcomes)
}

// ask asks a question without waiting for its outcome.
func (p *puppet) ask(req *contracts.ServerRequest) order {
	return func(ctx context.Context) (bool, error) {
		go func() { // ends with the question
			if out, err := p.host.Ask(ctx, req, contracts.AskOptions{}); err == nil {
				p.learn(out)
			}
		}()
		return false, nil
	}
}

// question makes a request of a type. The call has the request's id, except for retries.
func question(kind contracts.RequestType, id string) *contracts.ServerRequest {
	req := &contracts.ServerRequest{RequestID: id, RequestType: kind, CallID: id, Tool: "bash", Args: []byte(`{}`), Reason: "test"}
	switch kind {
	case contracts.RequestUserInput:
		req.Tool = "ask_user"
	case contracts.RequestToolRetry:
		req.RequestID = id + ":retry:1"
	}
	return req
}

// A guest is a client of a session over HTTP.
type guest struct {
	*hub.Hub
	t  *testing.T
	by contracts.Caller
}

var byForce = contracts.AttachRequest{Role: contracts.RoleController, TakeControl: true}

func (g *guest) connects(req contracts.AttachRequest) {
	g.t.Helper()
	answer, token, err := g.Connect(&req, g.by)
	if err != nil {
		g.t.Fatalf("connect: %v", err)
	}
	g.by.ConnectionID = answer.ConnectionID
	if token != "" {
		g.by.Token = token
	}
}

// prompts sends a prompt, which must be accepted.
func (g *guest) prompts(text string) {
	g.t.Helper()
	body, err := json.Marshal(map[string]string{"type": "prompt", "content": text})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.Post(body, "", g.by, func([]byte) {}); err != nil {
		g.t.Fatalf("prompt %s: %v", text, err)
	}
}

func (g *guest) ended() bool {
	synctest.Wait()
	select {
	case <-g.Done():
		return true
	default:
		return false
	}
}

// arrived returns the lines that a client can read now.
func arrived(p *memconn.Peer) (lines []string) {
	synctest.Wait()
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	for {
		text, err := p.Next(now)
		if err != nil {
			return lines
		}
		lines = append(lines, text)
	}
}

// wantEnd reads until a connection has ended and fails unless that was for the reason.
func wantEnd(t *testing.T, p *memconn.Peer, code contracts.Code) {
	t.Helper()
	for {
		_, err := p.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if why, closed := p.Closed(); !closed || why == nil || why.Code != code {
		t.Errorf("end: got %v, closed %t, want %q", why, closed, code)
	}
}

func wantCode(t *testing.T, err error, code contracts.Code) {
	t.Helper()
	if !errors.Is(err, &contracts.Error{Code: code}) {
		t.Errorf("got %v, want a refusal with code %s", err, code)
	}
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}
