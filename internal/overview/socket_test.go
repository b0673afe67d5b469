package overview_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/overview"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A socketPeer is the client's end of a socket of lists.
type socketPeer struct {
	*memconn.Peer
	t     *testing.T
	ended chan error // what Serve returned
}

// connect opens a socket.
func (l *library) connect(by contracts.Caller) *socketPeer {
	conn, peer := memconn.New(memconn.Options{})
	p := &socketPeer{peer, l.t, make(chan error, 1)}
	go func() {
		err := l.Serve(context.Background(), conn, by)
		conn.Close(nil)
		p.ended <- err
	}()
	return p
}

func (p *socketPeer) sends(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if err := p.Send(text); err != nil {
			p.t.Fatalf("send %s: %v", text, err)
		}
	}
	synctest.Wait()
}

// frames returns the frames that have arrived.
func (p *socketPeer) frames() (list []contracts.Frame) {
	p.t.Helper()
	for _, line := range arrived(p.Peer) {
		if line == "" {
			continue
		}
		f, err := (&contracts.Decoder{Strict: true}).ServerFrame([]byte(line))
		if err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		list = append(list, f)
	}
	return list
}

// saw returns the frames that have arrived, each in a few words.
func (p *socketPeer) saw() string {
	p.t.Helper()
	var all []string
	for _, f := range p.frames() {
		switch f := f.(type) {
		case *contracts.ListEnvelope:
			if f.Inbox != nil {
				all = append(all, inboxWords(f.Inbox))
				continue
			}
			word := f.Sessions.Type
			if f.Sessions.Session != nil {
				word += " " + f.Sessions.Session.SessionID
			}
			all = append(all, word)
		case *contracts.Result:
			word := fmt.Sprintf("result %d", f.Seq)
			if f.Ended != nil {
				word += fmt.Sprintf(" ended %t", *f.Ended)
			}
			all = append(all, word)
		case *contracts.Refusal:
			all = append(all, fmt.Sprintf("error %d %s", f.Seq, f.Code))
		default:
			all = append(all, f.FrameType())
		}
	}
	return strings.Join(all, ", ")
}

func (p *socketPeer) wants(want string) {
	p.t.Helper()
	if got := p.saw(); got != want {
		p.t.Errorf("got %s, want %s", got, want)
	}
}

// approval answers an approval on a socket.
func approval(id, session, request, digest string) string {
	return fmt.Sprintf(`{"type":"ws.answer","id":%q,"session_id":%q,"message":{"type":"server_request_response",`+
		`"request_id":%q,"request_type":"approval","approved":true,"digest":%q}}`, id, session, request, digest)
}

func TestSocketCarriesTheListsThatItFollows(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		a := l.enterAble("a")
		l.settled()
		p := l.connect(bob)
		defer p.Close()
		p.sends(`{"type":"ws.ping","id":"p"}`, `{"type":"ws.follow","id":"f","lists":["inbox","sessions"]}`)
		p.wants("ws.pong, result 2, list , sessions")
		l.poses(a, contracts.RequestApproval, "q1")
		l.settled()
		p.wants("a/q1, session a")
		digest := l.wantInbox(bob, "a/q1").Questions[0].Digest
		p.sends(approval("x", "a", "q1", "sha256:other"), approval("y", "a", "q1", digest), approval("z", "a", "q1", digest))
		l.settled()
		got := strings.Split(p.saw(), ", ")
		slices.Sort(got) // an answer may come before or after its effect on the lists
		wantEqual(t, "answers and lists", slices.Compact(got), []string{
			"a/q1 approved by Bob", "error 3 digest_mismatch", "error 5 request_not_found", "heartbeat", "result 4 ended true", "session a",
		})
		p.sends(`{"type":"ws.follow","lists":["inbox"]}`, `{"type":"ws.follow","lists":["inbox"]}`)
		l.poses(a, contracts.RequestApproval, "q2")
		l.settled()
		p.wants("result 6, result 7, a/q2")
		p.sends(`{"type":"ws.follow","lists":[]}`)
		l.ends(a, nil)
		l.settled()
		p.wants("result 8")
		p.sends(`{"type":"ws.follow","lists":["sessions"],"limit":1}`, `{"type":"ws.follow","lists":["sessions"],"limit":2}`)
		p.wants("result 9, sessions, result 10, sessions")
		p.sends(`{"type":"ws.bye"}`)
		if err := <-p.ended; err != nil {
			t.Errorf("after ws.bye: got %v", err)
		}
	})
}

func TestOneOfManyAnswersOnSocketsCounts(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enterAble("a")
		l.poses(g, contracts.RequestApproval, "q1")
		l.restart()
		l.settled()
		peers := make([]*socketPeer, 50)
		for i := range peers {
			peers[i] = l.connect(contracts.Caller{Principal: contracts.Principal{ID: fmt.Sprint("p", i)}})
			peers[i].sends(`{"type":"ws.follow","lists":["inbox"]}`)
		}
		synctest.Wait()
		var wg sync.WaitGroup
		for _, p := range peers {
			wg.Go(func() {
				if err := p.Send(approval("x", "a", "q1", "")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		l.settled()
		count := 0
		for _, p := range peers {
			got := p.saw()
			if strings.Contains(got, "result 2 ended true") {
				count++
			} else if !strings.Contains(got, "error 2 request_not_found") {
				t.Errorf("got %s, want a refusal", got)
			}
			if !strings.HasPrefix(got, "result 1, list a/q1, ") || strings.Count(got, "a/q1 approved by p") != 1 {
				t.Errorf("got %s, want the question and who answered it", got)
			}
			p.Close()
		}
		if got := l.agents["a"].learned(); count != 1 || len(got) != 1 || l.opened != 1 {
			t.Errorf("got %d answers that count, %d outcomes, %d sessions opened, want 1 of each", count, len(got), l.opened)
		}
	})
}

func TestSocketRefuses(t *testing.T) {
	viewer := contracts.Caller{Principal: contracts.Principal{ID: "v", Role: contracts.RoleViewer}}
	share := contracts.Caller{Principal: contracts.Principal{ID: "s", SessionID: "b"}}
	answer := approval("x", "a", "q1", "")
	for name, tt := range map[string]struct {
		by         contracts.Caller
		text, want string
		closes     contracts.Code
	}{
		"inbox of a viewer":    {viewer, `{"type":"ws.follow","lists":["sessions","inbox"]}`, "error 1 access_denied", ""},
		"answer of a viewer":   {viewer, answer, "error 1 access_denied", ""},
		"owner as a viewer":    {contracts.Caller{Principal: theOwner, Role: contracts.RoleViewer}, answer, "error 1 access_denied", ""},
		"sessions of a viewer": {viewer, `{"type":"ws.follow","lists":["sessions"]}`, "result 1, sessions", ""},
		"retry of an approver": {approver, strings.NewReplacer("q1", "q2:retry:1", `"approval"`, `"tool_retry"`, `"approved":true`, `"decision_action":"retry"`).Replace(answer), "error 1 access_denied", ""},
		"other type":           {bob, strings.NewReplacer(`"approval"`, `"user_input"`).Replace(answer), "error 1 request_type_mismatch", ""},
		"other session":        {share, answer, "error 1 access_denied", ""},
		"unknown session":      {bob, approval("x", "zzz", "q1", ""), "error 1 stale_session", ""},
		"malformed session":    {bob, approval("x", "../a", "q1", ""), "error 1 bad_request", ""},
		"unknown question":     {bob, approval("x", "a", "q9", ""), "error 1 request_not_found", ""},
		"prompt in an answer":  {bob, `{"type":"ws.answer","id":"x","session_id":"a","message":{"type":"prompt","content":"hi"}}`, "error 1 bad_request", ""},
		"prompt":               {bob, `{"type":"prompt","content":"hi"}`, "error 1 bad_request", ""},
		"hello":                {bob, `{"type":"hello"}`, "error 1 bad_request", ""},
		"lease":                {bob, `{"type":"ws.take_control"}`, "error 1 bad_request", ""},
		"unknown list":         {bob, `{"type":"ws.follow","lists":["secrets"]}`, "error 1 bad_request", ""},
		"list twice":           {bob, `{"type":"ws.follow","lists":["inbox","inbox"]}`, "error 1 bad_request", ""},
		"too many":             {bob, `{"type":"ws.follow","lists":["sessions"],"limit":501}`, "error 1 bad_request", ""},
		"less than none":       {bob, `{"type":"ws.follow","lists":["sessions"],"limit":-1}`, "error 1 bad_request", ""},
		"unknown command":      {bob, `{"type":"nonsense"}`, "error 1 bad_request", ""},
		"no JSON":              {bob, `{"type":`, "error 1 bad_request", contracts.CodeBadRequest},
		"unknown frame":        {bob, `{"type":"ws.nonsense"}`, "error 1 bad_request", contracts.CodeBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
				g := l.enterAble("a")
				l.poses(g, contracts.RequestApproval, "q1")
				l.poses(g, contracts.RequestToolRetry, "q2")
				l.settled()
				p := l.connect(tt.by)
				p.sends(tt.text)
				p.wants(tt.want)
				why, closed := p.Closed()
				if closed != (tt.closes != "") || closed && why.Code != tt.closes {
					t.Errorf("got closed %t, %v, want %q", closed, why, tt.closes)
				}
				p.Close()
				<-p.ended
				l.wantInbox(bob, "a/q1 a/q2:retry:1")
			})
		})
	}
}

func TestSocketEndsWithItsCredential(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		revoked := l.connect(contracts.Caller{Principal: contracts.Principal{ID: "share:1"}})
		expiring := l.connect(contracts.Caller{Principal: contracts.Principal{ID: "p", Expires: time.Now().Add(time.Minute)}})
		stays := l.connect(bob)
		synctest.Wait()
		l.Evict("share:1")
		wantEnd(t, revoked.Peer, contracts.CodeUnauthenticated)
		time.Sleep(time.Minute)
		if err := expiring.Send(approval("x", "a", "q", "")); err == nil {
			wantEnd(t, expiring.Peer, contracts.CodeUnauthenticated)
		}
		time.Sleep(time.Minute)
		if _, ended := stays.Closed(); ended {
			t.Error("a socket with a valid credential was ended")
		}
		stays.Close()
	})
}

func TestSilentClientOfASocketIsDisconnected(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		alive, dead := l.connect(bob), l.connect(bob)
		dead.Mute()
		time.Sleep(50 * time.Second)
		if _, ended := dead.Closed(); ended {
			t.Error("disconnected before three heartbeats")
		}
		time.Sleep(20 * time.Second)
		wantEnd(t, dead.Peer, contracts.CodeTimeout)
		if got := alive.saw(); got != "heartbeat, heartbeat, heartbeat, heartbeat" {
			t.Errorf("got %s, want a heartbeat every 15 s", got)
		}
		alive.Close()
	})
}

func TestClientThatDoesNotReadItsSocketIsDisconnected(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		p, other := l.connect(bob), l.connect(bob)
		p.Freeze()
		sent := 0
		for ; sent < 100_000; sent++ {
			if err := p.Send(`{"type":"ws.follow","id":"f","lists":["inbox","sessions"]}`); err != nil {
				break // the server ended the connection
			}
			if sent%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		if err := <-p.ended; !errors.Is(err, os.ErrDeadlineExceeded) || sent == 100_000 {
			t.Errorf("got %v after %d frames, want a timeout", err, sent)
		}
		other.sends(`{"type":"ws.follow","lists":["inbox"]}`)
		other.wants("result 1, list ")
		other.Close()
	})
}

func TestFloodOfSubscriptionsIsSlowedDown(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		l.enter("a")
		p := l.connect(bob)
		go func() { // ends with the connection
			for i := 0; p.Send(fmt.Sprintf(`{"type":"ws.follow","lists":["sessions"],"limit":%d}`, 1+i%2)) == nil; i++ {
			}
		}()
		time.Sleep(10 * time.Second)
		count := strings.Count(p.saw(), "sessions")
		burst, rate := contracts.ViewerFrameBurst/contracts.FollowFrames, contracts.MaxViewerFrames/contracts.FollowFrames
		if count < burst || count > burst+10*rate+2 {
			t.Errorf("got %d lists in 10 s, want %d at once and %d a second", count, burst, rate)
		}
		p.Close()
		<-p.ended // although unread frames are left
	})
}

// A recorder is a connection that notes where the texts are that it was sent.
type recorder struct {
	hub.Conn
	mu    sync.Mutex
	texts []*byte
}

func (r *recorder) Write(frames []byte) error {
	r.mu.Lock()
	r.texts = append(r.texts, &frames[0])
	r.mu.Unlock()
	return r.Conn.Write(frames)
}

func TestSocketsShareTheBytesOfAChange(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enter("a")
		l.settled()
		recorders := make([]*recorder, 20)
		for i := range recorders {
			conn, peer := memconn.New(memconn.Options{})
			recorders[i] = &recorder{Conn: conn}
			go func() { _ = l.Serve(context.Background(), recorders[i], bob) }() // ends with peer
			if err := peer.Send(`{"type":"ws.follow","lists":["sessions","inbox"]}`); err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
		}
		l.settled()
		l.prompts(g, "hello")
		l.settled()
		var shared []*byte
		for _, r := range recorders {
			shared = append(shared, r.texts[len(r.texts)-1])
		}
		if len(slices.Compact(shared)) != 1 {
			t.Error("got a copy for each follower, want one text for all")
		}
	})
}
