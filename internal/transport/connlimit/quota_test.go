package connlimit

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

var (
	full   = &contracts.Error{Code: contracts.CodeOverloaded}
	excess = &contracts.Error{Code: contracts.CodeRateLimited}
)

// fill reserves slots until one is refused.
func fill(t *testing.T, d *Limiter, p contracts.Principal) (slots []*Slot, why error) {
	t.Helper()
	for {
		slot, err := d.Admit(p)
		if err != nil {
			return slots, err
		}
		slots = append(slots, slot)
	}
}

func TestConfinedPrincipalsLeaveRoomForOthers(t *testing.T) {
	d := New(Options{Connections: 160})
	one, err := fill(t, d, guest)
	if len(one) != 80 || !errors.Is(err, excess) {
		t.Errorf("one share: got %d slots and %v, want 80 and %v", len(one), err, excess)
	}
	two, err := fill(t, d, other)
	if len(two) != 70 || !errors.Is(err, full) {
		t.Errorf("two shares: got %d more and %v, want 70 and %v", len(two), err, full)
	}
	own, err := fill(t, d, ada)
	if len(own) != 10 || !errors.Is(err, full) {
		t.Errorf("a principal that is not confined: got %d slots and %v, want 10 and %v", len(own), err, full)
	}
	own[0].Leave()
	admit(t, d, owner)
	for _, slot := range append(append(one, two...), own[1:]...) {
		slot.Leave()
	}
	if got := d.Counts(); got.Slots != 1 || got.Connections != (Refused{2, 1}) || len(d.slots.byPrincipal) != 1 || d.slots.byConfined != 0 {
		t.Errorf("got %+v and %v, want one slot left and three refusals", got, d.slots.byPrincipal)
	}
}

func TestOwnerHasAllThereIs(t *testing.T) {
	d := New(Options{Connections: 160})
	if slots, err := fill(t, d, owner); len(slots) != 160 || !errors.Is(err, full) {
		t.Errorf("got %d slots and %v, want all 160", len(slots), err)
	}
}

func TestUnfinishedBytesAreBounded(t *testing.T) {
	d := New(Options{Unfinished: 1 << 20, PrincipalUnfinished: 256 << 10})
	const most = 64 << 10
	grow := func(p contracts.Principal) (*Slot, error) {
		slot := admit(t, d, p)
		var b []byte
		for len(b) < most {
			var err error
			if b, err = slot.grow(b, most); err != nil {
				return slot, err
			}
			b = b[:min(cap(b), most)]
		}
		return slot, nil
	}
	count := func(p contracts.Principal) (messages int, why error) {
		for {
			if _, why = grow(p); why != nil {
				return messages, why
			}
			messages++
		}
	}
	// A message has most bytes and one for the end, and is there twice when it
	// grows for the last time.
	if n, err := count(guest); n != 3 || !errors.Is(err, excess) {
		t.Errorf("one principal: got %d messages and %v, want 3 and %v", n, err, excess)
	}
	total := 3
	for i := 0; ; i++ {
		p := contracts.Principal{ID: fmt.Sprint("share_", i), SessionID: "main"}
		n, err := count(p)
		total += n
		if errors.Is(err, full) {
			break
		}
	}
	if got := d.Counts(); got.Unfinished > 768<<10 || total < 8 {
		t.Errorf("all confined: got %d messages with %d bytes, want most of %d", total, got.Unfinished, 768<<10)
	}
	if n, err := count(owner); n < 3 || !errors.Is(err, full) {
		t.Errorf("owner: got %d messages and %v, want 3 and %v", n, err, full)
	}
	if got := d.Counts(); got.Unfinished > 1<<20 {
		t.Errorf("got %d bytes, want at most %d", got.Unfinished, 1<<20)
	}
}

func TestShortMessagesNeedNoRoom(t *testing.T) {
	d := New(Options{Unfinished: 1, PrincipalUnfinished: 1})
	slot := admit(t, d, guest)
	b, err := slot.grow(nil, 1<<20)
	if err != nil || cap(b) < freeBytes {
		t.Fatalf("got room for %d bytes and %v, want %d", cap(b), err, freeBytes)
	}
	if _, err := slot.grow(b[:cap(b)], 1<<20); !errors.Is(err, full) {
		t.Errorf("beyond: got %v, want %v", err, full)
	}
}

func TestLeavingGivesTheBytesBack(t *testing.T) {
	d := New(Options{})
	slot := admit(t, d, guest)
	b, err := slot.grow(make([]byte, freeBytes), 1<<20)
	if err != nil || len(b) != freeBytes || cap(b) <= freeBytes || d.Counts().Unfinished != cap(b) {
		t.Fatalf("got %d of %d bytes, %d counted, %v", len(b), cap(b), d.Counts().Unfinished, err)
	}
	slot.Leave()
	if got := d.Counts().Unfinished; got != 0 {
		t.Errorf("got %d bytes counted, want none", got)
	}
}

// The bytes of answers are bounded as those of messages are. Small answers are not
// counted.
func TestAnswersAreBounded(t *testing.T) {
	d := New(Options{Unfinished: 256 << 10, PrincipalUnfinished: 64 << 10})
	for range 10 {
		if err := admit(t, d, guest).reserveAnswer(freeBytes, false); err != nil {
			t.Fatal(err)
		}
	}
	one := admit(t, d, guest)
	if err := one.reserveAnswer(200<<10, false); err != nil {
		t.Fatal(err)
	}
	if err := one.reserveAnswer(100<<10, false); err != nil || d.Counts().Answers != 100<<10 {
		t.Errorf("shorter than thought: got %v and %d bytes, want %d", err, d.Counts().Answers, 100<<10)
	}
	two := admit(t, d, guest)
	if err := two.reserveAnswer(200<<10, false); !errors.Is(err, excess) {
		t.Errorf("one principal: got %v, want %v", err, excess)
	}
	if _ = two.reserveAnswer(200<<10, true); d.Counts().Answers != 300<<10 {
		t.Errorf("not to be refused: got %d bytes, want it counted", d.Counts().Answers)
	}
	for i := range 3 {
		p := contracts.Principal{ID: fmt.Sprint("share_", 10+i), SessionID: "main"}
		if err := admit(t, d, p).reserveAnswer(1<<30, false); i < 1 && err != nil || i > 1 && !errors.Is(err, full) {
			t.Errorf("principal %d: got %v, want all confined ones to have three quarters", i, err)
		}
	}
	if err := admit(t, d, ada).reserveAnswer(1<<30, false); err != nil {
		t.Errorf("a principal that is not confined: got %v, want its answer", err)
	}
	one.Leave()
	two.Leave()
	if got := d.Counts(); got.Answers > 768<<10 || d.answers.byPrincipal[guest.ID] != 0 {
		t.Errorf("got %d bytes, %v", got.Answers, d.answers.byPrincipal)
	}
	if err := (*Slot)(nil).reserveAnswer(1<<30, false); err != nil {
		t.Error(err)
	}
}
