// Package connlimit bounds what the clients of a process use: connections,
// requests under way, the memory of incomplete messages and the memory of
// unread answers. [Limiter.Close] ends all connections and requests.
//
// There are bounds for all clients together, for one principal, and for one
// address. A sixteenth of the connections and requests and a quarter of the
// bytes are reserved for principals that are not confined to one session or to
// viewing, so that the holders of shares cannot lock out the principals who
// made the shares.
package connlimit

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Conn is a connection as a Limiter sees it.
type Conn interface {
	// Close starts to end the connection with the reason why. It does not wait.
	Close(why *contracts.Error)
	// Cut closes the socket without a reason.
	Cut()
}

// GoingAway is the reason that connections end with when the limiter closes.
var GoingAway = &contracts.Error{Code: contracts.CodeGoingAway, Message: "the server is going away"}

// Options configures [New].
type Options struct {
	// Connections bounds the sockets and streams. The same number bounds the
	// requests under way, and the TCP connections that are neither a socket nor
	// a stream. Zero means 16,384. A socket, stream or request beyond the bound
	// is refused with overloaded; for a TCP connection beyond it, the one that
	// has waited longest is closed.
	Connections int

	// PrincipalConnections bounds the sockets and streams, and likewise the
	// requests, of one principal other than the owner. Zero means half of
	// Connections. Beyond the bound, one is refused with rate_limited.
	PrincipalConnections int

	// AddressConnections bounds the TCP connections of one address that wait for
	// a request of a known principal. Zero means three quarters of Connections.
	// Beyond the bound, the one that has waited longest is closed.
	AddressConnections int

	// Unfinished bounds the bytes of incomplete messages, and
	// PrincipalUnfinished those of one principal other than the owner. Zero
	// means 32 MiB, and a quarter of Unfinished. A message beyond Unfinished is
	// refused with overloaded, beyond PrincipalUnfinished with rate_limited. Four
	// times these numbers likewise bound the bytes of answers that clients have not
	// read; see [ReserveAnswer].
	Unfinished          int
	PrincipalUnfinished int

	// WriteTimeout is the time in which a client must read 256 KiB of an answer
	// to a request that came through Guard. Zero means
	// [contracts.DefaultWriteTimeout]. A slower connection is cut.
	WriteTimeout time.Duration

	// Refused is called for each refusal of a request that came through Guard.
	// It may be nil.
	Refused func(*http.Request, *contracts.Error)

	// Evicted is called for each TCP connection that is closed to make room for
	// a new one. It may be nil.
	Evicted func(remote string)
}

// A Limiter admits clients within bounds. It is safe for concurrent use.
type Limiter struct {
	// Static after New.
	opts Options
	ctx  context.Context // ends in Close
	stop context.CancelFunc
	wg   sync.WaitGroup // one for each slot and each request under way

	mu         sync.Mutex
	closed     bool
	conns      map[Conn]struct{}     // at most slots.taken
	incoming   map[*request]struct{} // requests whose body has not been read to its end
	slots      quota                 // sockets and streams, including those not yet entered
	requests   quota                 // requests under way, of known principals
	unfinished quota                 // bytes
	answers    quota                 // bytes
	http       httpConns
}

// New returns a Limiter.
func New(opts Options) *Limiter {
	opts.Connections = cmp.Or(max(opts.Connections, 0), 16384)
	opts.PrincipalConnections = cmp.Or(max(opts.PrincipalConnections, 0), (opts.Connections+1)/2)
	opts.AddressConnections = cmp.Or(max(opts.AddressConnections, 0), (3*opts.Connections+3)/4)
	opts.Unfinished = cmp.Or(max(opts.Unfinished, 0), 32<<20)
	opts.PrincipalUnfinished = cmp.Or(max(opts.PrincipalUnfinished, 0), opts.Unfinished/4)
	answers, perPrincipal := 4*min(opts.Unfinished, math.MaxInt/4), 4*min(opts.PrincipalUnfinished, math.MaxInt/4)
	opts.WriteTimeout = cmp.Or(max(opts.WriteTimeout, 0), contracts.DefaultWriteTimeout)
	reserved := (opts.Connections + 15) / 16
	ctx, stop := context.WithCancel(context.Background())
	return &Limiter{
		opts: opts, ctx: ctx, stop: stop, conns: map[Conn]struct{}{}, incoming: map[*request]struct{}{},
		slots:      newQuota(opts.Connections, opts.PrincipalConnections, reserved, "connections"),
		requests:   newQuota(opts.Connections, opts.PrincipalConnections, reserved, "requests"),
		unfinished: newQuota(opts.Unfinished, opts.PrincipalUnfinished, opts.Unfinished/4, "unfinished messages"),
		answers:    newQuota(answers, perPrincipal, answers/4, "unread answers"),
		http:       newHTTPConns(opts.Connections, opts.AddressConnections),
	}
}

// A Slot is the share of a quota that one connection or request holds. All
// methods except Enter may be called on a nil Slot, which has no bounds.
type Slot struct {
	// Static.
	limiter *Limiter
	by      contracts.Principal
	of      *quota

	conn   Conn // the connection in the slot; guarded by limiter.mu
	held   int  // bytes reserved for the incomplete message; owned by its reader
	answer int  // bytes reserved for the answer; owned by its writer
}

// Admit reserves a slot for a socket or stream; Leave returns it. Admit refuses
// with overloaded beyond the bound of all, with rate_limited beyond the bound
// of the principal, and with going_away when the limiter is closed.
func (d *Limiter) Admit(p contracts.Principal) (*Slot, error) { return d.take(&d.slots, p) }

func (d *Limiter) take(of *quota, p contracts.Principal) (*Slot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, GoingAway
	}
	if err := of.take(p, 1); err != nil {
		return nil, err
	}
	d.wg.Add(1)
	return &Slot{limiter: d, by: p, of: of}, nil
}

// Enter puts c in the slot. If the limiter was closed after Admit, Enter closes
// c.
func (s *Slot) Enter(c Conn) {
	d := s.limiter
	d.mu.Lock()
	defer d.mu.Unlock()
	s.conn = c
	d.conns[c] = struct{}{}
	if d.closed {
		c.Close(GoingAway)
	}
}

// Serve puts c in the slot and calls serve with a context that ends when the limiter
// is closed. It turns a panic into an error, so that it ends one connection only.
func (s *Slot) Serve(c Conn, log *slog.Logger, serve func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic while serving a connection", "panic", p, "stack", string(debug.Stack()))
			err = &contracts.Error{Code: contracts.CodeInternal, Message: "Internal server error"}
		}
	}()
	s.Enter(c)
	return serve(s.limiter.ctx)
}

// Leave returns the slot and forgets its connection.
func (s *Slot) Leave() {
	if s == nil {
		return
	}
	s.Release()
	d := s.limiter
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, s.conn)
	d.answers.add(s.by, -s.answer)
	s.of.add(s.by, -1)
	d.wg.Done()
}

// freeBytes of each message are not counted. Most messages are shorter, so they
// pass even if others have used up the memory.
const freeBytes = 4 << 10

// ReadAll appends the rest of a message of at most most bytes to b. The buffer grows
// with the bytes that arrive, and counts until Release. Beyond the bounds, ReadAll
// refuses.
func (s *Slot) ReadAll(r io.Reader, b []byte, most int) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			var err error
			if b, err = s.grow(b, most); err != nil {
				return b, err
			}
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		} else if err != nil {
			return b, err
		}
	}
}

// grow returns b, the beginning of a message of at most most bytes, with room
// for more. It refuses room beyond the bounds.
func (s *Slot) grow(b []byte, most int) ([]byte, error) {
	room := max(2*cap(b), freeBytes, len(b)+1)
	if room >= most {
		room = max(most+1, len(b)+1) // one byte more shows that the message is too long
	}
	if s == nil || room <= freeBytes || most <= freeBytes {
		return append(make([]byte, 0, room), b...), nil
	}
	d := s.limiter
	d.mu.Lock()
	err := d.unfinished.take(s.by, room)
	d.mu.Unlock()
	if err != nil {
		return b, err
	}
	b = append(make([]byte, 0, room), b...)
	s.Release()
	s.held = room
	return b, nil
}

// Release stops counting the memory of the message.
func (s *Slot) Release() {
	if s == nil || s.held == 0 {
		return
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.limiter.unfinished.add(s.by, -s.held)
	s.held = 0
}

// reserveAnswer reserves n bytes for an answer, in place of those reserved
// before. Unless force is set, it refuses bytes beyond the bounds. An answer
// larger than the bound of one principal counts as that bound; otherwise it
// could never be sent.
func (s *Slot) reserveAnswer(n int, force bool) error {
	if s == nil {
		return nil
	}
	d := s.limiter
	if n = min(n, d.answers.each, d.answers.confined); n <= freeBytes {
		n = 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	more := n - s.answer
	if more > 0 && !force {
		if err := d.answers.take(s.by, more); err != nil {
			return err
		}
	} else {
		d.answers.add(s.by, more)
	}
	s.answer = n
	return nil
}

// Counts says what is in use, and how much was refused so far.
type Counts struct {
	Slots      int // of sockets and streams
	Conns      int // sockets and streams, those being closed included
	Requests   int // of known principals, under way
	Waiting    int // TCP connections without such a request
	Unfinished int // bytes
	Answers    int // bytes

	Connections, Messages, Unread Refused // slots and requests; room for messages; room for answers
	Evicted                       uint64  // waiting connections that were closed for others
}

// Refused counts refusals: Full because of the bounds of all, Excess because of
// the bound of one principal.
type Refused struct{ Full, Excess uint64 }

// MakeRoom closes the TCP connection that has waited longest for a request. The
// listener calls it when the process has no file descriptors left.
func (d *Limiter) MakeRoom() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.http.evict("")
}

// Counts returns what is in use now.
func (d *Limiter) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Counts{
		Slots: d.slots.taken, Conns: len(d.conns), Requests: d.requests.taken,
		Waiting: d.http.waiting.Len(), Unfinished: d.unfinished.taken, Answers: d.answers.taken, Evicted: d.http.evicted,
		Connections: Refused{d.slots.refused.Full + d.requests.refused.Full, d.slots.refused.Excess + d.requests.refused.Excess},
		Messages:    d.unfinished.refused,
		Unread:      d.answers.refused,
	}
}

// Close refuses new connections and requests, ends all connections and waits
// until they have ended and the requests are answered. It cuts connections
// without a request at once, and refuses requests whose body is incomplete. If
// ctx ends first, Close cuts all connections and returns ctx's error.
func (d *Limiter) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	for c := range d.conns {
		c.Close(GoingAway)
	}
	for _, c := range d.http.byConn {
		c.closeUnlessAnswering()
	}
	d.stop()
	for q := range d.incoming {
		_ = q.control.SetReadDeadline(time.Now()) // an error says that reading fails as well
	}
	d.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends when the last connection and request have ended
		d.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.Cut()
	}
	return ctx.Err()
}

// A quota is an amount that principals share. The limiter's lock guards it.
type quota struct {
	// Static.
	all      int              // the whole amount
	each     int              // for one principal other than the owner
	confined int              // for all confined principals together; the rest is reserved
	full     *contracts.Error // refuses beyond all and beyond confined
	excess   *contracts.Error // refuses beyond each

	taken       int
	byConfined  int            // part of taken
	byPrincipal map[string]int // parts of taken by principal ID; none is zero
	refused     Refused
}

func newQuota(all, each, reserved int, what string) quota {
	return quota{
		all: all, each: each, confined: all - reserved, byPrincipal: map[string]int{},
		full:   &contracts.Error{Code: contracts.CodeOverloaded, Message: "too many " + what},
		excess: &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many " + what + " of one principal"},
	}
}

// take takes n for a principal, or refuses and takes nothing.
func (q *quota) take(p contracts.Principal, n int) error {
	switch {
	case q.taken+n > q.all, p.Confined() && q.byConfined+n > q.confined:
		q.refused.Full++
		return q.full
	case !p.Owner() && q.byPrincipal[p.ID]+n > q.each:
		q.refused.Excess++
		return q.excess
	}
	q.add(p, n)
	return nil
}

func (q *quota) add(p contracts.Principal, n int) {
	q.taken += n
	if p.Confined() {
		q.byConfined += n
	}
	if q.byPrincipal[p.ID] += n; q.byPrincipal[p.ID] == 0 {
		delete(q.byPrincipal, p.ID)
	}
}
