// Package ratelimit limits how often each principal may attach and send
// requests, and how often each remote address may present a wrong credential.
//
// Its memory is bounded. While all remembered ids are being limited, new ids
// share one allowance, so that filling the table gains a client nothing. The
// package counts; the caller refuses, with [Refusal].
package ratelimit

import (
	"cmp"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

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
