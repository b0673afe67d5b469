package hub_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

var update = flag.Bool("update", false, "rewrite the transcripts")

// TestTranscripts plays the inputs of each file in testdata/transcripts and
// compares the whole conversation with it, byte by byte. The lines are:
//
//	connect WHO controller|viewer [force|later] [key=value]...   keys are connection, cursor and epoch
//	WHO> frame          the client sends it
//	WHO< frame          the client gets it
//	WHO| closed CODE    the server closes the connection
//	drop WHO            the client is gone without a word
//	agent publish|ask|end [JSON]   what the agent does in its run
//	agent learns ID VERDICT        the outcome of its question
//	wait DURATION       the clock goes on
//	restart, crash      another process opens the session, after an end in order or without one
//
// Ids come from a source that counts. They are named in the order they are first
// seen, and times are offsets from the beginning. With -update the files are rewritten; the diff is the review.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("transcripts: got %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			random := rand.Reader
			rand.Reader = &counter{}
			defer func() { rand.Reader = random }()
			var got []byte
			synctest.Test(t, func(t *testing.T) { got = perform(t, string(want)) })
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s", firstDifference(string(got), string(want)))
			}
		})
	}
}

// A counter is a source of ids that grow, so that lists in order of id are in
// order of creation.
type counter struct{ n atomic.Uint32 }

func (c *counter) Read(p []byte) (int, error) {
	clear(p)
	binary.BigEndian.PutUint32(p, c.n.Add(1))
	return len(p), nil
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// A recital is one transcript being played.
type recital struct {
	t     *testing.T
	out   strings.Builder
	names names
	began time.Time

	hub    *hub.Hub
	agent  *puppet
	store  *journal.Memory
	cast   []*actor
	taught map[string]int // outcomes that were shown, by request id
}

// An actor is a client in a transcript.
type actor struct {
	name string
	peer *memconn.Peer
	over bool
}

func perform(t *testing.T, script string) []byte {
	r := &recital{t: t, began: time.Now(), store: journal.NewMemory(journal.MemoryOptions{}), taught: map[string]int{}}
	r.open()
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if isOutput(line) {
			continue
		}
		fmt.Fprintln(&r.out, line)
		if line != "" && !strings.HasPrefix(line, "#") {
			r.input(r.names.real(line))
			synctest.Wait()
			r.record()
		}
	}
	if err := r.hub.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, a := range r.cast {
		a.peer.Close()
	}
	return []byte(r.out.String())
}

var output = regexp.MustCompile(`^(\w+[<|] |agent learns )`)

func isOutput(line string) bool { return output.MatchString(line) }

func (r *recital) open() {
	r.agent = newPuppet()
	var err error
	r.hub, err = hub.New(hub.Options{
		SessionID: "s", Cwd: "/w", Agent: resumer{r.agent}, Store: r.store,
		LeaseTTL: 45 * time.Second, WorkingInterval: time.Hour,
	})
	if err == nil {
		err = r.hub.Start(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// input does what a line says.
func (r *recital) input(line string) {
	if who, frame, ok := strings.Cut(line, "> "); ok && !strings.Contains(who, " ") {
		if err := r.actor(who).peer.Send(frame); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		return
	}
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "connect":
		r.connect(strings.Fields(rest))
	case "drop":
		r.actor(rest).peer.Close()
		r.actor(rest).over = true
	case "agent":
		r.order(rest)
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(d)
	case "restart", "crash":
		r.reopen(verb == "crash")
	default:
		r.t.Fatalf("unknown line: %s", line)
	}
}

// actor returns the latest client of a name.
func (r *recital) actor(name string) *actor {
	for i := len(r.cast) - 1; i >= 0; i-- {
		if r.cast[i].name == name {
			return r.cast[i]
		}
	}
	r.t.Fatalf("nobody is called %q", name)
	return nil
}

func (r *recital) connect(args []string) {
	att := contracts.Attach{Role: contracts.Role(args[1])}
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "force":
			att.Takeover = contracts.TakeoverForce
		case "later":
			att.Takeover = contracts.TakeoverLater
		case "connection":
			att.ConnectionID = value
		case "epoch":
			att.Epoch = value
		case "cursor":
			cursor, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			att.Cursor = &cursor
		default:
			r.t.Fatalf("unknown word: %s", arg)
		}
	}
	conn, peer := memconn.New(memconn.Options{})
	r.cast = append(r.cast, &actor{name: args[0], peer: peer})
	h := r.hub
	go func() { // ends when the hub or the peer closes the connection
		_ = h.Serve(context.Background(), conn, hub.WireEnvelope, &att)
	}()
}

// order lets the agent do something.
func (r *recital) order(text string) {
	if r.agent.active() == 0 {
		r.t.Fatalf("agent %s: no run is active", text)
	}
	verb, body, _ := strings.Cut(text, " ")
	if verb == "end" {
		var err error
		if body != "" {
			err = errors.New(body)
		}
		r.agent.orders <- end(err)
		return
	}
	ev, err := (&contracts.Decoder{}).Event([]byte(body))
	if err != nil {
		r.t.Fatalf("agent %s: %v", text, err)
	}
	if req, ok := ev.(*contracts.ServerRequest); ok && verb == "ask" {
		r.agent.orders <- r.agent.ask(req, contracts.AskOptions{})
	} else {
		r.agent.orders <- r.agent.publish(ev)
	}
}

// reopen opens the session in another process, as it were.
func (r *recital) reopen(crash bool) {
	end := r.hub.Suspend
	var copied *journal.Memory
	var err error
	if crash {
		if copied, err = copyStore(r.store); err != nil {
			r.t.Fatal(err)
		}
		end = r.hub.Close
		for _, a := range r.cast {
			a.peer.Close()
			a.over = true
		}
	}
	if err := end(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if !crash {
		if copied, err = copyStore(r.store); err != nil {
			r.t.Fatal(err)
		}
	}
	r.store = copied
	r.record()
	clear(r.taught)
	r.open()
}

// record writes down what has arrived.
func (r *recital) record() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	for _, a := range r.cast {
		for !a.over {
			text, err := a.peer.Next(now)
			if errors.Is(err, context.Canceled) {
				break
			}
			if err != nil {
				a.over = true
				why, _ := a.peer.Closed()
				code := 1000
				if why != nil {
					code = why.Code.CloseCode()
				}
				fmt.Fprintf(&r.out, "%s| closed %d\n", a.name, code)
				break
			}
			fmt.Fprintf(&r.out, "%s< %s\n", a.name, r.names.stable(text, r.began))
		}
	}
	learned := r.agent.learned()
	for _, id := range slices.Sorted(maps.Keys(learned)) {
		outs := learned[id]
		for _, out := range outs[r.taught[id]:] {
			fmt.Fprintf(&r.out, "agent learns %s %s\n", id, out.Verdict)
		}
		r.taught[id] = len(outs)
	}
}

// names gives what is random a name that is the same every time.
type names struct {
	stand map[string]string // name by what it stands for
	back  map[string]string // and the reverse
	count map[string]int
}

var (
	randomID   = regexp.MustCompile(`\b(conn|sub|resp)_[0-9a-f]{32}\b`)
	randomText = regexp.MustCompile(`"(connection_token|epoch)":"([^"]+)"`)
	timestamp  = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[\d:.]+Z"`)
	named      = regexp.MustCompile(`\b(conn|sub|resp|token|epoch)_\d+\b`)
)

// stable returns text with names for what is random, and offsets for times.
func (n *names) stable(text string, began time.Time) string {
	text = randomID.ReplaceAllStringFunc(text, func(id string) string {
		prefix, _, _ := strings.Cut(id, "_")
		return n.name(prefix, id)
	})
	text = randomText.ReplaceAllStringFunc(text, func(pair string) string {
		m := randomText.FindStringSubmatch(pair)
		return fmt.Sprintf("%q:%q", m[1], n.name(strings.TrimPrefix(m[1], "connection_"), m[2]))
	})
	return timestamp.ReplaceAllStringFunc(text, func(quoted string) string {
		at, err := time.Parse(time.RFC3339, strings.Trim(quoted, `"`))
		if err != nil {
			return quoted
		}
		return fmt.Sprintf(`"T+%s"`, at.Sub(began))
	})
}

func (n *names) name(prefix, stands string) string {
	if n.stand == nil {
		n.stand, n.back, n.count = map[string]string{}, map[string]string{}, map[string]int{}
	}
	if name, ok := n.stand[stands]; ok {
		return name
	}
	n.count[prefix]++
	name := fmt.Sprintf("%s_%d", prefix, n.count[prefix])
	n.stand[stands], n.back[name] = name, stands
	return name
}

// real returns a line with what its names stand for.
func (n *names) real(line string) string {
	return named.ReplaceAllStringFunc(line, func(name string) string {
		if stands, ok := n.back[name]; ok {
			return stands
		}
		return name
	})
}
