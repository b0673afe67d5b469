package session_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

func TestStateListsDigestsAndVotesOfOpenRequests(t *testing.T) {
	s := session.New()
	rhea := contracts.Author{Principal: "rhea", Name: "Rhea"}
	for _, id := range []string{"a", "b"} {
		s.Apply(&contracts.ServerRequest{RequestID: id, CallID: "call_" + id, RequestType: contracts.RequestApproval, Tool: "bash", Args: json.RawMessage(`{}`)})
		s.Apply(&contracts.RequestShown{RequestID: id, Digest: "sha256:" + id, Display: strings.Repeat("é", contracts.MaxPromptRecord), VotesNeeded: 2})
	}
	s.Apply(&contracts.RequestVoted{RequestID: "a", Approved: true, Author: rhea, Votes: 1, VotesNeeded: 2})
	before := s.People().Requests
	if len(before) != 2 || before[0].Digest != "sha256:a" || len(before[1].Votes) != 0 || !before[0].Truncated || len(before[0].Display) > contracts.MaxPromptRecord ||
		!reflect.DeepEqual(before[0].Votes, []contracts.Author{rhea}) {
		t.Errorf("got %+v, want both requests, cut, with the vote for a", before)
	}
	text, err := contracts.EncodeSnapshot(s.Snapshot(7), 0)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := (&contracts.Decoder{}).Snapshot(text)
	if err != nil {
		t.Fatal(err)
	}
	again := session.New()
	again.Restore(snap)
	if got := again.People().Requests; !reflect.DeepEqual(got, before) {
		t.Errorf("after a snapshot: got %+v, want %+v", got, before)
	}
	s.Apply(&contracts.ServerRequestResolved{RequestID: "a", CallID: "call_a", RequestType: contracts.RequestApproval, Resolution: contracts.VerdictApproved})
	if got := s.People().Requests; len(got) != 1 || got[0].RequestID != "b" {
		t.Errorf("after the end of a: got %+v, want b", got)
	}
}
