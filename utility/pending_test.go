package utility

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// due returns what is due at a time, as "path kind".
func dueAt(p *pending, at time.Time) []string {
	var list []string
	for _, c := range p.due(at) {
		list = append(list, c.rel+" "+string(c.kind))
	}
	return list
}

func TestChangesWaitForQuiet(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	p := newPending(100 * time.Millisecond)
	if got := p.next(at(0)); got != math.MaxInt64 {
		t.Errorf("got %s to wait for nothing, want for ever", got)
	}
	p.add(noted{rel: "b", kind: contracts.FileModified}, at(0))
	p.add(noted{rel: "a", kind: contracts.FileModified}, at(10))
	p.add(noted{rel: "b", kind: contracts.FileModified}, at(60))
	if got, want := p.next(at(60)), 50*time.Millisecond; got != want {
		t.Errorf("got %s to wait, want %s", got, want)
	}
	for ms, want := range map[int][]string{109: nil} {
		if got := dueAt(&p, at(ms)); !slices.Equal(got, want) {
			t.Errorf("after %d ms: got %q, want %q", ms, got, want)
		}
	}
	if got, want := dueAt(&p, at(110)), []string{"a modify"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := dueAt(&p, at(160)), []string{"b modify"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := dueAt(&p, at(10_000)); got != nil {
		t.Errorf("got %q, want nothing twice", got)
	}
}

func TestPathThatIsNeverQuietIsReported(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	for debounce, want := range map[time.Duration]time.Duration{
		0: 0, 50 * time.Millisecond: time.Second, 200 * time.Millisecond: 2 * time.Second,
	} {
		p := newPending(debounce)
		reported := time.Duration(-1)
		for since := time.Duration(0); since <= 3*time.Second && reported < 0; since += 10 * time.Millisecond {
			p.add(noted{rel: "busy", kind: contracts.FileModified}, start.Add(since))
			if len(p.due(start.Add(since))) > 0 {
				reported = since
			}
		}
		if reported != want {
			t.Errorf("debounce %s: got a report after %s, want %s", debounce, reported, want)
		}
	}
}

func TestLastKindCounts(t *testing.T) {
	const create, modify, remove, rename = contracts.FileCreated, contracts.FileModified, contracts.FileDeleted, contracts.FileRenamed
	for _, tt := range []struct {
		kinds []contracts.FileChange
		want  contracts.FileChange
	}{
		{[]contracts.FileChange{create, modify}, create},
		{[]contracts.FileChange{rename, modify, modify}, rename},
		{[]contracts.FileChange{create, remove}, remove},
		{[]contracts.FileChange{remove, create}, create},
		{[]contracts.FileChange{remove, modify}, modify},
		{[]contracts.FileChange{modify, rename}, rename},
	} {
		p := newPending(0)
		now := time.Unix(1_000_000, 0)
		for _, k := range tt.kinds {
			p.add(noted{rel: "f", kind: k}, now)
		}
		if got, want := dueAt(&p, now), []string{"f " + string(tt.want)}; !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", tt.kinds, got, want)
		}
	}
}

func TestFullPendingIsDueAtOnceInOrder(t *testing.T) {
	p := newPending(time.Minute)
	now := time.Unix(1_000_000, 0)
	for i := range maxPendingPaths {
		if p.full() {
			t.Fatalf("got full after %d, want %d", i, maxPendingPaths)
		}
		p.add(noted{rel: fmt.Sprint(i), kind: contracts.FileCreated}, now)
	}
	if !p.full() {
		t.Error("got room, want none")
	}
	got := p.due(now)
	if len(got) != maxPendingPaths || got[0].rel != "0" || got[len(got)-1].rel != fmt.Sprint(maxPendingPaths-1) {
		t.Errorf("got %d, want all in their order", len(got))
	}
}
