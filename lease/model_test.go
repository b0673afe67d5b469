package lease_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/lease"
)

// machine drives a lease and a model of it side by side. The model keeps the
// holder and the moment it would expire, and the number of grants.
type machine struct {
	lease    *lease.Lease
	ttl      time.Duration
	now      time.Time
	holder   string
	deadline time.Time // zero: never
	pinned   bool
	grants   uint64
}

var someID = rapid.SampledFrom([]string{"a", "b", "c"})

// lapse frees the model's lease if its time has come.
func (m *machine) lapse() (lost string) {
	if m.holder != "" && !m.deadline.IsZero() && !m.now.Before(m.deadline) {
		lost, m.holder, m.pinned = m.holder, "", false
	}
	return lost
}

func (m *machine) grantTo(id string) {
	m.holder, m.pinned = id, false
	m.grants++
	m.renew(m.now)
}

func (m *machine) renew(at time.Time) {
	if m.ttl == 0 || m.pinned {
		return
	}
	if d := at.Add(m.ttl); d.After(m.deadline) || m.holder == "" {
		m.deadline = d
	}
}

func (m *machine) grant(t *rapid.T) {
	id := someID.Draw(t, "id")
	m.lapse()
	m.lease.Grant(id, m.now)
	if m.holder == id {
		m.renew(m.now)
		return
	}
	m.deadline = time.Time{}
	m.grantTo(id)
}

func (m *machine) release(t *rapid.T) {
	id := someID.Draw(t, "id")
	if got, want := m.lease.Release(id), m.holder == id; got != want {
		t.Fatalf("Release(%q): got %t, want %t", id, got, want)
	}
	if m.holder == id {
		m.holder, m.pinned = "", false
	}
}

func (m *machine) touch(t *rapid.T) {
	id := someID.Draw(t, "id")
	at := m.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "late")) * time.Second)
	m.lease.Touch(id, at)
	if m.holder == id {
		m.renew(at)
	}
}

func (m *machine) pin(t *rapid.T) {
	id := someID.Draw(t, "id")
	if got, want := m.lease.Pin(id), m.holder == id; got != want {
		t.Fatalf("Pin(%q): got %t, want %t", id, got, want)
	}
	if m.holder == id {
		m.pinned, m.deadline = true, time.Time{}
	}
}

func (m *machine) wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second)
}

func (m *machine) expire(t *rapid.T) {
	want := m.lapse()
	if got, ok := m.lease.Expire(m.now); got != want || ok != (want != "") {
		t.Fatalf("Expire: got %q, %t, want %q", got, ok, want)
	}
}

func (m *machine) restart(*rapid.T) {
	m.lease = lease.New(m.ttl, m.lease.Generation())
	m.holder, m.pinned = "", false
}

// check holds after every step.
func (m *machine) check(t *rapid.T) {
	holder, held := m.lease.Holder()
	if holder != m.holder || held != (m.holder != "") {
		t.Fatalf("holder: got %q, %t, want %q", holder, held, m.holder)
	}
	if got, want := m.lease.Generation(), m.grants; got != want {
		t.Fatalf("generation: got %d, want %d, the number of grants", got, want)
	}
	deadline, ok := m.lease.Deadline()
	if want := m.holder != "" && !m.deadline.IsZero(); ok != want || ok && !deadline.Equal(m.deadline) {
		t.Fatalf("deadline: got %v, %t, want %v, %t", deadline, ok, m.deadline, want)
	}
}

// TestLeaseAlwaysAgreesWithItsModel: at most one holder, a generation that
// grows by one with every new holder and never otherwise, and expiry exactly at the
// deadline.
func TestLeaseAlwaysAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{now: start, ttl: time.Duration(rapid.SampledFrom([]int{0, 10, 45}).Draw(t, "ttl")) * time.Second}
		m.lease = lease.New(m.ttl, 0)
		t.Repeat(map[string]func(*rapid.T){
			"grant": m.grant, "release": m.release, "touch": m.touch,
			"pin": m.pin, "wait": m.wait, "expire": m.expire, "restart": m.restart, "": m.check,
		})
	})
}
