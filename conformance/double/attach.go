package double

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance/shape"
	"github.com/seed-028515a8/maestro/contracts"
)

// maxSubscriptions bounds those of one connection.
const maxSubscriptions = 8

// A subscription is a connection's place in the log.
type subscription struct {
	client   *client
	id       string
	implicit bool // lives as long as its stream
	optOuts  []contracts.Notification
	own      bool      // optOuts are its own, not its connection's
	at       uint64    // cursor of the last entry it is done with
	streams  []*stream // those draining it: one at most
	seen     time.Time // when it was last attached, or its connection gave a sign of life
}

// An order is the body of connections, sessions and subscribe, as far as it
// means something here.
type order struct {
	SessionID           string                     `json:"sessionId"`
	ConnectionID        string                     `json:"connectionId"`
	ProtocolVersion     string                     `json:"protocolVersion"`
	ClientInfo          json.RawMessage            `json:"clientInfo"`   // as in a hello
	Capabilities        map[string]json.RawMessage `json:"capabilities"` // as in a hello, in other spelling
	OptOutNotifications []contracts.Notification   `json:"optOutNotifications"`
	Role                contracts.Role             `json:"role"`
	TakeControl         bool                       `json:"takeControl"`
	EnableClientTools   bool                       `json:"enableClientTools"`
	ApprovalMode        contracts.ApprovalMode     `json:"approvalMode"`
	WorkspaceRoot       string                     `json:"workspaceRoot"`
	Model               string                     `json:"model"`
	Client              string                     `json:"client"`
	ThinkingLevel       contracts.ThinkingLevel    `json:"thinkingLevel"`
}

func newSubscription(k *client) *subscription {
	s := &subscription{client: k, id: "sub_" + rand.Text(), at: k.room.head, seen: time.Now()}
	k.subs = append(k.subs, s)
	return s
}

// touch is a sign of life.
func (c *client) touch() {
	c.seen = time.Now()
	for _, s := range c.subs {
		s.seen = c.seen
	}
}

// attached counts the subscriptions with a stream.
func (c *client) attached() int64 {
	n := int64(0)
	for _, s := range c.subs {
		if len(s.streams) > 0 {
			n++
		}
	}
	return n
}

// never is longer than anything waits.
const never = time.Duration(math.MaxInt64)

// sweep removes what has been silent for too long, and comes back when the
// next one will have been.
func (r *room) sweep() {
	if r.bare || r.closed {
		return
	}
	now, next := time.Now(), never
	for _, k := range slices.Clone(r.clients) {
		had := len(k.subs)
		for _, s := range slices.Clone(k.subs) {
			left := r.s.opts.SubscriptionTTL - now.Sub(s.seen)
			switch {
			case len(s.streams) > 0:
			case left <= 0:
				r.drop(s)
			default:
				next = min(next, left)
			}
		}
		left := r.s.opts.LeaseTTL - now.Sub(k.seen)
		switch {
		case !k.web || k.attached() > 0 || r.s.has(NeverExpires):
		case had > 0 && len(k.subs) == 0, left <= 0:
			r.leave(k)
		default:
			next = min(next, left)
		}
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	if next < never {
		r.timer = time.AfterFunc(next, func() {
			r.s.mu.Lock()
			defer r.s.mu.Unlock()
			r.sweep()
		})
	}
}

// drop removes a subscription.
func (r *room) drop(s *subscription) {
	k := s.client
	k.subs = slices.DeleteFunc(k.subs, func(o *subscription) bool { return o == s })
	r.forget(s.id, k.id)
	for _, t := range s.streams {
		if !r.s.has(StreamsLiveOn) {
			t.finish()
		}
	}
}

// forget remembers for a while that an id was a connection's.
func (r *room) forget(id, conn string) {
	if len(r.gone) >= maxKept {
		clear(r.gone)
	}
	r.gone[id] = conn
}

// object reads a JSON object into v. Keys match exactly, null is absent, and
// unknown keys are ignored unless the server is strict (D13).
func (c *call) object(v any) *contracts.Error {
	parsed, err := shape.Parse(c.body)
	m, isObject := parsed.(map[string]any)
	if err != nil || !isObject {
		return badBody("the body must be one JSON object")
	}
	known := fieldsOf(reflect.TypeOf(v).Elem())
	for key, value := range m {
		switch {
		case c.s.strict() && !slices.Contains(known, key):
			return badBody("/" + key + " Unexpected property")
		case c.s.strict() && value == nil:
			return badBody("/" + key + " Expected a value")
		case value == nil, !slices.Contains(known, key):
			delete(m, key)
		}
	}
	if err := json.Unmarshal(encodeValue(m), v); err != nil {
		return badBody(err.Error())
	}
	return nil
}

func badBody(text string) *contracts.Error {
	return refuse(contracts.CodeBadRequest, contracts.ErrorProtocol, "Invalid request body: "+text)
}

// fieldsOf returns the keys of a struct.
func fieldsOf(t reflect.Type) []string {
	var keys []string
	for f := range t.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}

// attachment reads the body of an attach request, as a hello too. The role is
// empty if neither body nor header names one.
func (c *call) attachment() (*order, *contracts.Hello, *contracts.Error) {
	a := &order{}
	if e := c.object(a); e != nil {
		return nil, nil, e
	}
	a.SessionID, a.ConnectionID = strings.TrimSpace(a.SessionID), strings.TrimSpace(a.ConnectionID)
	header, e := c.named("headless-role")
	if e != nil {
		return nil, nil, e
	}
	if a.Role == "" && header != "" {
		a.Role = contracts.RoleController
		if header == "viewer" {
			a.Role = contracts.RoleViewer
		}
	}
	if len(a.OptOutNotifications) != len(unique(a.OptOutNotifications)) {
		return nil, nil, badBody("/optOutNotifications Expected unique items")
	}
	if !slices.Contains([]string{"", "generic", "vscode", "jetbrains", "conductor"}, a.Client) {
		return nil, nil, badBody("/client Expected union value")
	}
	if _, e := c.s.asCommand(encode("init", &contracts.Init{ThinkingLevel: a.ThinkingLevel, ApprovalMode: a.ApprovalMode})); e != nil {
		return nil, nil, e
	}
	h, e := c.s.asHello(a)
	return a, h, e
}

// asHello has the values checked as those of a hello are.
func (s *Server) asHello(a *order) (*contracts.Hello, *contracts.Error) {
	m := map[string]any{"type": "hello", "opt_out_notifications": append([]contracts.Notification{}, a.OptOutNotifications...)}
	if a.ProtocolVersion != "" {
		m["protocol_version"] = a.ProtocolVersion
	}
	if a.Role != "" {
		m["role"] = a.Role
	}
	if a.ClientInfo != nil {
		m["client_info"] = a.ClientInfo
	}
	if a.Capabilities != nil {
		caps := map[string]any{}
		for key, value := range a.Capabilities {
			caps[cmp.Or(spellings[key], "/"+key)] = value
		}
		m["capabilities"] = caps
	}
	cmd, e := s.asCommand(encodeValue(m))
	if e != nil {
		return nil, e
	}
	h := cmd.(*contracts.Hello) // by its type key
	if e := s.checkWords(h); e != nil {
		return nil, e
	}
	if a.OptOutNotifications == nil {
		h.OptOutNotifications = nil
	}
	return h, nil
}

// spellings are the keys of capabilities in a hello.
var spellings = map[string]string{"serverRequests": "server_requests", "utilityOperations": "utility_operations", "rawAgentEvents": "raw_agent_events"}

// asCommand reads a message that the server has put together from a request.
func (s *Server) asCommand(text []byte) (contracts.Command, *contracts.Error) {
	v, err := shape.Parse(text)
	if err != nil {
		return nil, badBody(err.Error())
	}
	cmd, problems, _ := shape.Command(v, !s.strict())
	if problems != nil {
		return nil, badBody(shape.Join(problems))
	}
	return cmd, nil
}

func unique[T comparable](list []T) []T {
	var kept []T
	for _, v := range list {
		if !slices.Contains(kept, v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// attach finds or makes the connection an attach request is about. When it
// refuses, nothing has changed.
func (r *room) attach(c *call, a *order, h *contracts.Hello, adopts bool) (*client, *contracts.Error) {
	k, e := r.meant(a, adopts)
	role := cmp.Or(a.Role, contracts.RoleController)
	if e == nil && k != nil {
		role, e = r.roleOf(k, a)
	}
	if e == nil && k != nil {
		e = c.proven(k)
	}
	if e == nil {
		e = checkAttach(role, a, h)
	}
	if e != nil {
		return nil, e
	}
	refused := role == contracts.RoleController && r.holder != nil && r.holder != k && !a.TakeControl && !r.s.has(GrantsLeaseTwice)
	if refused && !r.s.has(RefusedStays) {
		return nil, r.held(textHeld)
	}
	if k == nil {
		k = newClient(r, role)
		k.web, k.out, k.id = true, nil, cmp.Or(a.ConnectionID, k.id)
		r.clients = append(r.clients, k)
	}
	if refused {
		return nil, r.held(textHeld)
	}
	k.adopted = k.adopted || adopts && a.ConnectionID == ""
	k.role = role
	k.merge(h)
	k.touch()
	return k, nil
}

// meant is the connection that an attach request goes on with, or nil. One that
// names none may adopt the holder of the lease, once, if that has no
// subscription and is not to lose the lease.
func (r *room) meant(a *order, adopts bool) (*client, *contracts.Error) {
	h := r.holder
	if a.ConnectionID != "" {
		k := r.find(a.ConnectionID)
		if k == nil && !r.s.has(MintsConnections) {
			return nil, staleConnection()
		}
		return k, nil
	}
	if !adopts || a.Role == contracts.RoleViewer || a.TakeControl || h == nil || h.adopted || len(h.subs) > 0 || r.find(h.id) != h {
		return nil, nil
	}
	return h, nil
}

// roleOf is the role of a connection, which a later call cannot change.
func (r *room) roleOf(k *client, a *order) (contracts.Role, *contracts.Error) {
	switch {
	case a.Role == "" || a.Role == k.role:
		return k.role, nil
	case r.s.has(ChangesRoles):
		return a.Role, nil
	}
	return "", refuse(contracts.CodeRoleConflict, "", "Headless connection role does not match subscription role")
}

// checkAttach refuses what a role may not ask for. A viewer may list tool_retry
// here, unlike elsewhere: clients send one list for both roles (6.3).
func checkAttach(role contracts.Role, a *order, h *contracts.Hello) *contracts.Error {
	if e := checkViewer(role, h, contracts.RequestMCPElicitation, contracts.RequestUserInput); e != nil {
		return e
	}
	clientTool := h.Capabilities != nil && slices.Contains(h.Capabilities.ServerRequests, contracts.RequestClientTool)
	switch {
	case a.EnableClientTools && role == contracts.RoleViewer:
		return refuse(contracts.CodeBadRequest, "", "viewer headless connections cannot enable client-side tools")
	case a.EnableClientTools && !clientTool:
		return refuse(contracts.CodeBadRequest, "", "client_tool capability is required when enableClientTools is true")
	}
	return nil
}

// merge overwrites what a later call says; what it leaves out stays.
func (c *client) merge(h *contracts.Hello) {
	c.hello.Role = c.role
	c.hello.ProtocolVersion = cmp.Or(h.ProtocolVersion, c.hello.ProtocolVersion)
	if h.ClientInfo != nil {
		c.hello.ClientInfo = h.ClientInfo
	}
	if h.Capabilities != nil {
		c.hello.Capabilities = h.Capabilities
	}
	if h.OptOutNotifications != nil {
		c.hello.OptOutNotifications = h.OptOutNotifications
	}
}

// arrive gives a controller the lease, and tells everybody.
func (r *room) arrive(k *client) {
	switch {
	case k.role != contracts.RoleController || r.holder == k:
		r.announce(k)
	case r.holder == nil:
		r.grant(k, contracts.LeaseGranted)
	default:
		r.grant(k, contracts.LeaseTakenOver)
	}
}

// connect makes or refreshes a connection.
func (c *call) connect() reply {
	a, h, e := c.attachment()
	if e != nil {
		return c.s.no(e)
	}
	if a.SessionID == "" {
		return c.once("connections", func() reply { return c.connectTo(a, h) })
	}
	return c.connectTo(a, h)
}

func (c *call) connectTo(a *order, h *contracts.Hello) reply {
	r, e := c.session(a, false)
	var k *client
	if e == nil {
		k, e = r.attach(c, a, h, false)
	}
	if e != nil {
		return c.s.no(e)
	}
	r.arrive(k)
	r.sweep()
	body := k.standing()
	body["session_id"] = r.id
	return k.welcome(body, k.hello.OptOutNotifications)
}

// session finds the one an attach request names, or makes one.
func (c *call) session(a *order, creates bool) (*room, *contracts.Error) {
	if c.s.runner != nil {
		return c.s.hosted(cmp.Or(a.SessionID, c.s.runner.SessionID))
	}
	id := a.SessionID
	switch {
	case id == "":
		id = "sess_" + rand.Text()
	case !sessionIDs.MatchString(id):
		return nil, badBody("/sessionId Invalid session id")
	case c.s.rooms[id] == nil && !creates:
		return nil, refuse(contracts.CodeStaleSession, "", "Headless session not found")
	}
	r := c.s.rooms[id]
	if r == nil {
		r = c.s.open(id, false)
		mode, e := c.named("approval-mode")
		if e != nil {
			return nil, e
		}
		r.mode = cmp.Or(a.ApprovalMode, contracts.ApprovalMode(mode), r.mode)
	}
	r.expire()
	return r, nil
}

// create makes a session with one connection, or shows the one there is.
func (c *call) create() reply {
	return c.once("sessions", func() reply {
		a, h, e := c.attachment()
		if e != nil {
			return c.s.no(e)
		}
		role := cmp.Or(a.Role, contracts.RoleController)
		if e := checkAttach(role, a, h); e != nil {
			return c.s.no(e)
		}
		there := c.s.rooms[a.SessionID] != nil
		r, e := c.session(a, true)
		if e != nil {
			return c.s.no(e)
		}
		if !there {
			a.ConnectionID, a.TakeControl = "", false
			k, e := r.attach(c, a, h, false)
			if e != nil {
				return c.s.no(e)
			}
			r.arrive(k)
		}
		r.sweep()
		return reply{status: 200, epoch: r.epoch, body: r.snapshot(r.head)}
	})
}

// subscribe makes an explicit subscription.
func (c *call) subscribe() reply {
	r, e := c.room()
	if e == nil {
		e = r.accepting("hosted runner is not accepting new attachments")
	}
	var a *order
	var h *contracts.Hello
	if e == nil {
		a, h, e = c.attachment()
	}
	if e != nil {
		return c.s.no(e)
	}
	if k := r.find(a.ConnectionID); k != nil && len(k.subs) >= maxSubscriptions {
		return c.s.no(refuse(contracts.CodeRateLimited, "", "Too many subscriptions on one connection"))
	}
	k, e := r.attach(c, a, h, true)
	if e != nil {
		return c.s.no(e)
	}
	s := newSubscription(k)
	s.optOuts, s.own = a.OptOutNotifications, a.OptOutNotifications != nil
	r.arrive(k)
	r.publishSnapshot()
	r.sweep()
	s.at = r.head
	if r.s.has(ShowsOldItems) {
		s.at = max(s.at, 2) - 2 // what it has itself led to
	}
	body := k.standing()
	body["subscription_id"], body["controller_subscription_id"] = s.id, r.holderSub()
	return k.welcome(body, s.wanted())
}

// standing is what a connection is told about itself and the lease, in the
// five keys that answers have in common.
func (c *client) standing() map[string]any {
	return map[string]any{"connection_id": c.id, "controller_lease_granted": c.room.holder == c,
		"controller_connection_id": c.room.holderID(), "lease_expires_at": c.leaseEnd().Value,
		"heartbeat_interval_ms": c.room.s.opts.Heartbeat.Milliseconds()}
}

// welcome completes the answer to an attach request.
func (c *client) welcome(body map[string]any, outs []contracts.Notification) reply {
	body["role"], body["snapshot"] = c.role, json.RawMessage(c.room.snapshot(c.room.head))
	if len(outs) > 0 {
		body["opt_out_notifications"] = outs
	}
	a := ok(body)
	if !c.room.s.has(NoEpochs) {
		a.epoch = c.room.epoch
	}
	if !c.room.s.has(NoTokens) {
		a.token = c.token
	}
	return a
}

// wanted returns the opt-outs in force.
func (s *subscription) wanted() []contracts.Notification {
	if s.own {
		return s.optOuts
	}
	return s.client.hello.OptOutNotifications
}

// holderSub is the lease holder's first attached subscription, else its first.
func (r *room) holderSub() *string {
	if r.holder == nil {
		return nil
	}
	if !r.holder.web {
		return &r.holder.sub
	}
	for _, s := range r.holder.subs {
		if len(s.streams) > 0 {
			return &s.id
		}
	}
	if len(r.holder.subs) > 0 {
		return &r.holder.subs[0].id
	}
	return nil
}
