package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// stream returns count pieces of text between two messages, as a follower is
// shown them that was never behind. Their cursors are 2, 4, ..., for hidden
// entries take cursors, too.
func stream(count int) []delivery {
	all := []delivery{{cursor: 2, body: "start"}}
	for i := range count {
		all = append(all, delivery{cursor: uint64(4 + 2*i), run: "r", body: fmt.Sprintf("word-%d ", i+1)})
	}
	return append(all, delivery{cursor: uint64(4 + 2*count), body: "end"})
}

// merged returns all with the pieces of each span put together, whose bounds
// are indices into all, first included and last not.
func merged(all []delivery, spans ...[2]int) []delivery {
	var out []delivery
	for i := 0; i < len(all); i++ {
		d := all[i]
		for _, s := range spans {
			for s[0] == i && i+1 < s[1] {
				i++
				s[0]++
				d.cursor, d.body = all[i].cursor, d.body+all[i].body
			}
		}
		out = append(out, d)
	}
	return out
}

func without(all []delivery, i int) []delivery { return slices.Delete(slices.Clone(all), i, i+1) }

func changed(all []delivery, i int, change func(*delivery)) []delivery {
	out := slices.Clone(all)
	change(&out[i])
	return out
}

func TestMergingIsNoFault(t *testing.T) {
	all := stream(9)
	for name, got := range map[string][]delivery{
		"nothing merged": all,
		"all merged":     merged(all, [2]int{1, 10}),
		"two parts":      merged(all, [2]int{1, 5}, [2]int{5, 10}),
		"the middle":     merged(all, [2]int{3, 7}),
	} {
		for other, want := range map[string][]delivery{"nothing": all, "all": merged(all, [2]int{1, 10}), "overlapping": merged(all, [2]int{2, 6}, [2]int{6, 9})} {
			if f := compare("x", want, got); !f.clean() || len(f.examples) > 0 {
				t.Errorf("%s against %s merged: got %+v, want no fault", name, other, f)
			}
		}
	}
}

func TestPlantedFaultsAreFound(t *testing.T) {
	all := stream(9)
	last := len(all) - 1
	for _, tt := range []struct {
		name       string
		want, got  []delivery
		losses     int
		duplicates int
		changes    int
	}{
		{"message not shown", all, without(all, 0), 1, 0, 0},
		{"last message not shown", all, without(all, last), 1, 0, 0},
		{"everything after a place not shown", all, all[:5], 1, 0, 1},
		{"piece not shown", all, without(all, 4), 0, 0, 1},
		{"last piece not shown", all, without(all, 9), 0, 0, 1},
		{"piece missing from a merged one", all, merged(without(all, 4), [2]int{2, 6}), 0, 0, 1},
		{"piece missing from a merged journal", merged(all, [2]int{1, 10}), without(all, 4), 0, 0, 1},
		{"message gone from the journal", without(all, 0), all, 1, 0, 0},
		{"piece gone from the journal", without(all, 4), all, 0, 0, 1},
		{"journal ends early", all[:last], all, 1, 0, 0},
		{"piece merged in that was shown before", all, changed(all, 5, func(d *delivery) { d.body = "word-4 word-5 " }), 0, 0, 1},
		{"other bytes in a message", all, changed(all, last, func(d *delivery) { d.body = "END" }), 0, 0, 1},
		{"other bytes in a piece", all, changed(all, 5, func(d *delivery) { d.body = "nothing-5 " }), 0, 0, 1},
		{"pieces swapped", all, changed(changed(all, 5, func(d *delivery) { d.body = "word-6 " }), 6, func(d *delivery) { d.body = "word-5 " }), 0, 0, 2},
		{"words in another order", merged(all, [2]int{5, 7}), changed(merged(all, [2]int{5, 7}), 5, func(d *delivery) { d.body = "word-6 word-5 " }), 0, 0, 1},
		{"piece of another run", all, changed(all, 5, func(d *delivery) { d.run = "s" }), 0, 0, 1},
		{"message in place of a piece", all, changed(all, 5, func(d *delivery) { d.run = "" }), 0, 0, 2},
	} {
		f := compare("x", tt.want, tt.got)
		if f.losses != tt.losses || f.duplicates != tt.duplicates || f.changes != tt.changes {
			t.Errorf("%s: got %d losses, %d duplicates, %d changes %q, want %d, %d, %d", tt.name, f.losses, f.duplicates, f.changes, f.examples, tt.losses, tt.duplicates, tt.changes)
		}
		if f.clean() != (len(f.examples) == 0) {
			t.Errorf("%s: got examples %q of %+v", tt.name, f.examples, f)
		}
	}
}

func TestFrameShownTwiceIsCountedOnce(t *testing.T) {
	r := newRecord("x")
	chunk := &contracts.ResponseChunk{ResponseID: "r", Content: "word-1 "}
	for _, cursor := range []uint64{1, 3, 4, 4, 3, 5} {
		r.event(cursor, chunk, []byte("{}"))
	}
	f := r.takeFaults()
	if f.duplicates != 2 || len(f.examples) != 2 || f.losses+f.changes != 0 {
		t.Errorf("got %+v, want 2 duplicates with an example each", f)
	}
	if got := r.cut(4); len(got) != 3 || got[2].cursor != 4 {
		t.Errorf("got %+v, want the deliveries at 1, 3 and 4", got)
	}
	if got := r.cut(9); len(got) != 1 || got[0].cursor != 5 {
		t.Errorf("got %+v after the first cut, want the delivery at 5", got)
	}
	if f := r.takeFaults(); !f.clean() {
		t.Errorf("got %+v again, want faults to be taken once", f)
	}
}

// What the server says to one follower alone moves its cursor, but nobody else
// has to be shown it.
func TestPrivateMessageIsNotCompared(t *testing.T) {
	r := newRecord("x")
	r.event(7, &contracts.HelloOK{}, []byte("{}"))
	r.event(8, &contracts.Status{Message: "x"}, []byte("{}"))
	if got := r.cut(8); len(got) != 1 || got[0].cursor != 8 || !r.duplicates.clean() {
		t.Errorf("got %+v and %+v, want the delivery at 8 alone", got, r.duplicates)
	}
	r.event(7, &contracts.HelloOK{}, []byte("{}"))
	if f := r.takeFaults(); f.duplicates != 1 {
		t.Errorf("got %d duplicates, want 1: cursors of private messages count as well", f.duplicates)
	}
}

func TestJudgeLooksAtEveryPair(t *testing.T) {
	all := stream(9)
	mark := all[len(all)-1].cursor
	journal := merged(all, [2]int{1, 10})
	for name, tt := range map[string]struct {
		second []delivery
		clean  bool
	}{
		"same":    {all, true},
		"merged":  {merged(all, [2]int{4, 8}), true},
		"missing": {without(all, 4), false},
		"early":   {without(changed(all, 4, func(d *delivery) { d.body += all[5].body }), 5), false},
	} {
		tr := &trial{}
		for i, deliveries := range [][]delivery{all, tt.second} {
			r := newRecord(fmt.Sprintf("follower-%d", i))
			r.deliveries = slices.Clone(deliveries)
			tr.records = append(tr.records, r)
		}
		tr.judge(journal, mark)
		if tr.clean() != tt.clean {
			t.Errorf("%s: got %+v, want clean %v", name, tr.faults, tt.clean)
		}
	}
}

// A later reading of the journal must have all of an earlier one.
func TestJournalThatShrinksIsFound(t *testing.T) {
	all := stream(9)
	tr := &trial{}
	tr.judge(all[:5], all[4].cursor)
	if !tr.clean() {
		t.Fatalf("got %+v, want no fault", tr.faults)
	}
	tr.judge(without(all, 2), all[len(all)-1].cursor)
	if tr.faults.changes != 1 {
		t.Errorf("got %+v, want one change", tr.faults)
	}
	tr = &trial{}
	tr.judge(all[:5], all[4].cursor+1)
	if tr.faults.losses != 1 {
		t.Errorf("got %+v without the mark, want one loss", tr.faults)
	}
}

func TestUnansweredQuestionIsNotClean(t *testing.T) {
	for _, tt := range []struct {
		asked, answers int
		waits          string
		want           bool
	}{{0, 0, "", true}, {3, 3, "", true}, {3, 2, "q", true}, {3, 2, "", false}} {
		tr := &trial{asked: tt.asked, answers: tt.answers, question: tt.waits}
		if got := tr.clean(); got != tt.want {
			t.Errorf("%+v: got clean %v, want %v", tt, got, tt.want)
		}
	}
}
