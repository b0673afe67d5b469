// Package connlimit bounds what the clients of a process take up: connections,
// requests under way and the memory of messages that are not complete and of
// answers that are not read. It also ends all of it.
//
// There are bounds for all clients together, for one principal, and for one
// address. A sixteenth of the connections and requests and a quarter of the bytes
// are reserved for principals that are not confined to a session or to viewing,
// so that the holders of shares cannot lock out those who made them.
package connlimit

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Conn is a connection as a Limiter sees it.
type Conn interface {
	// Close begins to end the connection and says why. It does not wait.
	Close(why *contracts.Error)
	// Cut breaks it off.
	Cut()
}

// GoingAway is why connections end when the limiter is closed.
var GoingAway = &contracts.Error{Code: contracts.CodeGoingAway, Message: "the server is going away"}

// Options configures [New].
type Options struct {
	// Connections is how many sockets and streams there may be, and also how many
	// requests under way and how many TCP connections that are neither. Zero means
	// 16,384. One more is refused with overloaded; a TCP connection makes room for
	// it by closing another that waits.
	Connections int

	// PrincipalConnections is how many sockets and streams, and how many requests,
	// one principal other than the owner may have. Zero means half of Connections.
	// One more is refused with rate_limited.
	PrincipalConnections int

	// AddressConnections is how many TCP connections of one address may wait for a
	// request of a known principal. Zero means three quarters of Connections. For
	// one more, the one that has waited longest is closed.
	AddressConnections int

	// Unfinished is how many bytes of memory there are for messages that are not
	// complete, and PrincipalUnfinished how many of them one principal other than
	// the owner may have. Zero means 32 MiB, and a quarter of Unfinished. What is
	// more is refused with overloaded or rate_limited.
	Unfinished          int
	PrincipalUnfinished int

	// Answers is how many bytes of memory there are for answers that clients have
	// not read, and PrincipalAnswers how many of them one principal other than the
	// owner may have; see [ReserveAnswer]. Zero means four times Unfinished and
	// PrincipalUnfinished. What is more is refused with overloaded or rate_limited.
	Answers          int
	PrincipalAnswers int

	// WriteTimeout is the time that a client has to take 256 KiB of an answer to a
	// request that came through Guard. Zero means
	// [contracts.DefaultWriteTimeout]. The connection is then cut.
	WriteTimeout time.Duration

	// Refused is told of each refusal of a request that came through Guard; nil
	// tells nobody.
	Refused func(*http.Request, *contracts.Error)

	// Evicted is told of each TCP connection that is closed because a new one is
	// beyond the bounds; nil tells nobody.
	Evicted func(remote string)
}

// A Limiter lets clients in, within bounds. It is safe for concurrent use.
type Limiter struct {
	// Static after New.
	opts Options
	ctx  context.Context // ends in Close
	stop context.CancelFunc
	wg   sync.WaitGroup // one for each slot, and for each request under way

	mu         sync.Mutex
	closed     bool
	conns      map[Conn]struct{} // at most slots.taken
	slots      quota             // sockets and streams, and those on their way to be one
	requests   quota             // under way, of known principals
	unfinished quota             // bytes
	answers    quota             // bytes
	http       httpConns
}

// New returns a Limiter.
func New(opts Options) *Limiter {
	opts.Connections = cmp.Or(max(opts.Connections, 0), 16384)
	opts.PrincipalConnections = cmp.Or(max(opts.PrincipalConnections, 0), (opts.Connections+1)/2)
	opts.AddressConnections = cmp.Or(max(opts.AddressConnections, 0), (3*opts.Connections+3)/4)
	opts.Unfinished = cmp.Or(max(opts.Unfinished, 0), 32<<20)
	opts.PrincipalUnfinished = cmp.Or(max(opts.PrincipalUnfinished, 0), opts.Unfinished/4)
	opts.Answers = cmp.Or(max(opts.Answers, 0), 4*min(opts.Unfinished, math.MaxInt/4))
	opts.PrincipalAnswers = cmp.Or(max(opts.PrincipalAnswers, 0), 4*min(opts.PrincipalUnfinished, math.MaxInt/4))
	opts.WriteTimeout = cmp.Or(max(opts.WriteTimeout, 0), contracts.DefaultWriteTimeout)
	reserved := (opts.Connections + 15) / 16
	ctx, stop := context.WithCancel(context.Background())
	return &Limiter{
		opts: opts, ctx: ctx, stop: stop, conns: map[Conn]struct{}{},
		slots:      newQuota(opts.Connections, opts.PrincipalConnections, reserved, "connections"),
		requests:   newQuota(opts.Connections, opts.PrincipalConnections, reserved, "requests"),
		unfinished: newQuota(opts.Unfinished, opts.PrincipalUnfinished, opts.Unfinished/4, "unfinished messages"),
		answers:    newQuota(opts.Answers, opts.PrincipalAnswers, opts.Answers/4, "unread answers"),
		http:       newHTTPConns(opts.Connections, opts.AddressConnections),
	}
}

// Context ends when the limiter is closed.
func (d *Limiter) Context() context.Context { return d.ctx }

// A Slot is what one connection or request takes up. Its methods but Enter may
// be called on nil, which has no bounds.
type Slot struct {
	// Static.
	limiter *Limiter
	by      contracts.Principal
	of      *quota

	conn   Conn // guarded by the lock of the limiter: what took the slot
	held   int  // bytes of the unfinished message; owned by who reads it
	answer int  // bytes of the answer; owned by who writes it
}

// Admit reserves a slot for a socket or stream, which Leave gives back. It
// refuses with overloaded, with rate_limited beyond the bound of the principal,
// or with going_away when the limiter is closed.
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

// Enter puts c in the slot. If the limiter was closed meanwhile, Enter ends the
// connection at once.
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

// Leave gives the slot back, with the connection that is in it.
func (s *Slot) Leave() {
	if s == nil {
		return
	}
	s.Release()
	d := s.limiter
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, s.conn)
	d.answers.give(s.by, s.answer)
	s.of.give(s.by, 1)
	d.wg.Done()
}

// freeBytes is what a message may have without being counted: nearly all are
// shorter, and are not refused because others fill the memory up.
const freeBytes = 4 << 10

// Grow returns b, what there is of a message of at most most bytes, with room
// for more. It counts the room, until Release, and refuses what would be too
// much.
func (s *Slot) Grow(b []byte, most int) ([]byte, error) {
	room := max(2*cap(b), freeBytes, len(b)+1)
	if room >= most {
		room = max(most+1, len(b)+1) // one more, to see that there is no more
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

// Release says that the memory of the message is free.
func (s *Slot) Release() {
	if s == nil || s.held == 0 {
		return
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.limiter.unfinished.give(s.by, s.held)
	s.held = 0
}

// reserveAnswer reserves n bytes for an answer instead of those reserved before.
// Unless force is set, it refuses what is beyond the bounds. An answer that is
// larger than the bound of one principal counts as large as that, so that it can
// be had at all.
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

// Counts says what is taken up, and what was refused so far.
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

// Refused says how often something was refused, because of the bounds of all
// and because of that of one principal.
type Refused struct{ Full, Excess uint64 }

// MakeRoom closes the TCP connection that has waited longest for a request, for
// want of descriptors.
func (d *Limiter) MakeRoom() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.http.evict(d.http.waiting)
}

// Counts returns what is taken up now.
func (d *Limiter) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Counts{
		Slots: d.slots.taken, Conns: len(d.conns), Requests: d.requests.taken,
		Waiting: d.http.waiting.Len(), Unfinished: d.unfinished.taken, Answers: d.answers.taken, Evicted: d.http.evicted,
		Connections: Refused{d.slots.refused[0] + d.requests.refused[0], d.slots.refused[1] + d.requests.refused[1]},
		Messages:    Refused{d.unfinished.refused[0], d.unfinished.refused[1]},
		Unread:      Refused{d.answers.refused[0], d.answers.refused[1]},
	}
}

// Close refuses new connections and requests, ends all connections and waits
// until they have ended and the requests are answered. Connections without a
// request are cut at once, and requests whose body has not come whole are
// refused. If ctx ends first, Close cuts all connections off and returns ctx's
// error without waiting any longer.
func (d *Limiter) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	for c := range d.conns {
		c.Close(GoingAway)
	}
	d.http.close()
	d.mu.Unlock()
	d.stop()
	ended := make(chan struct{})
	go func() { // ends when the last connection and request has
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
