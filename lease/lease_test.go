package lease_test

import (
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/lease"
)

const ttl = 45 * time.Second

var start = time.Date(2026, 4, 27, 9, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

func wantHolder(t *testing.T, l *lease.Lease, id string, generation uint64) {
	t.Helper()
	got, ok := l.Holder()
	if got != id || ok != (id != "") || l.Generation() != generation {
		t.Fatalf("holder: got %q, %t, generation %d, want %q, generation %d", got, ok, l.Generation(), id, generation)
	}
}

func TestZeroLeaseIsFreeAndNeverExpires(t *testing.T) {
	var l lease.Lease
	wantHolder(t, &l, "", 0)
	if _, ok := l.Deadline(); ok {
		t.Error("a free lease has a deadline")
	}
	l.Grant("a", start)
	if _, expired := l.Expire(after(1000 * time.Hour)); expired {
		t.Error("a lease without TTL expired")
	}
	wantHolder(t, &l, "a", 1)
}

func TestGrantToTheHolderIsOnlyASignOfLife(t *testing.T) {
	l := lease.New(ttl, 0)
	l.Grant("a", start)
	l.Grant("a", after(10*time.Second))
	wantHolder(t, l, "a", 1)
	if d, _ := l.Deadline(); !d.Equal(after(10*time.Second + ttl)) {
		t.Errorf("deadline: got %v, want %v", d, after(10*time.Second+ttl))
	}
}

func TestGrantMovesTheLease(t *testing.T) { // A25, A27
	l := lease.New(ttl, 0)
	l.Grant("a", start)
	l.Grant("b", after(time.Second))
	wantHolder(t, l, "b", 2)
	l.Grant("b", after(2*time.Second))
	wantHolder(t, l, "b", 2)
}

func TestReleaseIsForTheHolderOnly(t *testing.T) { // A14, A15
	l := lease.New(ttl, 0)
	l.Grant("a", start)
	for _, id := range []string{"b", ""} {
		if l.Release(id) {
			t.Errorf("Release(%q) freed the lease of another", id)
		}
	}
	if !l.Release("a") {
		t.Error("the holder could not release")
	}
	wantHolder(t, l, "", 1)
	if l.Release("") || l.Release("a") {
		t.Error("a free lease was released")
	}
	l.Grant("a", after(time.Second))
	wantHolder(t, l, "a", 2)
}

func TestSilentHolderLosesTheLeaseAtTheDeadline(t *testing.T) { // A31
	l := lease.New(ttl, 0)
	l.Grant("a", start)
	l.Touch("a", after(20*time.Second)) // A32
	deadline, ok := l.Deadline()
	if want := after(20*time.Second + ttl); !ok || !deadline.Equal(want) {
		t.Fatalf("deadline: got %v, %t, want %v", deadline, ok, want)
	}
	before := deadline.Add(-time.Nanosecond)
	if _, expired := l.Expire(before); expired {
		t.Fatal("the lease expired before its deadline")
	}
	if previous, expired := l.Expire(deadline); previous != "a" || !expired {
		t.Fatalf("Expire at the deadline: got %q, %t, want %q, true", previous, expired, "a")
	}
	if previous, expired := l.Expire(deadline); previous != "" || expired {
		t.Errorf("second Expire: got %q, %t, want nothing", previous, expired)
	}
	wantHolder(t, l, "", 1)
}

func TestOverdueHolderIsGrantedTheLeaseAnew(t *testing.T) {
	l := lease.New(ttl, 0)
	l.Grant("a", start)
	l.Grant("a", after(ttl))
	wantHolder(t, l, "a", 2)
}

func TestSignsOfLifeNeverShortenTheLease(t *testing.T) {
	l := lease.New(ttl, 0)
	l.Grant("a", after(30*time.Second))
	for _, at := range []time.Duration{0, 29 * time.Second} {
		l.Touch("a", after(at))
	}
	l.Touch("b", after(40*time.Second))
	l.Touch("", after(40*time.Second))
	if d, _ := l.Deadline(); !d.Equal(after(30*time.Second + ttl)) {
		t.Errorf("deadline: got %v, want %v", d, after(30*time.Second+ttl))
	}
}

func TestLateSignOfLifeStillCounts(t *testing.T) {
	l := lease.New(ttl, 0)
	l.Grant("a", start)
	l.Touch("a", after(ttl+time.Millisecond)) // the only one that was reported
	if _, expired := l.Expire(after(ttl + 2*time.Millisecond)); expired {
		t.Error("a holder lost the lease right after a sign of life")
	}
}

func TestPinnedHolderNeverExpires(t *testing.T) {
	l := lease.New(ttl, 0)
	if l.Pin("a") || l.Pin("") {
		t.Error("somebody pinned a free lease")
	}
	l.Grant("a", start)
	if l.Pin("b") {
		t.Error("b pinned the lease of a")
	}
	if !l.Pin("a") {
		t.Fatal("the holder could not pin its lease")
	}
	if _, ok := l.Deadline(); ok {
		t.Error("a pinned lease has a deadline")
	}
	if _, expired := l.Expire(after(1000 * time.Hour)); expired {
		t.Error("a pinned lease expired")
	}
	l.Grant("b", after(time.Hour))
	if _, ok := l.Deadline(); !ok {
		t.Error("the next holder inherited the pin")
	}
}

func TestReleaseEndsThePin(t *testing.T) {
	l := lease.New(ttl, 0)
	l.Grant("a", start)
	l.Pin("a")
	l.Release("a")
	l.Grant("a", after(time.Second))
	if _, ok := l.Deadline(); !ok {
		t.Error("the pin outlived the release")
	}
}

func TestGenerationContinuesAfterARestart(t *testing.T) { // D7
	l := lease.New(ttl, 7)
	wantHolder(t, l, "", 7)
	l.Grant("a", start)
	wantHolder(t, l, "a", 8)
}

func TestEmptyIDCannotHoldTheLease(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Grant to an empty id did not panic")
		}
	}()
	new(lease.Lease).Grant("", start)
}
