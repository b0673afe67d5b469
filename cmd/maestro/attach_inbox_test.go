package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// The fake driver is the server of its session as well.

func (d *fakeDriver) Connections(_ context.Context, session string) (*contracts.ConnectionList, error) {
	_, err := d.call("connections " + session)
	return &d.connections, err
}

func (d *fakeDriver) Inbox(context.Context) (*contracts.Inbox, error) {
	_, err := d.call("inbox")
	return &d.inbox, err
}

func (d *fakeDriver) AnswerQuestion(_ context.Context, session, request string, a contracts.InboxAnswer) (*contracts.InboxReceipt, error) {
	text, err := json.Marshal(a)
	if err == nil {
		_, err = d.call("answer " + session + " " + request + " " + string(text))
	}
	return &contracts.InboxReceipt{Ended: !d.voting}, err
}

func (d *fakeDriver) CreateShare(_ context.Context, session string, r contracts.ShareRequest) (*contracts.ShareAnswer, error) {
	text, err := json.Marshal(r)
	if err == nil {
		_, err = d.call("create " + session + " " + string(text))
	}
	return &contracts.ShareAnswer{ShareID: "aa", Token: "mshare_secret", Role: r.Role, ExpiresAt: shareEnd}, err
}

func (d *fakeDriver) Shares(_ context.Context, session string) (*contracts.ShareList, error) {
	_, err := d.call("shares " + session)
	return &d.shares, err
}

func (d *fakeDriver) RevokeShare(_ context.Context, session, share string) error {
	_, err := d.call("revoke " + session + " " + share)
	return err
}

const shareEnd = "2026-05-03T10:59:00.000Z"

func TestWhoListsThoseConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{view: true}, true, connectedAs("conn_me", "conn_bob"))
		at := clock(shareEnd)
		entry := func(id, name string, role contracts.Role) contracts.ConnectionEntry {
			return contracts.ConnectionEntry{Author: contracts.Author{Name: name, ConnectionID: id, ClientInfo: &contracts.ClientInfo{Name: attachName}},
				Role: role, Since: shareEnd, Attached: true}
		}
		bob, eve := entry("conn_bob", "owner", contracts.RoleController), entry("conn_eve", "Eve\x1b[31m", contracts.RoleApprover)
		bob.Author.ClaimedName, bob.Controller, eve.Attached = "Bob", true, false
		tm.driver.connections = contracts.ConnectionList{Count: 5, Connections: []contracts.ConnectionEntry{
			bob, entry("conn_me", "owner", contracts.RoleViewer), eve,
		}}
		tm.typeLine("/who")
		tm.wantShown("  controller since " + at + "  owner (Bob), conn_bob, in control\n" +
			"  viewer     since " + at + "  owner, you\n" +
			"  approver   since " + at + "  Eve, conn_eve, away\n  and 2 more\n")
		tm.wantCalls("connections sess_a")
		tm.tell(client.Update{Kind: client.KindControl, Control: &contracts.LeaseChange{}})
		tm.driver.connections = contracts.ConnectionList{}
		tm.typeLine("/who")
		tm.wantShown("-- nobody is in control\n")
		tm.driver.refuse = &client.CloseError{Code: 1006, Err: errors.New("dial: refused")}
		tm.typeLine("/who")
		tm.wantShown("! who: no answer from the server: dial: refused\n")
		missing := &contracts.Error{Code: contracts.CodeNotFound, Message: "route not found"} // a hosted runner
		tm.driver.refuse = &client.CloseError{Code: 4404, Status: 404, Reason: missing.Code, Err: missing}
		tm.typeLine("/inbox")
		tm.wantShown("! inbox: this server does not offer that\n")
	})
}

// inboxOf is an inbox with an approval of another session, one of this session whose
// text is cut, and a question with two parts.
var inboxOf = contracts.Inbox{Questions: []contracts.InboxQuestion{
	{SessionID: "docs", SessionTitle: "Write\x07 the docs", RequestID: "q1", RequestType: contracts.RequestApproval, Tool: "bash",
		Reason: "builds", Display: `bash {"command":"make"}`, Digest: "sha256:1", AskedAt: shareEnd, Votes: 1, VotesNeeded: 2},
	{SessionID: "sess_a", RequestID: "q2", RequestType: contracts.RequestApproval, Tool: "bash", Display: `bash {"command":"ec\u202eho`,
		Digest: "sha256:2", Escaped: true, Truncated: true, AskedAt: shareEnd},
	{SessionID: "docs", RequestID: "q3", RequestType: contracts.RequestUserInput, Tool: "ask_user",
		Display: `ask_user {"questions":[{"header":"H","question":"One?","options":[{"label":"red"},{"label":"blue"}]},{"header":"I","question":"Two?"}]}`},
}}

func TestInboxIsListedAndAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_bob")) // an answer needs no control
		tm.driver.inbox = inboxOf
		tm.typeLine("/inbox 1")
		tm.wantShown("! the inbox has no question 1: /inbox lists it\n")
		tm.typeLine("/inbox")
		for _, want := range []string{
			" 1 docs (Write the docs): bash $ make (1 of 2 have approved)\n",
			" 2 this session: bash {\"command\":\"ec\\u202eho\n", "-- /inbox 1 shows the first one, then /inbox 1 y approves it\n",
		} {
			if !strings.Contains(tm.out.String(), want) {
				t.Errorf("got\n%s\nwant a line %q", tm.out, want)
			}
		}
		shown := "-- question 1, asked " + clock(shareEnd) + " in docs (1 of 2 have approved)\n" +
			"? approval: bash - builds\n  $ make\n  /inbox 1 and: y = approve, n [reason] = deny\n"
		tm.typeLine("/inbox 1 y")
		tm.wantShown(shown + "! not sent: this is the whole request. The same line again approves it\n")
		tm.typeLine("/inbox 1")
		tm.wantShown(shown)
		tm.driver.voting = true
		tm.typeLine("/inbox 1 y")
		tm.wantShown("-- your vote counts; question 1 needs more votes\n")
		tm.driver.voting = false
		tm.typeLine("/inbox 1 n not today")
		tm.wantShown("-- question 1 is answered\n")
		tm.typeLine("/inbox 2")
		if got := tm.out.String(); !strings.Contains(got, "hidden characters") || !strings.Contains(got, "only the beginning of the request") {
			t.Errorf("got\n%s\nwant to be warned", got)
		}
		tm.typeLine("/inbox 2 y")
		tm.wantShown("! " + errCutQuestion.Error() + "\n")
		tm.typeLine("/inbox 2 n")
		tm.typeLine("/inbox 3 2")
		tm.wantShown("-- next for /inbox 3: answer 2 of 2: \n")
		tm.typeLine("/inbox 3 later")
		tm.typeLine("/inbox 1 perhaps")
		tm.wantShown("! want a decision: y, or n and a reason\n")
		tm.wantCalls("inbox", `answer docs q1 {"approved":true,"digest":"sha256:1"}`,
			`answer docs q1 {"approved":false,"note":"not today","digest":"sha256:1"}`,
			`answer sess_a q2 {"approved":false,"digest":"sha256:2"}`,
			`answer docs q3 {"content":[{"type":"text","text":"H: blue\nI: later"}]}`)
		tm.driver.refuse = &contracts.Error{Code: contracts.CodeRequestNotFound, Metadata: map[string]string{"resolution": "denied"}}
		tm.typeLine("/inbox 1 y")
		tm.wantShown("! inbox: the question has ended already: denied\n")
		tm.driver.refuse, tm.driver.inbox = nil, contracts.Inbox{}
		tm.typeLine("/inbox")
		tm.wantShown("-- no question is open\n")
	})
}

// A viewer lists the inbox if the server allows it, and never answers. An approver does.
func TestInboxNeedsTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{view: true}, true, connectedAs("conn_me", ""))
		tm.driver.inbox = inboxOf
		tm.typeLine("/inbox")
		tm.typeLine("/inbox 1 y")
		tm.wantShown("! you only watch: attach without --view to act\n")
		tm.typeLine("/share viewer")
		tm.wantShown("! you only watch: attach without --view to act\n")
		tm.wantCalls("inbox")
	})
	synctest.Test(t, func(t *testing.T) {
		as := connectedAs("conn_me", "conn_bob")
		as.Attached.Role = contracts.RoleApprover
		tm := open(t, attachFlags{approve: true}, true, as)
		tm.driver.inbox = inboxOf
		tm.typeLine("/inbox")
		tm.typeLine("/inbox 1")
		tm.typeLine("/inbox 1 y")
		tm.wantCalls("inbox", `answer docs q1 {"approved":true,"digest":"sha256:1"}`)
	})
}

func TestSharesAreMadeListedAndRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", "conn_bob"))
		tm.a.shareURL = "http://here/"
		for _, line := range []string{"/share", "/share king", "/share list all"} {
			tm.typeLine(line)
			tm.wantShown("! " + errShareUsage.Error() + "\n")
		}
		tm.typeLine("/share revoke 1")
		tm.wantShown("! /share revoke takes a number: /share list shows them\n")
		tm.typeLine("/share approver 8h Ann Lee")
		tm.wantShown("-- whoever has this link is approver of this session until " + clock(shareEnd) + ": Ann Lee\n" +
			"http://here/#share=mshare_secret\n-- in a terminal: maestro attach 'LINK'\n")
		tm.typeLine("/share viewer 31d")
		tm.wantShown("! /share viewer: want a time from 1s to 30d\n")
		tm.typeLine("/share viewer 7d")
		tm.typeLine("/share viewer wall 1h")
		tm.driver.shares = contracts.ShareList{Shares: []contracts.ShareAnswer{
			{ShareID: "aa", Role: contracts.RoleApprover, Label: "Ann\x07", ExpiresAt: shareEnd, Uses: 3, LastUsedAt: shareEnd, LastUsedFrom: "::1"},
			{ShareID: "bb", Role: contracts.RoleViewer, ExpiresAt: shareEnd},
		}}
		tm.typeLine("/share list")
		tm.wantShown(" 1 approver   until " + clock(shareEnd) + ", used 3 times, last " + clock(shareEnd) + " from ::1: Ann\n" +
			" 2 viewer     until " + clock(shareEnd) + ", not used\n")
		tm.typeLine("/share revoke 2")
		tm.wantShown("-- share 2 is revoked, and its connections have ended\n")
		tm.wantCalls(`create sess_a {"role":"approver","expiresInSeconds":28800,"label":"Ann Lee"}`,
			`create sess_a {"role":"viewer","expiresInSeconds":604800}`, `create sess_a {"role":"viewer","label":"wall 1h"}`, "shares sess_a", "revoke sess_a bb")
		tm.driver.refuse = &client.CloseError{Code: 4403, Status: 403, Reason: contracts.CodeAccessDenied, Message: "a share cannot share"}
		tm.typeLine("/share viewer")
		tm.wantShown("! share: a share cannot share\n")
	})
}
