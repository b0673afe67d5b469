package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/lease"
)

const ttl = 45 * time.Second

var start = time.Date(2026, 4, 27, 9, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

func claim(t *testing.T, l *lease.Lease, id string, now time.Time) {
	t.Helper()
	if err := l.Claim(id, now); err != nil {
		t.Fatalf("Claim(%q): got %v, want no error", id, err)
	}
}

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
	claim(t, &l, "a", start)
	if _, expired := l.Expire(after(1000 * time.Hour)); expired {
		t.Error("a lease without TTL expired")
	}
	wantHolder(t, &l, "a", 1)
}

func TestSecondClaimIsRefusedAndChangesNothing(t *testing.T) {
	l := lease.New(ttl)
	claim(t, l, "a", start)
	if err := l.Claim("b", after(time.Second)); !errors.Is(err, lease.ErrHeld) {
		t.Fatalf("Claim of a held lease: got %v, want %v", err, lease.ErrHeld)
	}
	wantHolder(t, l, "a", 1)
	if d, _ := l.Deadline(); !d.Equal(after(ttl)) {
		t.Errorf("deadline after a refused claim: got %v, want %v", d, after(ttl))
	}
}

func TestClaimOfTheHolderIsOnlyASignOfLife(t *testing.T) {
	l := lease.New(ttl)
	claim(t, l, "a", start)
	claim(t, l, "a", after(10*time.Second))
	wantHolder(t, l, "a", 1)
	if d, _ := l.Deadline(); !d.Equal(after(10*time.Second + ttl)) {
		t.Errorf("deadline: got %v, want %v", d, after(10*time.Second+ttl))
	}
}

func TestTakeOverNamesTheLoser(t *testing.T) { // A25, A27
	l := lease.New(ttl)
	if got := l.TakeOver("a", start); got != "" {
		t.Errorf("taking a free lease over: got loser %q, want none", got)
	}
	if got := l.TakeOver("b", after(time.Second)); got != "a" {
		t.Errorf("loser: got %q, want %q", got, "a")
	}
	wantHolder(t, l, "b", 2)
	if got := l.TakeOver("b", after(2*time.Second)); got != "" {
		t.Errorf("taking one's own lease over: got loser %q, want none", got)
	}
	wantHolder(t, l, "b", 2)
}

func TestReleaseIsForTheHolderOnly(t *testing.T) { // A14, A15
	l := lease.New(ttl)
	claim(t, l, "a", start)
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
	claim(t, l, "a", after(time.Second))
	wantHolder(t, l, "a", 2)
}

func TestSilentHolderLosesTheLeaseAtTheDeadline(t *testing.T) { // A31
	l := lease.New(ttl)
	claim(t, l, "a", start)
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

func TestOverdueHolderDoesNotBlockAClaim(t *testing.T) { // A30: evaluated lazily too
	l := lease.New(ttl)
	claim(t, l, "a", start)
	claim(t, l, "b", after(ttl))
	wantHolder(t, l, "b", 2)
	if got := l.TakeOver("c", after(2*ttl)); got != "" {
		t.Errorf("loser of an overdue lease: got %q, want none", got)
	}
	wantHolder(t, l, "c", 3)
}

func TestOverdueHolderClaimsAnew(t *testing.T) {
	l := lease.New(ttl)
	claim(t, l, "a", start)
	claim(t, l, "a", after(ttl))
	wantHolder(t, l, "a", 2)
}

func TestSignsOfLifeNeverShortenTheLease(t *testing.T) {
	l := lease.New(ttl)
	claim(t, l, "a", after(30*time.Second))
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
	l := lease.New(ttl)
	claim(t, l, "a", start)
	l.Touch("a", after(ttl+time.Millisecond)) // the only one that was reported
	if _, expired := l.Expire(after(ttl + 2*time.Millisecond)); expired {
		t.Error("a holder lost the lease right after a sign of life")
	}
}

func TestPinnedHolderNeverExpires(t *testing.T) {
	l := lease.New(ttl)
	if l.Pin("a") || l.Pin("") {
		t.Error("somebody pinned a free lease")
	}
	claim(t, l, "a", start)
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
	if got := l.TakeOver("b", after(time.Hour)); got != "a" {
		t.Errorf("loser: got %q, want %q", got, "a")
	}
	if _, ok := l.Deadline(); !ok {
		t.Error("the next holder inherited the pin")
	}
}

func TestReleaseEndsThePin(t *testing.T) {
	l := lease.New(ttl)
	claim(t, l, "a", start)
	l.Pin("a")
	l.Release("a")
	claim(t, l, "a", after(time.Second))
	if _, ok := l.Deadline(); !ok {
		t.Error("the pin outlived the release")
	}
}

func TestActionsOfAnEarlierGenerationAreRefused(t *testing.T) { // D7
	l := lease.New(ttl)
	claim(t, l, "a", start)
	first := l.Generation()
	if err := l.Check("a", first); err != nil {
		t.Errorf("the holder's own action: got %v, want no error", err)
	}
	if err := l.Check("a", first+1); !errors.Is(err, lease.ErrStale) {
		t.Errorf("action under a generation that never was: got %v, want %v", err, lease.ErrStale)
	}
	if err := l.Check("b", first); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("another's action: got %v, want %v", err, lease.ErrNotHeld)
	}
	l.Release("a")
	if err := l.Check("a", first); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("action after release: got %v, want %v", err, lease.ErrNotHeld)
	}
	if err := l.Check("", first); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("nobody's action on a free lease: got %v, want %v", err, lease.ErrNotHeld)
	}
	l.TakeOver("b", after(time.Second))
	l.TakeOver("a", after(2*time.Second))
	if err := l.Check("a", first); !errors.Is(err, lease.ErrStale) {
		t.Errorf("action from before the lease was lost and won back: got %v, want %v", err, lease.ErrStale)
	}
}

func TestGenerationContinuesAfterARestart(t *testing.T) { // D7
	l := lease.Restore(ttl, 7)
	wantHolder(t, l, "", 7)
	if err := l.Check("a", 7); !errors.Is(err, lease.ErrNotHeld) {
		t.Errorf("action from before the restart: got %v, want %v", err, lease.ErrNotHeld)
	}
	claim(t, l, "a", start)
	wantHolder(t, l, "a", 8)
	if err := l.Check("a", 7); !errors.Is(err, lease.ErrStale) {
		t.Errorf("action from before the restart: got %v, want %v", err, lease.ErrStale)
	}
}

func TestEmptyIDCannotClaim(t *testing.T) {
	for name, claim := range map[string]func(*lease.Lease){
		"Claim":    func(l *lease.Lease) { _ = l.Claim("", start) },
		"TakeOver": func(l *lease.Lease) { l.TakeOver("", start) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of an empty id did not panic", name)
				}
			}()
			claim(new(lease.Lease))
		}()
	}
}
