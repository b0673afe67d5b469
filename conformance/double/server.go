package double

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Options configure a server. The zero value is ready.
type Options struct {
	Defect           Defect
	Strict           bool              // refuse unknown keys and nulls (D13)
	HandshakeTimeout time.Duration     // zero means 10 s
	Heartbeat        time.Duration     // zero means 15 s
	LeaseTTL         time.Duration     // zero means 45 s
	SubscriptionTTL  time.Duration     // of a detached subscription; zero means 30 s
	Workspace        string            // directory of the utilities, without links on the way; empty is none, unless hosted
	Plain            bool              // prompts are say, work and ask instead of triggers
	Profile          contracts.Profile // public has no newer fields, and behaves as the agent of section 6.2 unless Plain; empty is seed
	Published        bool              // has all [Habits]
}

// A Server holds every session in memory. Its one lock guards all of them and
// everything in them.
type Server struct {
	opts   Options
	habits map[Defect]bool // what is planted

	mu      sync.Mutex
	rooms   map[string]*room
	runner  *Runner          // nil unless hosted
	replies map[string]reply // by scope and Idempotency-Key
	keys    []string         // of replies, the oldest first
}

// New returns a server without sessions.
func New(o Options) *Server {
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, contracts.DefaultHandshakeTimeout)
	o.Heartbeat = cmp.Or(o.Heartbeat, contracts.DefaultHeartbeatInterval)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, contracts.DefaultLeaseTTL)
	o.SubscriptionTTL = cmp.Or(o.SubscriptionTTL, contracts.DefaultSubscriptionTTL)
	s := &Server{opts: o, rooms: map[string]*room{}, replies: map[string]reply{}, habits: map[Defect]bool{o.Defect: true}}
	if o.Published {
		for _, d := range Habits() {
			s.habits[d] = true
		}
	}
	delete(s.habits, "")
	return s
}

// Close ends the commands and watches of all sessions and waits until they have
// ended. It is called last, if there is a workspace.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rooms {
		for _, p := range r.programs {
			p.end("The server was closed", true)
		}
		for _, l := range slices.Clone(r.lookouts) {
			l.stop("The server was closed")
		}
	}
	for _, r := range s.rooms {
		r.quiet()
	}
}

func (s *Server) has(d Defect) bool { return s.habits[d] }

// A room is one session.
type room struct {
	s          *Server
	id, epoch  string
	head       uint64 // cursor of the latest entry, private ones included
	log        []entry
	clients    []*client // in order of arrival; detached ones stay while they may return
	holder     *client
	generation uint64

	state     contracts.State
	lastInit  json.RawMessage
	mode      contracts.ApprovalMode
	questions []*contracts.ServerRequest
	run       *run // nil when idle
	runs      int
	kept      *contracts.Prompt      // that was refused last, for a defect
	announced []contracts.ClientTool // by the last controller that announced any, for a defect
	bare      bool                   // spoken to over stdio
	closed    bool
	frozen    bool              // drained: nothing more is published
	restored  bool              // from a manifest, at floor
	floor     uint64            // cursor before the oldest entry that can be replayed
	gone      map[string]string // ids of connections and subscriptions that were, to their connections
	timer     *time.Timer       // for sweep
	programs  []*program        // running commands, in the order of their start
	lookouts  []*lookout        // active watches, in the order of their start
	reserved  []string          // ids that a defect does not set free
	ending    bool              // shut down, but commands are left
	updated   time.Time
}

// An entry is a published message or snapshot.
type entry struct {
	cursor uint64
	kind   string // of the message; empty for a snapshot
	body   []byte
	to     *client // nil for everybody
}

// maxLog bounds what can be replayed.
const maxLog = 1 << 16

// open makes a session and lets its runtime say that it is there.
func (s *Server) open(id string, bare bool) *room {
	r := &room{s: s, id: id, epoch: rand.Text(), mode: contracts.ApprovalPrompt, bare: bare, state: freshState(),
		gone: map[string]string{}, updated: time.Now()}
	s.rooms[id] = r
	if s.scripted() && !bare {
		r.beReady()
		return r
	}
	executor := contracts.ExecutorReplay
	if s.public() {
		executor = ""
	}
	r.publish(&contracts.Ready{ProtocolVersion: contracts.ProtocolVersion, Model: "double", Provider: "double", ExecutorType: executor, SessionID: &r.id})
	r.publish(&contracts.SessionInfo{SessionID: &r.id, Cwd: "/double"})
	return r
}

// publish applies an event to the state, records it and shows it to everybody.
func (r *room) publish(ev contracts.Event) {
	if r.frozen {
		return
	}
	if r.s.has(AnnouncesNothing) && ev.EventType() == "connection_info" && !r.bare {
		return
	}
	r.head++
	apply(&r.state, ev)
	applyUtility(&r.state, ev, r.s.keptOutput())
	if r.s.has(KeepsResponding) && ev.EventType() == "response_end" {
		r.state.IsResponding = true
	}
	body := encode(ev.EventType(), ev)
	if r.s.has(SplitsExits) && ev.EventType() == "utility_command_exited" {
		body = without(body, "exit_code", "signal")
	}
	r.record(entry{cursor: r.head, kind: ev.EventType(), body: body})
}

// without takes keys that are null out of an object.
func without(body []byte, keys ...string) []byte {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		panic("double: " + err.Error()) // it is of our making
	}
	for _, key := range keys {
		if string(m[key]) == "null" {
			delete(m, key)
		}
	}
	return encodeValue(m)
}

// publishSnapshot shows the state to everybody. Stdio has no snapshots.
func (r *room) publishSnapshot() {
	if r.bare || r.frozen {
		return
	}
	r.head++
	shown := r.head
	if r.s.has(SameCursorSnapshot) {
		shown--
	}
	r.record(entry{cursor: r.head, body: r.snapshot(shown)})
}

func (r *room) record(e entry) {
	r.log, r.updated = append(r.log, e), time.Now()
	if len(r.log) > maxLog {
		r.floor = r.log[len(r.log)-maxLog/2-1].cursor
		r.log = append(r.log[:0], r.log[len(r.log)-maxLog/2:]...)
	}
	for _, c := range r.clients {
		c.deliver(e)
		for _, s := range c.subs {
			for _, t := range s.streams {
				t.signal()
			}
		}
	}
	if r.s.has(LeaksRequests) && (e.kind == "server_request" || e.kind == "tool_call") {
		r.leak(e)
	}
}

// leak shows an entry to the clients of every other session.
func (r *room) leak(e entry) {
	for _, other := range r.s.rooms {
		if other != r {
			other.head++
			for _, c := range other.clients {
				c.deliver(entry{cursor: other.head, kind: e.kind, body: e.body})
			}
		}
	}
}

// snapshot renders the state as of a cursor.
func (r *room) snapshot(cursor uint64) []byte {
	st := r.state
	st.SessionID = contracts.String(r.id)
	st.Connections, st.ConnectionCount = r.connections(), int64(len(r.clients))
	for _, c := range st.Connections {
		st.SubscriberCount += c.SubscriptionCount
	}
	st.ControllerSubscriptionID = contracts.NullableString(r.holderSub())
	st.ControllerConnectionID = contracts.NullableString(r.holderID())
	if r.s.has(HidesQuestions) {
		st.PendingRequests, st.PendingApprovals = []contracts.PendingRequest{}, []contracts.PendingEntry{}
	}
	if r.s.has(NullOptional) {
		st.SessionID = contracts.NullString{}
	}
	body := r.encodeSnapshot(cursor, st)
	if r.s.has(NullOptional) {
		body = append(body[:len(body)-2], `,"last_error":null}}`...)
	}
	return body
}

func (r *room) encodeSnapshot(cursor uint64, st contracts.State) []byte {
	snap := contracts.Snapshot{ProtocolVersion: contracts.ProtocolVersion, SessionID: r.id, Cursor: cursor, LastInit: r.lastInit, State: st}
	if !r.s.has(NoPendingRequests) {
		return encodeValue(snap)
	}
	st.PendingRequests = nil // which is null
	return encodeValue(map[string]any{"protocolVersion": snap.ProtocolVersion, "session_id": r.id, "cursor": cursor, "last_init": snap.LastInit,
		"state": json.RawMessage(without(encodeValue(st), "pending_requests"))})
}

// connections lists who is attached.
func (r *room) connections() []contracts.ConnectionState {
	list := []contracts.ConnectionState{}
	for _, c := range r.clients {
		count, attached := int64(1), int64(1)
		if c.web {
			count, attached = int64(len(c.subs)), c.attached()
		}
		list = append(list, contracts.ConnectionState{ConnectionID: c.id, Role: c.role, ClientProtocolVersion: c.hello.ProtocolVersion,
			ClientInfo: c.hello.ClientInfo, Capabilities: c.hello.Capabilities, OptOutNotifications: unique(c.hello.OptOutNotifications),
			SubscriptionCount: count, AttachedSubscriptionCount: attached,
			ControllerLeaseGranted: c == r.holder, LeaseExpiresAt: c.leaseEnd()})
	}
	return list
}

// announce publishes the connection graph, about one connection.
func (r *room) announce(c *client) {
	count := int64(len(r.clients))
	r.publish(&contracts.ConnectionInfo{ConnectionID: c.id, ClientProtocolVersion: c.hello.ProtocolVersion, ClientInfo: c.hello.ClientInfo, Capabilities: c.hello.Capabilities,
		OptOutNotifications: unique(c.hello.OptOutNotifications), Role: c.role, ConnectionCount: &count,
		ControllerConnectionID: contracts.NullableString(r.holderID()), LeaseExpiresAt: c.leaseEnd(), Connections: r.connections()})
}

func (r *room) holderID() *string {
	if r.holder == nil {
		return nil
	}
	return &r.holder.id
}

// end closes the session: everybody is told to leave.
func (r *room) end() {
	r.closed = true
	delete(r.s.rooms, r.id)
	for _, c := range r.clients {
		c.dismiss(1000, "")
		for _, s := range slices.Clone(c.subs) {
			r.drop(s)
		}
	}
	r.clients, r.holder = nil, nil
}

// encode renders a value with its type key first.
func encode(kind string, v any) []byte {
	body := encodeValue(v)
	head := `{"type":` + strconv.Quote(kind)
	if len(body) > 2 {
		head += ","
	}
	return append([]byte(head), body[1:]...)
}

// encodeValue renders a value of ours.
func encodeValue(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("double: " + err.Error())
	}
	return text
}
