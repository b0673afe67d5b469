package overview_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/overview"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

var (
	bob      = contracts.Caller{Principal: contracts.Principal{ID: "bob", Name: "Bob"}}
	approver = contracts.Caller{Principal: contracts.Principal{ID: "ann", Role: contracts.RoleApprover}}
	yes      = true
)

// enterAble opens a session whose controller can answer questions of every type.
func (l *library) enterAble(id string) *guest {
	g := l.enter(id)
	g.connects(contracts.AttachRequest{
		Role: contracts.RoleController, Capabilities: &contracts.AttachCapabilities{ServerRequests: contracts.RequestTypes()},
	})
	l.prompts(g, "go in "+id)
	return g
}

// poses asks a question in the run of a session.
func (l *library) poses(g *guest, kind contracts.RequestType, id string) {
	a := l.agents[g.SessionID()]
	a.orders <- a.ask(question(kind, id))
	synctest.Wait()
}

// followInbox opens a stream of the inbox.
func (l *library) followInbox(by contracts.Caller) *listReader {
	l.t.Helper()
	conn, peer := memconn.New(memconn.Options{Stream: true})
	r := &listReader{peer, l.t, make(chan error, 1)}
	go func() {
		err := l.FollowInbox(context.Background(), conn, by)
		conn.Close(nil)
		r.ended <- err
	}()
	if got, err := peer.Next(l.t.Context()); err != nil || got != memconn.Opening {
		l.t.Fatalf("first line: got %s, %v, want %s", got, err, memconn.Opening)
	}
	return r
}

// saw returns the events of the inbox that have arrived, each in a few words.
func (r *listReader) saw() string {
	r.t.Helper()
	var all []string
	for _, line := range r.lines() {
		var ev contracts.InboxEvent
		if err := (&contracts.Decoder{Strict: true}).Body([]byte(line), &ev); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		all = append(all, inboxWords(&ev))
	}
	return strings.Join(all, ", ")
}

// inboxWords returns an event of the inbox in a few words.
func inboxWords(ev *contracts.InboxEvent) string {
	switch ev.Type {
	case "questions":
		return "list " + idsOf(ev.Inbox)
	case "question":
		return fmt.Sprintf("%s/%s", ev.Question.SessionID, ev.Question.RequestID)
	}
	by := "nobody"
	if ev.Ended.Author != nil {
		by = ev.Ended.Author.Name
	}
	return fmt.Sprintf("%s/%s %s by %s", ev.Ended.SessionID, ev.Ended.RequestID, ev.Ended.Resolution, by)
}

func idsOf(list *contracts.Inbox) string {
	var ids []string
	for _, q := range list.Questions {
		ids = append(ids, q.SessionID+"/"+q.RequestID)
	}
	return strings.Join(ids, " ")
}

func (l *library) wantInbox(by contracts.Caller, want string) *contracts.Inbox {
	l.t.Helper()
	l.settled()
	list, err := l.Inbox(by)
	if err != nil || idsOf(list) != want {
		l.t.Fatalf("inbox of %s: got %v, %v, want %s", by.Principal.ID, list, err, want)
	}
	return list
}

// answers answers a question of the inbox, and opens its session.
func (l *library) answers(by contracts.Caller, session string, a contracts.ServerRequestResponse) error {
	h, _, err := l.hubs.Get(l.t.Context(), hub.Key{ID: session}, hub.OpenOptions{})
	if err != nil {
		return err
	}
	_, _, err = h.Answer(&a, by)
	return err
}

// One scope, however many questions it has, leaves room for those of others.
func TestQuestionsOfOneScopeLeaveRoomForOthers(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		for i := range 300 {
			var list []contracts.InboxQuestion
			for j := range 16 {
				list = append(list, contracts.InboxQuestion{RequestID: fmt.Sprint("q", j), RequestType: contracts.RequestApproval})
			}
			text, err := json.Marshal(map[string]any{"pending": len(list), "questions": list})
			if err != nil {
				t.Fatal(err)
			}
			key := hub.Key{Scope: "mallory", ID: fmt.Sprint("m", i)}
			l.mu.Lock()
			l.journals[key], l.texts[key] = journal.NewMemory(journal.MemoryOptions{}), string(text)
			l.mu.Unlock()
		}
		l.restart()
		l.settled()
		mallory := contracts.Caller{Principal: contracts.Principal{ID: "mallory", Scope: "mallory"}}
		if list, err := l.Inbox(mallory); err != nil || len(list.Questions) != 256 || !list.Truncated {
			t.Errorf("got %d questions, truncated %t, %v", len(list.Questions), list.Truncated, err)
		}
		a := l.enterAble("a")
		l.poses(a, contracts.RequestApproval, "q1")
		if list := l.wantInbox(bob, "a/q1"); list.Truncated {
			t.Error("got a list that leaves out questions")
		}
	})
}

// A server that is killed right after a question lists it at its next start.
func TestQuestionsAreStoredAtOnce(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		a := l.enterAble("a")
		time.Sleep(time.Minute)
		stored := func() string {
			time.Sleep(200 * time.Millisecond)
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.texts[hub.Key{ID: "a"}]
		}
		l.poses(a, contracts.RequestApproval, "q1")
		if text := stored(); !strings.Contains(text, `"request_id":"q1"`) {
			t.Errorf("got %s stored, want the question", text)
		}
		if err := l.answers(bob, "a", contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes}); err != nil {
			t.Fatal(err)
		}
		if text := stored(); strings.Contains(text, "q1") {
			t.Errorf("got %s stored, want no question", text)
		}
	})
}

func TestInboxOfAllSessions(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		a, b := l.enterAble("a"), l.enterAble("b")
		alice, other := l.followInbox(contracts.Caller{Principal: theOwner}), l.followInbox(bob)
		l.poses(a, contracts.RequestApproval, "q1")
		l.settled()
		l.poses(b, contracts.RequestUserInput, "q2")
		l.poses(b, contracts.RequestClientTool, "program")
		list := l.wantInbox(bob, "a/q1 b/q2")
		q := list.Questions[0]
		if q.SessionTitle != "go in a" || q.Tool != "bash" || !strings.HasPrefix(q.Digest, "sha256:") || q.Display == "" || q.ExpiresAt <= q.AskedAt {
			t.Errorf("got %+v, want what is needed to decide", q)
		}
		wrong := contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes, Digest: "sha256:other"}
		wantCode(t, l.answers(bob, "a", wrong), contracts.CodeDigestMismatch)
		wantCode(t, l.answers(bob, "a", contracts.ServerRequestResponse{RequestID: "q1"}), contracts.CodeBadRequest)
		wantCode(t, l.answers(bob, "b", contracts.ServerRequestResponse{RequestID: "program", Content: textOf("x")}), contracts.CodeBadRequest)
		if err := l.answers(bob, "a", contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes, Digest: q.Digest}); err != nil {
			t.Fatal(err)
		}
		l.settled()
		if err := l.answers(bob, "b", contracts.ServerRequestResponse{RequestID: "q2", Content: textOf("blue")}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, l.answers(bob, "a", contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes}), contracts.CodeRequestNotFound)
		l.wantInbox(bob, "")
		for _, r := range []*listReader{alice, other} {
			if got, want := r.saw(), "list , a/q1, b/q2, a/q1 approved by Bob, b/q2 answered by Bob"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			r.Close()
		}
	})
}

func textOf(text string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: text}}
}

func TestOneOfManyAnswersInTheInboxCounts(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enterAble("a")
		l.poses(g, contracts.RequestApproval, "q1")
		l.settled()
		stream := l.followInbox(bob)
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			count int
		)
		for i := range 50 {
			wg.Go(func() {
				by := contracts.Caller{Principal: contracts.Principal{ID: fmt.Sprint("p", i)}}
				if err := l.answers(by, "a", contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes}); err == nil {
					mu.Lock()
					defer mu.Unlock()
					count++
				}
			})
		}
		wg.Wait()
		l.settled()
		if got := l.agents["a"].learned(); count != 1 || len(got) != 1 {
			t.Errorf("got %d answers that count and %d outcomes, want 1 of each", count, len(got))
		}
		if got := stream.saw(); strings.Count(got, "approved by p") != 1 {
			t.Errorf("got %s, want one ending", got)
		}
		stream.Close()
	})
}

func TestQuestionsOfSessionsAtRestAreInTheInbox(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enterAble("a")
		l.poses(g, contracts.RequestApproval, "q1")
		before := l.wantInbox(bob, "a/q1").Questions[0]
		if waiting, oldest := l.AtRest(); len(waiting) != 0 || !oldest.IsZero() {
			t.Errorf("got %v since %s at rest, want none of an open session", waiting, oldest)
		}
		l.restart()
		after := l.wantInbox(bob, "a/q1").Questions[0]
		if waiting, oldest := l.AtRest(); len(waiting) != 1 || waiting[contracts.RequestApproval] != 1 || oldest.UTC().Format("2006-01-02T15:04:05.000Z") != before.AskedAt {
			t.Errorf("got %v since %s at rest, want one approval since %s", waiting, oldest, before.AskedAt)
		}
		wantEqual(t, "at rest", after, before)
		if l.opened != 0 {
			t.Errorf("got %d sessions opened, want none", l.opened)
		}
		stream := l.followInbox(bob)
		if err := l.answers(bob, "a", contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes, Digest: after.Digest}); err != nil {
			t.Fatal(err)
		}
		l.wantInbox(bob, "")
		if waiting, _ := l.AtRest(); len(waiting) != 0 {
			t.Errorf("got %v at rest, want the answer to count", waiting)
		}
		if got, want := stream.saw(), "list a/q1, a/q1 approved by Bob"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		stream.Close()
	})
}

func TestInboxShowsWhatAPrincipalMayAnswer(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		for _, id := range []string{"a", "b"} {
			g := l.enterAble(id)
			l.poses(g, contracts.RequestApproval, "q1")
			l.poses(g, contracts.RequestToolRetry, "q2")
		}
		all := "a/q1 a/q2:retry:1 b/q1 b/q2:retry:1"
		l.wantInbox(bob, all)
		l.wantInbox(approver, "a/q1 b/q1")
		l.wantInbox(contracts.Caller{Principal: theOwner, Role: contracts.RoleApprover}, "a/q1 b/q1")
		l.wantInbox(contracts.Caller{Principal: contracts.Principal{ID: "share", SessionID: "b"}}, "b/q1 b/q2:retry:1")
		l.wantInbox(contracts.Caller{Principal: contracts.Principal{ID: "stranger", Scope: "elsewhere"}}, "")
		for _, viewer := range []contracts.Caller{
			{Principal: contracts.Principal{ID: "v", Role: contracts.RoleViewer}}, {Principal: theOwner, Role: contracts.RoleViewer},
			{Principal: contracts.Principal{ID: "v", Role: contracts.RoleApprover}, Role: contracts.RoleViewer},
		} {
			_, err := l.Inbox(viewer)
			wantCode(t, err, contracts.CodeAccessDenied)
			wantCode(t, l.FollowInbox(t.Context(), nil, viewer), contracts.CodeAccessDenied)
			wantCode(t, l.answers(viewer, "a", contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes}), contracts.CodeAccessDenied)
		}
		retry := contracts.ServerRequestResponse{RequestID: "q2:retry:1", DecisionAction: contracts.RetryActionRetry}
		wantCode(t, l.answers(approver, "a", retry), contracts.CodeAccessDenied)
		stream := l.followInbox(approver)
		l.settled()
		if !l.Looking("ann") || l.Looking("owner") {
			t.Error("got another reader of the inbox, want ann alone")
		}
		own := l.followInbox(contracts.Caller{Principal: contracts.Principal{ID: "key_1"}})
		if !l.Looking("owner") {
			t.Error("the owner reads the inbox, want it noticed")
		}
		own.Close()
		if err := l.answers(bob, "a", retry); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Delete(t.Context(), hub.Key{ID: "b"}, contracts.Caller{Principal: theOwner}); err != nil {
			t.Fatal(err)
		}
		l.wantInbox(bob, "a/q1")
		if got, want := stream.saw(), "list a/q1 b/q1, b/q1  by nobody"; got != want {
			t.Errorf("an approver: got %s, want %s", got, want)
		}
		stream.Close()
	})
}

func TestManyQuestionsInTheInbox(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		for _, id := range []string{"a", "b"} {
			g := l.enterAble(id)
			for i := range 200 {
				l.poses(g, contracts.RequestApproval, fmt.Sprintf("%s%03d", id, i))
			}
		}
		l.settled()
		list, err := l.Inbox(bob)
		if err != nil || len(list.Questions) != 256 || !list.Truncated || list.Questions[0].RequestID != "a000" {
			t.Fatalf("got %d questions, %v, want the 256 oldest", len(list.Questions), err)
		}
		l.restart()
		l.settled()
		if list, err = l.Inbox(bob); err != nil || len(list.Questions) != 32 {
			t.Errorf("at rest: got %d questions, %v, want 16 of each session", len(list.Questions), err)
		}
	})
}

func TestEachProcessNotifiesOfAnOpenQuestionOnce(t *testing.T) {
	var told []string
	asked := map[string]bool{}
	options := overview.Options{Notify: func(_ string, ev contracts.InboxEvent) {
		told = append(told, ev.Type)
		if ev.Question != nil {
			asked[ev.Question.AskedAt] = true
		}
	}}
	inLibrary(t, options, func(t *testing.T, l *library) {
		g := l.enterAble("a")
		l.poses(g, contracts.RequestApproval, "q1")
		l.settled()
		l.restart()
		l.enter("a")
		l.settled()
		if err := l.answers(bob, "a", contracts.ServerRequestResponse{RequestID: "q1", Approved: &yes}); err != nil {
			t.Fatal(err)
		}
		l.settled()
		wantEqual(t, "told", told, []string{"question", "question", "ended"})
		wantEqual(t, "times of the question", len(asked), 1)
	})
}
