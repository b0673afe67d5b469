package hub_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// room is a hub with an echo agent. It must be made inside a bubble.
type room struct {
	*hub.Hub
	t       *testing.T
	witness *witness // of openRoom, unless the test has an observer of its own
}

// send posts a text and returns the answer.
func send(h *hub.Hub, text []byte, key string, by contracts.Caller) (answer []byte, err error) {
	err = h.Post(text, key, by, func(a []byte) { answer = a })
	return answer, err
}

func (r *room) Send(text []byte, key string, by contracts.Caller) ([]byte, error) {
	return send(r.Hub, text, key, by)
}

func (w *world) Send(text []byte, key string, by contracts.Caller) ([]byte, error) {
	return send(w.Hub, text, key, by)
}

func newRoom(t *testing.T, store journal.Store) *room {
	t.Helper()
	h, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &echo{}, Store: store, LeaseTTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &room{Hub: h, t: t}
}

// join attaches a client and returns its end.
func (r *room) join(role contracts.Role, takeover contracts.Takeover, cursor *int64) *memconn.Peer {
	r.t.Helper()
	conn, peer := memconn.New(memconn.Options{})
	go func() { // ends when the peer or the hub closes the connection
		_ = r.Serve(context.Background(), conn, hub.WireEnvelope, &contracts.Attach{Role: role, Takeover: takeover, Cursor: cursor})
	}()
	r.send(peer, `{"type":"hello"}`)
	return peer
}

func (r *room) send(p *memconn.Peer, text string) {
	r.t.Helper()
	if err := p.Send(text); err != nil {
		r.t.Fatalf("send %s: %v", text, err)
	}
}

// until reads until a text contains want, and returns all it read.
func (r *room) until(p *memconn.Peer, want string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all strings.Builder
	for {
		text, err := p.Next(ctx)
		if err != nil {
			r.t.Fatalf("got %v after %s, want a text with %s", err, all.String(), want)
		}
		all.WriteString(text)
		all.WriteByte('\n')
		if strings.Contains(text, want) {
			return all.String()
		}
	}
}

// openRoom makes a room with options of its own. What they leave out is as in
// newRoom, the store in memory.
func openRoom(t *testing.T, opts hub.Options) *room {
	t.Helper()
	opts.SessionID, opts.Cwd = "s", "/"
	if opts.Agent == nil {
		opts.Agent = &echo{}
	}
	if opts.Store == nil {
		opts.Store = journal.NewMemory(journal.MemoryOptions{})
	}
	own := &witness{}
	if opts.Observer == nil {
		opts.Observer = own
	}
	h, err := hub.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &room{Hub: h, t: t, witness: own}
}

// serve attaches a client that says first, each text a frame of its own.
func (r *room) serve(conn hub.Conn, peer *memconn.Peer, att contracts.Attach, first ...string) {
	r.t.Helper()
	go func() { // ends when the peer or the hub closes the connection
		_ = r.Serve(context.Background(), conn, hub.WireEnvelope, &att)
	}()
	for _, text := range first {
		r.send(peer, text)
	}
}

// attach attaches a client on a new connection and returns its end and what it
// was told at first.
func (r *room) attach(att contracts.Attach, first ...string) (*memconn.Peer, contracts.Attached) {
	r.t.Helper()
	if len(first) == 0 {
		first = []string{`{"type":"hello"}`}
	}
	conn, peer := memconn.New(memconn.Options{})
	r.serve(conn, peer, att, first...)
	return peer, r.attached(peer)
}

// attached reads ws.attached, which must be the next frame.
func (r *room) attached(p *memconn.Peer) contracts.Attached {
	r.t.Helper()
	frame := r.decode(r.until(p, ""))
	got, ok := frame.(*contracts.Attached)
	if !ok {
		r.t.Fatalf("got frame %s, want ws.attached", frame.FrameType())
	}
	return *got
}

// last decodes the last of the texts that until returned.
func (r *room) last(texts string) contracts.Frame {
	r.t.Helper()
	lines := strings.Split(strings.TrimSpace(texts), "\n")
	return r.decode(lines[len(lines)-1])
}

func (r *room) decode(text string) contracts.Frame {
	r.t.Helper()
	frame, err := (&contracts.Decoder{}).ServerFrame([]byte(strings.TrimSpace(text)))
	if err != nil {
		r.t.Fatalf("decode %s: %v", text, err)
	}
	return frame
}

// rest reads until the connection has ended.
func (r *room) rest(p *memconn.Peer) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all strings.Builder
	for {
		text, err := p.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			r.t.Fatalf("got %v after %s, want the end of the connection", err, all.String())
		}
		all.WriteString(text)
		all.WriteByte('\n')
	}
}

// close ends the session.
func (r *room) close() {
	r.t.Helper()
	if err := r.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// suspend ends the process's part in the session.
func (r *room) suspend() {
	r.t.Helper()
	if err := r.Suspend(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// A player is an agent whose runs are a function.
type player struct {
	host  contracts.Host
	play  func(ctx context.Context, host contracts.Host, work contracts.Work) error
	inits chan *contracts.Init // 16-buffered; what Configure was called with
}

func newPlayer(play func(context.Context, contracts.Host, contracts.Work) error) *player {
	return &player{play: play, inits: make(chan *contracts.Init, 16)}
}

func (p *player) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	p.host = host
	return contracts.AgentInfo{Model: "player", Provider: "test", Executor: contracts.ExecutorReplay}, nil
}

func (p *player) Configure(init *contracts.Init) { p.inits <- init }

func (p *player) Run(ctx context.Context, work contracts.Work) error {
	return p.play(ctx, p.host, work)
}

func (p *player) Close(context.Context) error { return nil }
