package session_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

var ann, bob = contracts.Author{Principal: "ann", Name: "Ann"}, contracts.Author{Principal: "bob", Name: "Bob"}

func TestPeopleAreTheLastOnes(t *testing.T) {
	s := session.New()
	if st := s.Snapshot(0).State; st.People != nil {
		t.Errorf("at first: got %+v, want none", st.People)
	}
	for i := range contracts.MaxPeople + 3 {
		apply(s,
			&contracts.PromptAccepted{PromptID: fmt.Sprint(i), Content: strings.Repeat("é", contracts.MaxPromptRecord), Author: ann},
			&contracts.ServerRequestResolved{RequestID: fmt.Sprint(i), Resolution: contracts.VerdictDenied, Author: &bob},
			&contracts.ControlChanged{From: &ann, To: &bob, Reason: contracts.LeaseTakenOver},
		)
	}
	got := s.Snapshot(0).State.People
	if len(got.Prompts) != contracts.MaxPeople || got.Prompts[0].PromptID != "3" || len(got.Answers) != contracts.MaxPeople || got.Answers[0].RequestID != "3" {
		t.Errorf("got %+v, want the last %d", got, contracts.MaxPeople)
	}
	if p := got.Prompts[0]; len(p.Content) != contracts.MaxPromptRecord || !p.Truncated || p.Author.Name != "Ann" {
		t.Errorf("got %d bytes, truncated %t, by %+v", len(p.Content), p.Truncated, p.Author)
	}
	if got.Controller.Name != "Bob" {
		t.Errorf("got controller %+v, want Bob", got.Controller)
	}
	before := wire(t, s.Snapshot(0))
	apply(s, &contracts.ControlChanged{From: &bob, Reason: contracts.LeaseReleased}, &contracts.PromptAccepted{PromptID: "late"})
	if got.Controller == nil || got.Prompts[0].PromptID != "3" {
		t.Errorf("a snapshot changed: got %+v", got)
	}
	if now := s.People(); now.Controller != nil || now.Prompts[contracts.MaxPeople-1].PromptID != "late" {
		t.Errorf("got %+v, want the late prompt and no controller", now)
	}
	if before == wire(t, s.Snapshot(0)) {
		t.Error("the state did not change")
	}
}

func TestSnapshotWithoutPeopleLeavesThem(t *testing.T) {
	s := fold(&contracts.PromptAccepted{PromptID: "one", Author: ann}, &contracts.ControlChanged{To: &ann, Reason: contracts.LeaseGranted})
	people := s.People()
	plain := session.New().Snapshot(4)
	s.Restore(plain)
	if got := s.Snapshot(4).State.People; !reflect.DeepEqual(got, people) {
		t.Errorf("got %+v, want %+v", got, people)
	}
	plain.State.People = &contracts.People{Answers: []contracts.AnswerRecord{{RequestID: "r"}}}
	s.Restore(plain)
	if got := s.People(); len(got.Prompts) != 0 || len(got.Answers) != 1 || got.Controller != nil {
		t.Errorf("got %+v, want those of the snapshot", got)
	}
}

func TestRestoredPeopleAreBounded(t *testing.T) {
	snap := session.New().Snapshot(0)
	snap.State.People = &contracts.People{
		Prompts: make([]contracts.PromptRecord, contracts.MaxPeople+1), Answers: make([]contracts.AnswerRecord, contracts.MaxPeople+1),
	}
	snap.State.People.Prompts[1].Content = strings.Repeat("x", contracts.MaxPromptRecord+1)
	s := session.New()
	s.Restore(snap)
	got := s.People()
	if len(got.Prompts) != contracts.MaxPeople || len(got.Answers) != contracts.MaxPeople || len(got.Prompts[0].Content) != contracts.MaxPromptRecord {
		t.Errorf("got %d prompts and %d answers, the first of %d bytes", len(got.Prompts), len(got.Answers), len(got.Prompts[0].Content))
	}
}

func TestQueueIsTheLastOne(t *testing.T) {
	long := contracts.QueuedPrompt{PromptID: "b", Content: strings.Repeat("x", contracts.MaxPromptRecord+1), Author: ann}
	ev := &contracts.QueueChanged{Prompts: make([]contracts.QueuedPrompt, contracts.MaxQueued+1), Held: true}
	ev.Prompts[0] = long
	s := fold(&contracts.QueueChanged{Prompts: []contracts.QueuedPrompt{{PromptID: "a"}}}, ev)
	got := s.People()
	if p := got.Queue[0]; len(got.Queue) != contracts.MaxQueued || !got.QueueHeld || len(p.Content) != contracts.MaxPromptRecord || !p.Truncated {
		t.Errorf("got %d prompts, held %t, the first of %d bytes", len(got.Queue), got.QueueHeld, len(p.Content))
	}
	if !reflect.DeepEqual(ev.Prompts[0], long) {
		t.Error("the event was changed")
	}
	again := session.New()
	again.Restore(s.Snapshot(0))
	if !reflect.DeepEqual(again.People(), got) {
		t.Errorf("restored: got %+v, want %+v", again.People(), got)
	}
	apply(s, &contracts.QueueChanged{Prompts: []contracts.QueuedPrompt{}})
	if now := s.People(); len(now.Queue) > 0 || now.QueueHeld || len(got.Queue) != contracts.MaxQueued {
		t.Errorf("got %+v, and the state before %+v", now, got)
	}
}
