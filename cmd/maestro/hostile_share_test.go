//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// An assault is what the holders of share links do at once, and go on with until
// the test ends.
type assault struct {
	v      victim
	shares []string // their tokens

	mu   sync.Mutex
	open []net.Conn
}

const (
	assaultShares  = 8
	assaultViewers = 500 // with an unfinished frame
	assaultMore    = 800 // that watch, and take up a place
	assaultSilent  = 800 // TCP connections that ask nothing
	assaultHalf    = 300 // of these half-asked
	assaultBodies  = 200 // requests with an unfinished body
	assaultPlaces  = 512 // of the server

	// What docs/operating.md says that clients can take up.
	unfinishedBound = 32 << 20 // the default of --max-unfinished-bytes
	perConnection   = 16 << 10
	memorySlack     = 64 << 20
)

// TestShareHoldersCannotTakeTheServerDown has the holders of a few share links
// use up all that they can, and the owner work meanwhile.
func TestShareHoldersCannotTakeTheServerDown(t *testing.T) {
	crowd(t) // raises the limit of open files
	v := serveScript(t, buildBinary(t), "--auth", "token", "--max-connections", strconv.Itoa(assaultPlaces))
	p := newPair(t, v)
	p.works(t)
	a := &assault{v: v}
	for range assaultShares {
		a.shares = append(a.shares, v.share(t))
	}
	before := v.resident(t)
	ended := make(chan struct{})
	go func() { // ends when everything is open that the server lets be
		defer close(ended)
		a.strike(t.Context())
	}()
	t.Cleanup(func() {
		<-ended
		for _, c := range a.open {
			_ = c.Close()
		}
	})
	rounds := 0
	for done := false; !done; rounds++ {
		select {
		case <-ended:
			done = true // and once more with everything open
		default:
		}
		p.works(t)
		v.servesOwner(t)
	}
	for metric, least := range map[string]float64{
		`maestro_limited_total{bound="all",what="message"}`:          1,
		`maestro_limited_total{bound="principal",what="message"}`:    1,
		`maestro_limited_total{bound="all",what="connection"}`:       1,
		`maestro_limited_total{bound="principal",what="connection"}`: 0,
		`maestro_evicted_connections_total`:                          1,
		`maestro_unfinished_bytes`:                                   0,
		`maestro_requests_in_flight`:                                 1, // this one
		`maestro_waiting_connections`:                                0,
		`maestro_accept_failures_total`:                              0,
	} {
		if got, ok := v.metric(t, metric); !ok || got < least {
			t.Errorf("%s: got %v, %v, want at least %v", metric, got, ok, least)
		}
	}
	got, bound := v.peak(t)-before, int64(unfinishedBound+perConnection*len(a.open))
	t.Logf("the owner was served %d times; the server took %d MiB more for %d connections", rounds, got>>20, len(a.open))
	if got > bound+memorySlack {
		t.Errorf("got %d MiB more at most, want %d", got>>20, (bound+memorySlack)>>20)
	}
}

// share mints a share of the first session, which only watches.
func (v victim) share(t *testing.T) string {
	t.Helper()
	var minted struct{ Token string }
	if err := json.Unmarshal(v.asOwner(t, "POST", "/api/headless/sessions/main/shares", "{}"), &minted); err != nil || minted.Token == "" {
		t.Fatalf("got %+v, %v, want a share", minted, err)
	}
	return minted.Token
}

// asOwner sends a request over a connection of its own.
func (v victim) asOwner(t *testing.T, method, path, body string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+v.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(v.token)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("the owner is not served: %v", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the owner is not served: got %d %s, %v", res.StatusCode, text, err)
	}
	return text
}

// metric returns the value of one metric.
func (v victim) metric(t *testing.T, name string) (value float64, ok bool) {
	t.Helper()
	for line := range strings.Lines(string(v.asOwner(t, "GET", "/metrics", ""))) {
		if text, found := strings.CutPrefix(line, name+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return value, err == nil
		}
	}
	return 0, false
}

// servesOwner fails the test unless the owner gets an answer and attaches, each
// over a new connection.
func (v victim) servesOwner(t *testing.T) {
	t.Helper()
	v.asOwner(t, "GET", "/api/headless/sessions/main/state", "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := v.client(ctx, contracts.RoleViewer)
	if err != nil {
		t.Fatalf("the owner is not served: %v", err)
	}
	c.Close(false)
}

// strike opens everything, some at a time. What the server refuses is not tried
// again.
func (a *assault) strike(ctx context.Context) {
	steps := []struct {
		times, shares int
		step          func(ctx context.Context, share victim)
	}{
		{assaultSilent, 1, a.silent}, {assaultViewers / 10, 1, a.unfinishedFrame}, {assaultViewers, assaultShares, a.unfinishedFrame},
		{assaultBodies, assaultShares, a.unfinishedBody},
		{assaultMore, assaultShares, func(ctx context.Context, share victim) { a.watch(ctx, share) }},
	}
	for _, s := range steps {
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() { // ends with its part of the times
				for i := worker; i < s.times && ctx.Err() == nil; i += 8 {
					share := a.v
					share.bearer = a.shares[i%s.shares]
					s.step(ctx, share)
				}
			})
		}
		wg.Wait()
	}
}

func (a *assault) keep(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, c)
}

func (a *assault) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open)
}

func (a *assault) silent(ctx context.Context, share victim) {
	p, err := share.dial(ctx)
	if err != nil {
		return
	}
	a.keep(p)
	if a.count() <= assaultHalf {
		_, _ = io.WriteString(p, share.request("")) // the empty line is missing
	}
}

func (a *assault) watch(ctx context.Context, share victim) *peer {
	p, err := share.attach(ctx, "", quietText)
	if err != nil {
		return nil
	}
	a.keep(p)
	return p
}

// unfinishedFrame attaches and sends all of a large frame but its last byte.
func (a *assault) unfinishedFrame(ctx context.Context, share victim) {
	if p := a.watch(ctx, share); p != nil {
		whole := frame(opText, strings.Repeat("x", contracts.MaxSocketBytes))
		_, _ = p.Write(whole[:len(whole)-1]) // the server may hang up
	}
}

func (a *assault) unfinishedBody(ctx context.Context, share victim) {
	p, err := share.dial(ctx)
	if err != nil {
		return
	}
	a.keep(p)
	const size = contracts.MaxSocketBytes
	head := fmt.Sprintf("POST /api/headless/sessions/main/subscribe HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", share.addr, share.bearer, size)
	_, _ = io.WriteString(p, head+strings.Repeat(" ", size-1)) // the server may answer first
}
