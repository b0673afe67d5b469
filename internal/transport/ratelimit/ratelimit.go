// Package ratelimit limits how often each principal may attach and send
// requests, and how often each remote address may present a wrong credential.
//
// Its memory is bounded. While all remembered ids are being limited, new ids
// share one allowance, so that filling the table gains a client nothing. The
// package counts; the caller refuses, with [Refusal].
package ratelimit

import (
	"cmp"
	"container/list"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
)

// Options configures [New]. In each pair, the rate is allowed per second in the
// long run, and the burst at once after a quiet time. Zero is the default named
// beside the field; a negative rate means no limit.
type Options struct {
	// Attachments of one principal: 512 and 2,048, so that a few thousand
	// viewers with one credential are all back seconds after a restart.
	AttachRate  float64
	AttachBurst int

	// Requests of one principal: 200 and 1,000.
	RequestRate  float64
	RequestBurst int

	// Wrong credentials from one remote address: 10 and 50.
	FailureRate  float64
	FailureBurst int

	// Principals bounds the remembered principals, and likewise the addresses:
	// 4,096.
	Principals int

	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Limiter counts. It is safe for concurrent use.
type Limiter struct {
	now                         func() time.Time
	attach, request, wrongCreds *table
}

// New returns counters that start from zero.
func New(opts Options) *Limiter {
	most := cmp.Or(max(opts.Principals, 0), 4096)
	r := &Limiter{
		now:        opts.Now,
		attach:     newTable(cmp.Or(opts.AttachRate, 512), cmp.Or(max(opts.AttachBurst, 0), 2048), most),
		request:    newTable(cmp.Or(opts.RequestRate, 200), cmp.Or(max(opts.RequestBurst, 0), 1000), most),
		wrongCreds: newTable(cmp.Or(opts.FailureRate, 10), cmp.Or(max(opts.FailureBurst, 0), 50), most),
	}
	if r.now == nil {
		r.now = time.Now
	}
	return r
}

// Attach counts an attachment of a principal and returns zero, or how long to
// wait before the next attempt. A refused attachment does not count. Each of
// many refused clients gets a different wait, so that all are admitted if they
// wait as told.
func (r *Limiter) Attach(principalID string) (wait time.Duration) {
	return r.attach.take(principalID, r.now())
}

// Request counts a request of a principal, as Attach does an attachment.
func (r *Limiter) Request(principalID string) (wait time.Duration) {
	return r.request.take(principalID, r.now())
}

// Failure counts a wrong credential from the [Network] of a remote address, as
// Attach does an attachment.
func (r *Limiter) Failure(remote netip.Addr) (wait time.Duration) {
	return r.wrongCreds.take(Network(remote), r.now())
}

// Network returns the key for the owner of an address: an IPv4 address itself,
// and the /64 network of an IPv6 address, because its owner has all addresses
// in it.
func Network(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// Refusal returns nil if wait is zero, and otherwise an error with code
// rate_limited. It then sets the answer's Retry-After header to whole seconds,
// rounded up.
func Refusal(answer http.Header, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	seconds := math.Ceil(min(wait, 24*time.Hour).Seconds())
	answer.Set("Retry-After", strconv.FormatFloat(seconds, 'f', 0, 64))
	return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many requests"}
}

// A table has an allowance for each of the most recently seen ids.
type table struct {
	// Static after newTable.
	limit rate.Limit // per second
	burst int
	most  int // ids

	mu     sync.Mutex
	order  *list.List               // of *allowance, most recently used first; at most most
	byID   map[string]*list.Element // into order
	shared *allowance               // for all ids that are not in order
}

type allowance struct {
	id      string
	limiter *rate.Limiter
	last    time.Time // latest time that a refused client was told to come back
}

// maxQueue bounds how much longer a client waits because others were told to
// wait. The others may not come back, or come back too early.
const maxQueue = 30 * time.Second

// newTable returns a table, or nil, which limits nothing, if perSecond is
// negative.
func newTable(perSecond float64, burst, most int) *table {
	if perSecond < 0 {
		return nil
	}
	return &table{
		limit: rate.Limit(perSecond), burst: burst, most: most,
		order: list.New(), byID: map[string]*list.Element{},
		shared: &allowance{limiter: rate.NewLimiter(rate.Limit(perSecond), burst)},
	}
}

// take counts one use for id and returns zero, or counts nothing and returns
// how long to wait. The waits of refused clients differ by the rate of the
// limit, in order of arrival: if all came back at the same time, most would be
// refused again.
func (t *table) take(id string, now time.Time) time.Duration {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.allowance(id, now)
	turn := a.limiter.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait == 0 {
		return 0
	}
	turn.CancelAt(now)
	first := now.Add(wait)
	a.last = a.last.Add(time.Duration(float64(time.Second) / float64(t.limit)))
	if a.last.Before(first) {
		a.last = first
	} else if latest := first.Add(maxQueue); a.last.After(latest) {
		a.last = latest
	}
	return a.last.Sub(now)
}

// allowance returns the allowance for id. A full table replaces the least
// recently used id only if its allowance is unused; otherwise id uses the
// shared one. So filling the table with ids does not reset the allowance of any
// of them.
func (t *table) allowance(id string, now time.Time) *allowance {
	if e, ok := t.byID[id]; ok {
		t.order.MoveToFront(e)
		return e.Value.(*allowance)
	}
	if t.order.Len() >= t.most {
		last := t.order.Back()
		if last.Value.(*allowance).limiter.TokensAt(now) < float64(t.burst) {
			return t.shared
		}
		delete(t.byID, t.order.Remove(last).(*allowance).id)
	}
	a := &allowance{id: strings.Clone(id), limiter: rate.NewLimiter(t.limit, t.burst)} // do not retain the request that id may be part of
	t.byID[a.id] = t.order.PushFront(a)
	return a
}
