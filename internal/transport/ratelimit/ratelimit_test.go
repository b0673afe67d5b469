package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A clock that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Unix(1_800_000_000, 0)} }

// allowed counts how often take says yes in n attempts.
func allowed(n int, take func() time.Duration) (yes int) {
	for range n {
		if take() == 0 {
			yes++
		}
	}
	return yes
}

func TestDefaultsAreThoseThatAreNamed(t *testing.T) {
	c := newClock()
	r := New(Options{Now: c.Now})
	local := netip.MustParseAddr("127.0.0.1")
	for _, tt := range []struct {
		name        string
		take        func() time.Duration
		burst, rate int
	}{
		{"attach", func() time.Duration { return r.Attach("a") }, 2048, 512},
		{"request", func() time.Duration { return r.Request("a") }, 1000, 200},
		{"failure", func() time.Duration { return r.Failure(local) }, 50, 10},
	} {
		if got := allowed(tt.burst+100, tt.take); got != tt.burst {
			t.Errorf("%s: got %d at once, want %d", tt.name, got, tt.burst)
		}
		want := 101 * time.Second / time.Duration(tt.rate) // after the hundred that were refused before
		if got := tt.take(); got < want-time.Microsecond || got > want+time.Microsecond {
			t.Errorf("%s: got a wait of %v, want %v", tt.name, got, want)
		}
		c.now = c.now.Add(time.Second)
		if got := allowed(tt.burst, tt.take); got != tt.rate {
			t.Errorf("%s: got %d after a second, want %d", tt.name, got, tt.rate)
		}
	}
}

func TestWaitingForTheToldTimeIsEnough(t *testing.T) {
	c := newClock()
	r := New(Options{AttachRate: 3, AttachBurst: 1, Now: c.Now})
	for range 20 {
		if wait := r.Attach("a"); wait != 0 {
			t.Fatalf("got a wait of %v, want none after having waited", wait)
		}
		c.now = c.now.Add(r.Attach("a"))
	}
}

// TestCrowdComesBackInTurn has everybody attach at once after a restart. Who is
// refused comes back when it was told to.
func TestCrowdComesBackInTurn(t *testing.T) {
	for name, tt := range map[string]struct {
		crowd    int
		over     time.Duration // in which they come
		refusals int           // at most
		within   time.Duration
	}{
		"at once":                 {6000, 0, 6000 - 2048, 9 * time.Second},
		"within two seconds":      {6000, 2 * time.Second, 6000 - 2048, 9 * time.Second},
		"as many as there may be": {16384, 0, 16384 - 2048, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(Options{})
				var refusals atomic.Int64
				var wg sync.WaitGroup
				start := time.Now()
				for i := range tt.crowd {
					wg.Go(func() { // ends once it is in
						time.Sleep(tt.over * time.Duration(i) / time.Duration(tt.crowd))
						for {
							answer := http.Header{}
							if Refusal(answer, r.Attach("crowd")) == nil {
								return
							}
							refusals.Add(1)
							seconds, err := strconv.Atoi(answer.Get("Retry-After"))
							if err != nil {
								t.Error(err)
								return
							}
							time.Sleep(time.Duration(seconds) * time.Second)
						}
					})
				}
				wg.Wait()
				t.Logf("%d refusals, all back after %v", refusals.Load(), time.Since(start))
				if got := refusals.Load(); got > int64(tt.refusals) || time.Since(start) > tt.within {
					t.Errorf("got %d refusals and all back after %v, want %d and %v at most", got, time.Since(start), tt.refusals, tt.within)
				}
			})
		})
	}
}

func TestWhoDoesNotWaitKeepsNobodyAwayForLong(t *testing.T) {
	c := newClock()
	r := New(Options{Now: c.Now})
	var longest time.Duration
	for range 50_000 {
		longest = max(longest, r.Attach("a"))
	}
	if longest > maxQueue+time.Second {
		t.Errorf("got a wait of %v, want at most %v", longest, maxQueue)
	}
	c.now = c.now.Add(time.Second)
	if got := r.Attach("a"); got != 0 {
		t.Errorf("after a second: got a wait of %v, want none", got)
	}
}

func TestPrincipalsDoNotWaitForEachOther(t *testing.T) {
	c := newClock()
	r := New(Options{RequestBurst: 2, Now: c.Now})
	for _, id := range []string{"a", "b", "c"} {
		if got := allowed(5, func() time.Duration { return r.Request(id) }); got != 2 {
			t.Errorf("%s: got %d, want 2", id, got)
		}
	}
}

func TestNegativeRateIsNoLimit(t *testing.T) {
	r := New(Options{AttachRate: -1, RequestRate: -1, FailureRate: -1})
	for _, take := range []func() time.Duration{
		func() time.Duration { return r.Attach("a") },
		func() time.Duration { return r.Request("a") },
		func() time.Duration { return r.Failure(netip.Addr{}) },
	} {
		if got := allowed(10_000, take); got != 10_000 {
			t.Errorf("got %d, want 10000", got)
		}
	}
}

func TestBeingForgottenIsNoGain(t *testing.T) {
	c := newClock()
	const most, burst = 8, 4
	r := New(Options{AttachRate: 1, AttachBurst: burst, Principals: most, Now: c.Now})
	attach := func(id string) func() time.Duration { return func() time.Duration { return r.Attach(id) } }
	if got := allowed(100, attach("attacker")); got != burst {
		t.Fatalf("got %d, want %d", got, burst)
	}
	// With the table full of such as have used something, a thousand names get
	// no more than one would.
	for i := range most - 1 {
		r.Attach(fmt.Sprint("friend", i))
	}
	crowd := 0
	for i := range 1000 {
		crowd += allowed(burst, attach(fmt.Sprint("name", i)))
	}
	if crowd != burst {
		t.Errorf("got %d attachments by a crowd, want %d", crowd, burst)
	}
	if got := allowed(100, attach("attacker")); got != 0 {
		t.Errorf("got %d more attachments, want 0", got)
	}
	if got := len(r.attach.byID); got != most || r.attach.order.Len() != most {
		t.Errorf("got %d remembered, want %d", got, most)
	}
}

func TestLeastRecentlyUsedIsForgotten(t *testing.T) {
	c := newClock()
	r := New(Options{AttachRate: 1, AttachBurst: 2, Principals: 2, Now: c.Now})
	r.Attach("a")
	r.Attach("b")
	c.now = c.now.Add(time.Minute)
	r.Attach("a")
	r.Attach("c") // in the place of b, whose allowance is whole
	for id, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, ok := r.attach.byID[id]; ok != want {
			t.Errorf("%s: got remembered %v, want %v", id, ok, want)
		}
	}
	if got := len(r.attach.byID); got != 2 {
		t.Errorf("got %d remembered, want 2", got)
	}
}

func TestAddressesOfOneNetworkCountTogether(t *testing.T) {
	c := newClock()
	r := New(Options{FailureBurst: 3, Now: c.Now})
	fail := func(addr string) bool { return r.Failure(netip.MustParseAddr(addr)) == 0 }
	for _, tt := range []struct {
		addr string
		want bool
	}{
		{"2001:db8::1", true}, {"2001:db8::2", true}, {"2001:db8::ffff:1%eth0", true}, {"2001:db8::3", false},
		{"2001:db8:0:1::1", true},
		{"192.0.2.1", true}, {"::ffff:192.0.2.1", true}, {"192.0.2.1", true}, {"::ffff:192.0.2.1", false},
		{"192.0.2.2", true},
	} {
		if got := fail(tt.addr); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.addr, got, tt.want)
		}
	}
}

func TestManyAtOnceGetNoMoreThanTheBurst(t *testing.T) {
	c := newClock()
	r := New(Options{AttachBurst: 100, Now: c.Now})
	var yes atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { yes.Add(int64(allowed(50, func() time.Duration { return r.Attach("a") }))) })
	}
	wg.Wait()
	if got := yes.Load(); got != 100 {
		t.Errorf("got %d, want 100", got)
	}
}

func TestRefusalSaysWhenToTryAgain(t *testing.T) {
	for _, tt := range []struct {
		wait time.Duration
		want string
	}{
		{time.Millisecond, "1"}, {time.Second, "1"}, {1001 * time.Millisecond, "2"}, {1 << 62, "86400"},
	} {
		h := http.Header{}
		err := Refusal(h, tt.wait)
		if !errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) || h.Get("Retry-After") != tt.want {
			t.Errorf("%v: got %v, Retry-After %q, want rate_limited and %q", tt.wait, err, h.Get("Retry-After"), tt.want)
		}
	}
	h := http.Header{}
	if err := Refusal(h, 0); err != nil || len(h) != 0 {
		t.Errorf("no wait: got %v, %v, want neither", err, h)
	}
}
