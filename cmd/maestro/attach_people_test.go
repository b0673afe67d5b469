//go:build unix

package main

import (
	"iter"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// An owner gives a colleague a link, who answers a question in the inbox, and takes the
// link back.
func TestColleagueAnswersInTheInboxOfATerminal(t *testing.T) {
	t.Parallel()
	r := serving(t)
	server, err := client.NewServer(r.ready.BaseURL, client.WithTokenFile(r.ready.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	inbox, stop := iter.Pull2(server.FollowInbox(t.Context()))
	defer stop()
	next := func() client.ListUpdate[contracts.InboxEvent] {
		t.Helper()
		u, err, _ := inbox()
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	if u := next(); u.Event == nil || u.Event.Inbox == nil || len(u.Event.Inbox.Questions) != 0 {
		t.Fatalf("got %+v, want an empty list", u)
	}
	owner := r.attachHere(t)
	owner.types("/share approver 8h Ann\r")
	owner.shows("whoever has this link is approver of this session until ")
	owner.shows(": Ann")
	owner.shows("maestro attach 'LINK'")
	link := regexp.MustCompile(`http://\S+/#share=mshare_\S+`).FindString(owner.screen.String())
	if !strings.HasPrefix(link, r.ready.BaseURL+"/#") {
		t.Fatalf("got link %q, want one to the server", link)
	}

	ann := onTerminal(t, program(t, "attach", link))
	ann.shows("to watch and answer questions")
	ann.shows("watching > ")
	owner.types("/who\r")
	owner.shows("owner, you, in control")
	owner.shows("approver   since ")
	owner.shows("Ann, conn_")
	owner.types("echo out of the inbox\r")
	ann.shows("approve? [y/n] ")
	if u := next(); u.Event == nil || u.Event.Question == nil { // the list is up to 100 ms behind
		t.Fatalf("got %+v, want the question", u)
	}
	ann.types("/inbox\r")
	ann.shows(" 1 this session: bash $ echo out of the inbox")
	ann.types("/inbox 1\r")
	ann.shows("/inbox 1 and: y = approve")
	ann.types("/inbox 1 y\r")
	ann.shows("question 1 is answered")
	owner.shows("approved by Ann")
	owner.shows("  | out of the inbox")
	if u := next(); u.Event == nil || u.Event.Ended == nil || u.Event.Ended.Author == nil || u.Event.Ended.Author.Name != "Ann" {
		t.Fatalf("got %+v, want the end by Ann", u)
	}
	ann.types("/inbox\r")
	ann.shows("no question is open")

	owner.types("/share list\r")
	owner.shows(" 1 approver   until ")
	owner.types("/share revoke 1\r")
	owner.shows("share 1 is revoked")
	ann.shows("does not accept the link: it has expired or was revoked")
	if err := ann.ends(); exitCode(t, err) != exitFailure {
		t.Errorf("got %v, want a failure", err)
	}
}
