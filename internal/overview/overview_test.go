package overview_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/overview"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A library is a process with sessions and their overview. Its journals and summaries
// outlive the process.
type library struct {
	*overview.Overview
	t       *testing.T
	options overview.Options
	hubs    *hub.Directory
	agents  map[string]*puppet // by session
	gate    chan struct{}      // closed when sessions may open; nil: at once
	opened  int
	framed  atomic.Int64 // events that were encoded

	mu       sync.Mutex
	journals map[hub.Key]journal.Store
	texts    map[hub.Key]string
	saves    int
	fail     error // of Save and Remove
}

var theOwner = contracts.Principal{ID: "owner"}

// inLibrary runs a test in a bubble with an empty library.
func inLibrary(t *testing.T, options overview.Options, test func(t *testing.T, l *library)) {
	synctest.Test(t, func(t *testing.T) {
		l := &library{t: t, options: options, journals: map[hub.Key]journal.Store{}, texts: map[hub.Key]string{}}
		l.start()
		test(t, l)
		l.stop()
	})
}

func (l *library) start() {
	l.t.Helper()
	o := l.options
	o.Store, o.Frame = l, func(dst, text []byte) []byte {
		l.framed.Add(1)
		return append(append(dst, text...), '\n')
	}
	o.SocketForm, o.Find = memconn.Lines, func(ctx context.Context, id string, p contracts.Principal) (*hub.Hub, error) {
		h, _, err := l.hubs.Get(ctx, hub.Key{Scope: p.Scope, ID: id}, hub.OpenOptions{})
		return h, err
	}
	var err error
	if l.Overview, err = overview.New(o); err != nil {
		l.t.Fatal(err)
	}
	l.agents, l.opened = map[string]*puppet{}, 0
	l.hubs = &hub.Directory{Open: func(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
		return l.Open(key, func() (*hub.Hub, error) { return l.openHub(ctx, key, options) })
	}}
}

func (l *library) openHub(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	if l.gate != nil {
		<-l.gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.journals[key] == nil {
		if !options.Create {
			return nil, hub.ErrUnknownSession
		}
		l.journals[key] = lasting{journal.NewMemory(journal.MemoryOptions{})}
	}
	l.opened++
	l.agents[key.ID] = newPuppet()
	h, err := hub.New(hub.Options{
		SessionID: key.ID, Cwd: "/", Agent: l.agents[key.ID], Store: l.journals[key], WorkingInterval: time.Hour,
		CheckpointBytes: 2 << 10, Changed: func() { l.Changed(key) },
	})
	if err != nil {
		return nil, err
	}
	return h, h.Start(ctx)
}

func (l *library) stop() {
	l.t.Helper()
	if err := l.hubs.Suspend(context.Background()); err != nil {
		l.t.Error(err)
	}
	l.Close()
}

func (l *library) restart() {
	l.t.Helper()
	l.stop()
	l.start()
}

// Keys implements [overview.Store], as do the next three.
func (l *library) Keys() iter.Seq[hub.Key] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Values(slices.Collect(maps.Keys(l.journals)))
}

func (l *library) Load(key hub.Key) ([]byte, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.journals[key] == nil {
		return nil, time.Time{}, fs.ErrNotExist
	}
	if l.texts[key] == "unreadable" {
		return nil, time.Time{}, errors.New("disk is broken")
	}
	return []byte(l.texts[key]), time.Unix(1_000_000_000, 0), nil
}

func (l *library) Save(key hub.Key, text []byte, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.journals[key] == nil {
		return fs.ErrNotExist
	}
	if l.fail == nil {
		l.texts[key] = string(text)
		l.saves++
	}
	return l.fail
}

func (l *library) Remove(key hub.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail == nil {
		delete(l.journals, key)
		delete(l.texts, key)
	}
	return l.fail
}

func (l *library) failing(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// enter opens a session of the owner's, as the controller of it.
func (l *library) enter(id string) *guest { return l.enterAs(theOwner, id) }

func (l *library) enterAs(p contracts.Principal, id string) *guest {
	l.t.Helper()
	h, _, err := l.hubs.Get(l.t.Context(), hub.Key{Scope: p.Scope, ID: id}, hub.OpenOptions{Create: true})
	if err != nil {
		l.t.Fatalf("open %s: %v", id, err)
	}
	g := &guest{h, l.t, contracts.Caller{Principal: p}}
	g.connects(byForce)
	return g
}

// prompts begins a run of a session.
func (l *library) prompts(g *guest, text string) {
	l.t.Helper()
	g.prompts(text)
	synctest.Wait()
}

// ends ends the run of a session.
func (l *library) ends(g *guest, failure error, events ...contracts.Event) {
	l.t.Helper()
	a := l.agents[g.SessionID()]
	a.orders <- func(ctx context.Context) (bool, error) {
		return true, errors.Join(a.host.Publish(ctx, events...), failure)
	}
	synctest.Wait()
}

// asks asks a question in the run of a session.
func (l *library) asks(g *guest) {
	a := l.agents[g.SessionID()]
	a.orders <- a.ask(question(contracts.RequestApproval, "q1"))
	synctest.Wait()
}

// settled waits until all changes so far are listed and saved.
func (l *library) settled() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

func (l *library) page(q contracts.OverviewQuery) *contracts.Overview {
	l.t.Helper()
	l.settled()
	page, err := l.Page(theOwner, q)
	if err != nil {
		l.t.Fatal(err)
	}
	return page
}

// shows fails unless a page has these sessions, each "id status".
func (l *library) shows(q contracts.OverviewQuery, want ...string) {
	l.t.Helper()
	got := []string{}
	for _, s := range l.page(q).Sessions {
		got = append(got, s.SessionID+" "+string(s.Status))
	}
	if !slices.Equal(got, want) {
		l.t.Errorf("page %+v: got %q, want %q", q, got, want)
	}
}

// summaryOf returns what the overview shows of a session of the owner's.
func (l *library) summaryOf(id string) contracts.SessionSummary {
	l.t.Helper()
	for _, archived := range []bool{false, true} {
		page := l.page(contracts.OverviewQuery{Text: id, Archived: archived, Statuses: contracts.SessionStatuses()})
		for _, s := range page.Sessions {
			if s.SessionID == id {
				return s
			}
		}
	}
	l.t.Fatalf("%s is not listed", id)
	return contracts.SessionSummary{}
}

// usage is a response of so many tokens.
func usage(tokens int64, cost float64) []contracts.Event {
	return []contracts.Event{
		&contracts.ResponseStart{ResponseID: "r"},
		&contracts.ResponseEnd{ResponseID: "r", Usage: contracts.Usage{InputTokens: tokens, TotalTokens: tokens, TotalCostUSD: cost}, ToolsSummary: contracts.ToolsSummary{ToolsUsed: []string{}}},
	}
}

// statusesOf is a library with a session of each status.
func statusesOf(l *library) {
	l.enter("rests")
	l.settled()
	l.restart()
	asked := l.enter("asks")
	l.prompts(asked, "may I?")
	l.asks(asked)
	l.prompts(l.enter("runs"), "go")
	time.Sleep(time.Second)
	l.prompts(l.enter("runs-too"), "Go on")
	failed := l.enter("fails")
	l.prompts(failed, "go")
	l.ends(failed, errors.New("no such model"))
	l.enter("idles")
	l.enter("gone")
	if _, err := l.Delete(l.t.Context(), hub.Key{ID: "gone"}, contracts.Caller{Principal: theOwner}); err != nil {
		l.t.Fatal(err)
	}
	l.enterAs(contracts.Principal{ID: "stranger", Scope: "elsewhere"}, "theirs")
}

func TestSessionsThatNeedSomebodyComeFirst(t *testing.T) {
	inLibrary(t, overview.Options{}, func(_ *testing.T, l *library) {
		statusesOf(l)
		all := []string{"asks waiting", "runs-too running", "runs running", "fails failed", "idles idle", "rests at_rest"}
		l.shows(contracts.OverviewQuery{}, all...)
		l.shows(contracts.OverviewQuery{Statuses: []contracts.SessionStatus{contracts.SessionDeleted, contracts.SessionIdle}}, "idles idle", "gone deleted")
		l.shows(contracts.OverviewQuery{Text: "GO ON"}, "runs-too running")
		l.shows(contracts.OverviewQuery{Text: "rest"}, "rests at_rest")
		l.shows(contracts.OverviewQuery{Archived: true})
		var paged []string
		for q := (contracts.OverviewQuery{Limit: 2}); ; {
			page := l.page(q)
			for _, s := range page.Sessions {
				paged = append(paged, s.SessionID+" "+string(s.Status))
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		if !slices.Equal(paged, all) {
			l.t.Errorf("in pages: got %q, want %q", paged, all)
		}
		for _, key := range []string{"x", "!", "MA"} {
			_, err := l.Page(theOwner, contracts.OverviewQuery{After: key})
			wantCode(l.t, err, contracts.CodeBadRequest)
		}
	})
}

func TestSessionsAtRestAreListedWithoutTheirJournals(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enter("a")
		l.prompts(g, "  Fix\nthe\u202e parser\x07 ")
		l.ends(g, nil, append(usage(100, 0.5), usage(20, 0.25)...)...)
		at := time.Now()
		l.settled()
		running := l.enter("b")
		l.prompts(running, "go")
		l.settled()
		texts := maps.Clone(l.texts)
		first := l.summaryOf("a")
		l.restart()
		got := l.summaryOf("a")
		if got.Revision <= first.Revision {
			t.Errorf("revision: got %d after %d, want a greater one", got.Revision, first.Revision)
		}
		got.Revision = 0
		author := &contracts.Author{Principal: "owner", Name: "owner", ConnectionID: g.by.ConnectionID}
		wantEqual(t, "at rest", got, contracts.SessionSummary{
			SessionID: "a", Status: contracts.SessionAtRest, Title: "Fix the parser", Author: author,
			UpdatedAt: at.UTC().Format("2006-01-02T15:04:05.000Z"), Tokens: 120, CostUSD: 0.75, Cursor: got.Cursor,
		})
		if l.opened != 0 || got.Cursor < 5 {
			t.Errorf("got %d sessions opened and cursor %d, want none opened and the cursor stored", l.opened, got.Cursor)
		}
		l.stop()
		l.texts = texts // as a process leaves them that is killed during the run
		l.start()
		if got := l.summaryOf("b").Status; got != contracts.SessionFailed {
			t.Errorf("got %s for a session whose run was cut off, want %s", got, contracts.SessionFailed)
		}
	})
}

func TestLostSummaryIsRepairedWhenTheSessionIsOpened(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enter("a")
		l.prompts(g, "first")
		l.ends(g, nil, usage(7, 0)...)
		for range 30 { // checkpoints, and events before them that restoring does not read
			l.prompts(g, strings.Repeat("next ", 50))
			l.ends(g, nil, usage(1, 0)...)
		}
		l.prompts(g, "last")
		l.ends(g, errors.New("broken"))
		want := l.summaryOf("a")
		l.stop()
		for _, lost := range []string{"", "half a te", "unreadable"} {
			l.texts = map[hub.Key]string{{ID: "a"}: lost}
			l.start()
			if got := l.summaryOf("a"); got.Title != "" || got.Status != contracts.SessionAtRest {
				t.Errorf("got %+v with the summary %q", got, lost)
			}
			l.enter("a")
			got := l.summaryOf("a")
			got.Revision, got.Cursor, got.Controller = want.Revision, want.Cursor, want.Controller
			wantEqual(t, "repaired", got, want)
			l.stop()
		}
		l.start()
	})
}

func TestTitlesAreShortAndPlain(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enter("a")
		l.prompts(g, strings.Repeat("é", 5000))
		if got := l.summaryOf("a").Title; got != strings.Repeat("é", contracts.MaxTitleBytes/2) {
			t.Errorf("got %d bytes: %s", len(got), got)
		}
		for title, want := range map[string]string{
			"My title": "My title", "a\x00b\u202e\u2066c\u2028d": "abc d", " \n\t": strings.Repeat("é", contracts.MaxTitleBytes/2), "a\n b": "a b",
			strings.Repeat("x", 300): strings.Repeat("x", contracts.MaxTitleBytes),
		} {
			got, err := l.Update(hub.Key{ID: "a"}, g.by, &contracts.SessionUpdate{Title: &title})
			if err != nil || got.Title != want {
				t.Errorf("title %q: got %+v, %v, want %q", title, got, err, want)
			}
		}
	})
}

func TestWhoMayChangeASession(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		key := hub.Key{ID: "a"}
		g := l.enterAs(contracts.Principal{ID: "share:1", SessionID: "a"}, "a")
		other := *g
		other.by.ConnectionID, other.by.Token = "", ""
		other.connects(contracts.AttachRequest{Role: contracts.RoleViewer})
		title, archived := "t", true
		rename := func(by contracts.Caller) error {
			_, err := l.Update(key, by, &contracts.SessionUpdate{Title: &title})
			return err
		}
		archive := func(by contracts.Caller) error {
			_, err := l.Update(key, by, &contracts.SessionUpdate{Title: &title, Archived: &archived})
			return err
		}
		del := func(by contracts.Caller) error { _, err := l.Delete(t.Context(), key, by); return err }
		undo := func(by contracts.Caller) error { _, err := l.Restore(key, by); return err }
		viewer := contracts.Caller{Principal: contracts.Principal{ID: "v", Role: contracts.RoleViewer}}
		approver := contracts.Caller{Principal: contracts.Principal{ID: "p", Role: contracts.RoleApprover}}
		views := contracts.Caller{Principal: theOwner, Role: contracts.RoleViewer}
		forged := g.by
		forged.Token = "wrong"
		for name, tt := range map[string]struct {
			by   contracts.Caller
			do   func(contracts.Caller) error
			want contracts.Code
		}{
			"viewer renames": {viewer, rename, contracts.CodeAccessDenied}, "viewer archives": {viewer, archive, contracts.CodeAccessDenied},
			"viewer deletes": {viewer, del, contracts.CodeAccessDenied}, "viewer restores": {viewer, undo, contracts.CodeAccessDenied},
			"owner as viewer deletes": {views, del, contracts.CodeAccessDenied}, "approver renames": {approver, rename, contracts.CodeAccessDenied},
			"share archives": {g.by, archive, contracts.CodeAccessDenied}, "share deletes": {g.by, del, contracts.CodeAccessDenied},
			"share restores":               {g.by, undo, contracts.CodeAccessDenied},
			"share without a connection":   {contracts.Caller{Principal: g.by.Principal}, rename, contracts.CodeStaleConnection},
			"share without the lease":      {other.by, rename, contracts.CodeControllerLeaseHeld},
			"share with the lease renames": {g.by, rename, ""},
			"owner renames":                {contracts.Caller{Principal: theOwner}, rename, ""},
			"stranger deletes": {contracts.Caller{Principal: contracts.Principal{ID: "s", Scope: "elsewhere"}}, func(by contracts.Caller) error {
				_, err := l.Delete(t.Context(), hub.Key{Scope: "elsewhere", ID: "a"}, by)
				return err
			}, contracts.CodeStaleSession},
		} {
			if err := tt.do(tt.by); tt.want == "" && err != nil {
				t.Errorf("%s: got %v", name, err)
			} else if tt.want != "" {
				if !errors.Is(err, &contracts.Error{Code: tt.want}) {
					t.Errorf("%s: got %v, want %s", name, err, tt.want)
				}
			}
		}
		l.restart()
		wantCode(t, rename(g.by), contracts.CodeAccessDenied) // nobody holds the lease of a session at rest
		if got := l.summaryOf("a"); got.Title != "t" || got.Archived {
			t.Errorf("got %+v, want the title and nothing else", got)
		}
		if err := archive(contracts.Caller{Principal: theOwner}); err != nil || !l.summaryOf("a").Archived || l.opened > 0 {
			t.Errorf("got %v, archived %t, %d opened, want a session at rest archived", err, l.summaryOf("a").Archived, l.opened)
		}
	})
}

func TestDeletedSessionCanBeRestored(t *testing.T) {
	inLibrary(t, overview.Options{Undo: time.Minute}, func(t *testing.T, l *library) {
		key, by := hub.Key{ID: "a"}, contracts.Caller{Principal: theOwner}
		g := l.enter("a")
		l.prompts(g, "may I?")
		l.asks(g)
		deleted, err := l.Delete(t.Context(), key, by)
		if err != nil || deleted.Status != contracts.SessionDeleted || deleted.RemovedAt != time.Now().Add(time.Minute).UTC().Format("2006-01-02T15:04:05.000Z") {
			t.Fatalf("got %+v, %v", deleted, err)
		}
		if !g.ended() {
			t.Error("the session goes on")
		}
		time.Sleep(30 * time.Second)
		again, err := l.Delete(t.Context(), key, by)
		if err != nil || again.RemovedAt != deleted.RemovedAt {
			t.Errorf("deleted again: got %+v, %v, want the same end", again, err)
		}
		for _, create := range []bool{false, true} {
			_, _, err := l.hubs.Get(t.Context(), key, hub.OpenOptions{Create: create})
			wantCode(t, err, contracts.CodeStaleSession)
		}
		title := "x"
		_, err = l.Update(key, by, &contracts.SessionUpdate{Title: &title})
		wantCode(t, err, contracts.CodeStaleSession)
		if got, err := l.Restore(key, by); err != nil || got.Status != contracts.SessionWaiting || got.RemovedAt != "" {
			t.Errorf("restored: got %+v, %v", got, err)
		}
		time.Sleep(time.Minute)
		if got := l.enter("a").Snapshot().State.PendingApprovals; len(got) != 1 {
			t.Errorf("got %v, want the question", got)
		}
	})
}

func TestDeletedSessionIsRemoved(t *testing.T) {
	for name, restart := range map[string]time.Duration{"by the process": 0, "after a restart": 20 * time.Second, "by a later process": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inLibrary(t, overview.Options{Undo: time.Minute}, func(t *testing.T, l *library) {
				key, by := hub.Key{ID: "a"}, contracts.Caller{Principal: theOwner}
				l.prompts(l.enter("a"), "old")
				l.enter("stays")
				if _, err := l.Delete(t.Context(), key, by); err != nil {
					t.Fatal(err)
				}
				if restart > 0 {
					l.stop()
					time.Sleep(restart)
					l.start()
				}
				peer := l.follow(theOwner, 10)
				if restart < time.Minute {
					time.Sleep(50*time.Second - restart)
					l.shows(contracts.OverviewQuery{Statuses: []contracts.SessionStatus{contracts.SessionDeleted}}, "a deleted")
				}
				l.failing(errors.New("disk is busy"))
				l.settled()
				l.failing(nil)
				l.settled()
				if l.journals[key] != nil || len(l.journals) != 1 {
					t.Errorf("got %v stored, want the journal of the other session", l.journals)
				}
				if lines := peer.lines(); !slices.Contains(lines, `{"type":"removed","session_id":"a"}`) {
					t.Errorf("a follower got %q, want that the session was removed", lines)
				}
				_, err := l.Restore(key, by)
				wantCode(t, err, contracts.CodeStaleSession)
				l.enter("a")
				if got := l.summaryOf("a"); got.Title != "" || got.Archived {
					t.Errorf("got %+v, want a new session", got)
				}
				peer.Close()
			})
		})
	}
}

func TestSessionThatIsDeletedWhileItIsOpenedDoesNotOpen(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		l.enter("a")
		l.restart()
		l.gate = make(chan struct{})
		opened := make(chan error, 1)
		go func() {
			_, _, err := l.hubs.Get(t.Context(), hub.Key{ID: "a"}, hub.OpenOptions{})
			opened <- err
		}()
		synctest.Wait()
		if _, err := l.Delete(t.Context(), hub.Key{ID: "a"}, contracts.Caller{Principal: theOwner}); err != nil {
			t.Fatal(err)
		}
		close(l.gate)
		wantCode(t, <-opened, contracts.CodeStaleSession)
		l.shows(contracts.OverviewQuery{Statuses: []contracts.SessionStatus{contracts.SessionDeleted}}, "a deleted")
	})
}

func TestChangeThatCannotBeStoredIsNotMade(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enter("a")
		l.settled()
		l.failing(errors.New("disk is full"))
		title := "new"
		_, err := l.Update(hub.Key{ID: "a"}, g.by, &contracts.SessionUpdate{Title: &title})
		wantCode(t, err, contracts.CodeRuntimeNotReady)
		_, err = l.Delete(t.Context(), hub.Key{ID: "a"}, g.by)
		wantCode(t, err, contracts.CodeRuntimeNotReady)
		if g.ended() {
			t.Error("the session ended, though it could not be deleted")
		}
		l.prompts(g, "hello")
		if got := l.summaryOf("a"); got.Title != "hello" || got.Status != contracts.SessionRunning {
			t.Errorf("got %+v, want the overview to go on", got)
		}
		l.failing(nil)
		l.settled()
		if got := l.texts[hub.Key{ID: "a"}]; !strings.Contains(got, "hello") {
			t.Errorf("stored: got %s, want what could not be stored before", got)
		}
	})
}

func TestSummariesAreSavedSeldom(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enter("a")
		l.settled()
		before := l.saves
		for range 100 {
			l.prompts(g, "hello")
			l.ends(g, nil)
			time.Sleep(100 * time.Millisecond)
		}
		l.settled()
		if got := l.saves - before; got < 5 || got > 8 {
			t.Errorf("got %d saves in 15 s, want one in two seconds", got)
		}
	})
}

func TestSessionsBeyondTheBoundAreFoundWhenTheyAreUsed(t *testing.T) {
	inLibrary(t, overview.Options{Max: 10}, func(t *testing.T, l *library) {
		for i := range 12 {
			l.enter(fmt.Sprint("s", i))
			time.Sleep(time.Second)
		}
		l.settled()
		if page := l.page(contracts.OverviewQuery{}); len(page.Sessions) != 12 || !page.Truncated {
			t.Errorf("got %d sessions, truncated %t, want all that are open", len(page.Sessions), page.Truncated)
		}
		l.restart()
		page := l.page(contracts.OverviewQuery{})
		if len(page.Sessions) != 10 || !page.Truncated || page.Loading {
			t.Errorf("got %d sessions, truncated %t, loading %t, want 10", len(page.Sessions), page.Truncated, page.Loading)
		}
		for i := range 12 {
			archived := true
			if _, err := l.Update(hub.Key{ID: fmt.Sprint("s", i)}, contracts.Caller{Principal: theOwner}, &contracts.SessionUpdate{Archived: &archived}); err != nil {
				t.Errorf("session %d: got %v", i, err)
			}
			if i == 5 {
				l.settled() // what is saved may be left out
			}
		}
		for i := range 12 {
			l.enter(fmt.Sprint("s", i))
		}
		if got := l.page(contracts.OverviewQuery{Archived: true}); len(got.Sessions) != 12 {
			t.Errorf("got %d archived sessions, want 12", len(got.Sessions))
		}
	})
}

// A listReader is the client's end of a stream.
type listReader struct {
	*memconn.Peer
	t     *testing.T
	ended chan error
}

// follow opens a stream and reads its opening.
func (l *library) follow(p contracts.Principal, limit int) *listReader {
	l.t.Helper()
	conn, peer := memconn.New(memconn.Options{Stream: true})
	r := &listReader{peer, l.t, make(chan error, 1)}
	go func() {
		err := l.Follow(context.Background(), conn, p, limit)
		conn.Close(nil)
		r.ended <- err
	}()
	if got, err := peer.Next(l.t.Context()); err != nil || got != memconn.Opening {
		l.t.Fatalf("first line: got %s, %v, want %s", got, err, memconn.Opening)
	}
	return r
}

// lines returns what has arrived.
func (r *listReader) lines() []string { return arrived(r.Peer) }

// events returns the events that have arrived.
func (r *listReader) events() (list []contracts.OverviewEvent) {
	r.t.Helper()
	for _, line := range r.lines() {
		if line == "comment" {
			continue // a heartbeat
		}
		var ev contracts.OverviewEvent
		if err := (&contracts.Decoder{Strict: true}).Body([]byte(line), &ev); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		list = append(list, ev)
	}
	return list
}

func TestFollowerSeesEachSessionAtMostTenTimesASecond(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		a, b := l.enter("a"), l.enter("b")
		l.settled()
		peer := l.follow(theOwner, 1)
		defer peer.Close()
		first := peer.events()
		if len(first) != 1 || first[0].Type != "sessions" || len(first[0].Overview.Sessions) != 1 || first[0].Overview.Next == "" {
			t.Fatalf("got %+v, want a list of one session and where to go on", first)
		}
		began := time.Now()
		for i := range 100 {
			l.prompts(a, "hello")
			l.ends(a, nil)
			if i == 50 {
				l.prompts(b, "hello")
			}
			time.Sleep(10 * time.Millisecond)
		}
		l.settled()
		seen := map[string][]contracts.SessionSummary{}
		for _, ev := range peer.events() {
			s := *ev.Session
			if before := seen[s.SessionID]; len(before) > 0 && before[len(before)-1].Revision >= s.Revision {
				t.Errorf("got revision %d after %d", s.Revision, before[len(before)-1].Revision)
			}
			seen[s.SessionID] = append(seen[s.SessionID], s)
		}
		if most := int(time.Since(began)/(100*time.Millisecond)) + 1; len(seen["a"]) < 5 || len(seen["a"]) > min(most, 12) || len(seen["b"]) != 1 {
			t.Errorf("got %d events of one session and %d of the other", len(seen["a"]), len(seen["b"]))
		}
		last := seen["a"][len(seen["a"])-1]
		wantEqual(t, "the last event", last, l.summaryOf("a"))
	})
}

func TestFollowerSeesWhoDrivesAndHowFar(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		a := l.enter("a")
		l.enter("idle")
		l.prompts(a, "hello")
		if got := l.summaryOf("a").Controller; got == nil || got.ConnectionID != a.by.ConnectionID || got.Name != "owner" {
			t.Errorf("got %+v in control, want the owner", got)
		}
		before := l.summaryOf("a")
		agent := l.agents["a"]
		streams := func() {
			for range 60 { // 6 s
				agent.orders <- func(ctx context.Context) (bool, error) {
					return false, agent.host.Publish(ctx, &contracts.Status{Message: "on my way"})
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		streams()
		if got := l.summaryOf("a"); got.Revision != before.Revision {
			t.Errorf("got %+v after %+v, although nobody follows the list", got, before)
		}
		peer := l.follow(theOwner, 10)
		defer peer.Close()
		peer.events()
		streams()
		l.settled()
		got := peer.events()
		if len(got) < 3 || len(got) > 5 {
			t.Fatalf("got %d events in 6 s, want one each two seconds", len(got))
		}
		for _, ev := range got {
			if s := *ev.Session; s.SessionID != "a" || s.Revision <= before.Revision || s.Cursor <= before.Cursor {
				t.Errorf("got %+v after %+v, want a greater cursor", s, before)
			} else {
				before = s
			}
		}
		if _, err := a.Disconnect(a.by); err != nil {
			t.Fatal(err)
		}
		l.settled()
		if got := l.summaryOf("a").Controller; got != nil {
			t.Errorf("got %+v in control after it left, want nobody", got)
		}
		l.ends(a, nil)
	})
}

func TestSlowFollowerGetsANewList(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		g := l.enter("a")
		slow, quick := l.follow(theOwner, 10), l.follow(theOwner, 10)
		defer slow.Close()
		defer quick.Close()
		slow.Freeze()
		title := ""
		for i := range 90 { // 9 s, so that the write to the slow one does not time out
			title = fmt.Sprint("title ", i)
			if _, err := l.Update(hub.Key{ID: "a"}, g.by, &contracts.SessionUpdate{Title: &title}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		slow.Thaw()
		l.settled()
		late := slow.events()
		lists := slices.IndexFunc(late[1:], func(ev contracts.OverviewEvent) bool { return ev.Type == "sessions" })
		if lists < 0 || len(late) > 10 {
			t.Errorf("got %d events, list at %d, want a new list in place of what was missed", len(late), lists)
		}
		if ev := late[len(late)-1]; ev.Overview == nil || ev.Overview.Sessions[0].Title != title {
			t.Errorf("got %+v at last, want the last title", ev)
		}
		if got := quick.events(); len(got) < 80 || got[len(got)-1].Session.Title != title {
			t.Errorf("the other follower got %d events, want all", len(got))
		}
	})
}

func TestManyChangesAtOnceAreANewList(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		l.stop()
		for i := range 1100 {
			l.journals[hub.Key{ID: fmt.Sprint("s", i)}] = lasting{journal.NewMemory(journal.MemoryOptions{})}
		}
		l.start()
		l.settled()
		peer := l.follow(theOwner, 3)
		defer peer.Close()
		for i := range 1100 {
			title := "title"
			if _, err := l.Update(hub.Key{ID: fmt.Sprint("s", i)}, contracts.Caller{Principal: theOwner}, &contracts.SessionUpdate{Title: &title}); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // it is told at once, and the others together 0.1 s later
			}
		}
		l.settled()
		got := peer.events()
		if len(got) != 3 || got[0].Overview == nil || got[1].Session == nil || got[2].Overview == nil || len(got[2].Overview.Sessions) != 3 {
			t.Errorf("got %d events: %+v, want a list, one session, and a list", len(got), got)
		}
	})
}

func TestFollowersSeeTheirSessionsOnly(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		l.enter("a")
		l.enter("b")
		l.settled()
		share := contracts.Principal{ID: "share:1", SessionID: "a", Role: contracts.RoleViewer}
		stranger := contracts.Principal{ID: "s", Scope: "elsewhere"}
		readers := map[*listReader]string{l.follow(share, 10): "a", l.follow(stranger, 10): ""}
		for _, id := range []string{"a", "b"} {
			title := "title"
			if _, err := l.Update(hub.Key{ID: id}, contracts.Caller{Principal: theOwner}, &contracts.SessionUpdate{Title: &title}); err != nil {
				t.Fatal(err)
			}
		}
		l.settled()
		for r, id := range readers {
			text := strings.Join(r.lines(), "\n")
			if strings.Contains(text, `"b"`) || strings.Contains(text, `"a"`) != (id == "a") || strings.Contains(text, `"title":"title"`) != (id == "a") {
				t.Errorf("a reader of %q got %s", id, text)
			}
			r.Close()
		}
		page, err := l.Page(share, contracts.OverviewQuery{})
		if err != nil || len(page.Sessions) != 1 || page.Sessions[0].SessionID != "a" {
			t.Errorf("got %+v, %v, want the session of the share", page, err)
		}
	})
}

// A search holds the lock of the overview, so it must not do much for each session.
func TestSearchesOfTheOverviewAreCheap(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		l.mu.Lock()
		for i := range 1000 {
			key := hub.Key{ID: fmt.Sprint("s", i)}
			l.journals[key] = journal.NewMemory(journal.MemoryOptions{})
			l.texts[key] = `{"digest":{"title":"` + strings.Repeat("É", 100) + `"}}`
		}
		l.mu.Unlock()
		l.restart()
		l.settled()
		find := func(text string) int {
			page, err := l.Page(theOwner, contracts.OverviewQuery{Text: text, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Sessions)
		}
		if n := find("éÉé"); n != 10 {
			t.Errorf("got %d sessions, want a full page", n)
		}
		if n := testing.AllocsPerRun(5, func() { find("absent") }); n > 100 {
			t.Errorf("got %.0f allocations for a search in 1,000 sessions, want few", n)
		}
	})
}

// A list that many followers get at once is encoded once.
func TestFollowersWhoComeTogetherShareTheirList(t *testing.T) {
	inLibrary(t, overview.Options{}, func(t *testing.T, l *library) {
		l.enter("a")
		l.enter("b")
		l.settled()
		confined := contracts.Principal{ID: "share:1", SessionID: "a"}
		for _, round := range []struct {
			p     contracts.Principal
			limit int
			want  string
			most  int64
		}{{theOwner, 10, "[a b]", 1}, {theOwner, 1, "[a]", 1}, {confined, 10, "[a]", 20}, {theOwner, 10, "[a b]", 1}} {
			before := l.framed.Load()
			var all []*listReader
			for range 20 {
				all = append(all, l.follow(round.p, round.limit))
			}
			for _, r := range all {
				var ids []string
				for _, s := range r.events()[0].Overview.Sessions {
					ids = append(ids, s.SessionID)
				}
				if slices.Sort(ids); fmt.Sprint(ids) != round.want {
					t.Errorf("%s, at most %d: got %v, want %s", round.p.ID, round.limit, ids, round.want)
				}
			}
			if n := l.framed.Load() - before; n > round.most {
				t.Errorf("%s: got %d lists encoded, want at most %d", round.p.ID, n, round.most)
			}
			for _, r := range all {
				r.Close()
			}
		}
		first := l.follow(theOwner, 10)
		defer first.Close()
		first.events()
		l.prompts(l.enter("a"), "a title")
		l.settled()
		second := l.follow(theOwner, 10)
		defer second.Close()
		if got := second.lines()[0]; !strings.Contains(got, "a title") {
			t.Errorf("after a change: got %s", got)
		}
	})
}

func TestStreamEndsWithItsCredential(t *testing.T) {
	var ended atomic.Bool
	options := overview.Options{Alive: func(contracts.Principal) bool { return !ended.Load() }}
	inLibrary(t, options, func(t *testing.T, l *library) {
		stays := l.follow(theOwner, 10)
		revoked := l.follow(contracts.Principal{ID: "share:1"}, 10)
		l.Evict("share:1")
		expiring := l.follow(contracts.Principal{ID: "p", Expires: time.Now().Add(time.Minute)}, 10)
		time.Sleep(10 * time.Second)
		wantEnd(t, revoked.Peer, contracts.CodeUnauthenticated)
		if _, ended := expiring.Closed(); ended {
			t.Error("ended before its credential")
		}
		time.Sleep(2 * time.Minute)
		wantEnd(t, expiring.Peer, contracts.CodeUnauthenticated)
		soon := l.follow(contracts.Principal{ID: "p", Expires: time.Now().Add(time.Second)}, 10)
		time.Sleep(time.Second)
		synctest.Wait()
		if why, ended := soon.Closed(); !ended || why == nil || why.Code != contracts.CodeUnauthenticated {
			t.Errorf("when the credential expired: got closed %t, %v", ended, why)
		}
		if _, ended := stays.Closed(); ended {
			t.Error("a follower with a valid credential was ended")
		}
		ended.Store(true)
		time.Sleep(time.Minute)
		wantEnd(t, stays.Peer, contracts.CodeUnauthenticated)
	})
}

// A dashboard is what a client makes of the events of a stream.
type dashboard map[string]contracts.SessionSummary

func (d dashboard) apply(events []contracts.OverviewEvent) {
	for _, ev := range events {
		switch {
		case ev.Overview != nil:
			clear(d)
			for _, s := range ev.Overview.Sessions {
				d[s.SessionID] = s
			}
		case ev.Session != nil:
			if ev.Session.Revision > d[ev.Session.SessionID].Revision {
				d[ev.Session.SessionID] = *ev.Session
			}
		default:
			delete(d, ev.SessionID)
		}
	}
}

// Whatever happens, a follower knows what a new client is told, and the order holds.
func TestFollowerKnowsWhatThePagesShow(t *testing.T) {
	for seed := range uint64(30) {
		inLibrary(t, overview.Options{Undo: 20 * time.Second}, func(t *testing.T, l *library) {
			random := rand.New(rand.NewPCG(seed, 0))
			ids := []string{"a", "b", "c", "d"}
			by := contracts.Caller{Principal: theOwner}
			peer, sock := l.follow(theOwner, 100), l.connect(by)
			sock.sends(`{"type":"ws.follow","lists":["sessions"],"limit":100}`)
			board, socketBoard := dashboard{}, dashboard{}
			for range 60 {
				id := ids[random.IntN(len(ids))]
				key := hub.Key{ID: id}
				switch random.IntN(8) {
				case 0, 1, 2: // do something in the session, or open it
					h, _, err := l.hubs.Get(t.Context(), key, hub.OpenOptions{Create: true})
					if err != nil {
						continue // it was deleted
					}
					g := &guest{h, t, by}
					g.connects(byForce)
					switch responding := h.Summary().Responding; {
					case !responding:
						l.prompts(g, "hello")
					case random.IntN(3) == 0:
						l.asks(g)
					default:
						l.ends(g, []error{nil, errors.New("broken")}[random.IntN(2)])
					}
				case 3:
					title := fmt.Sprint("title ", random.IntN(10))
					_, _ = l.Update(key, by, &contracts.SessionUpdate{Title: &title}) // an error: it is not there, or was deleted
				case 4:
					archived := random.IntN(2) == 0
					_, _ = l.Update(key, by, &contracts.SessionUpdate{Archived: &archived})
				case 5:
					_, _ = l.Delete(t.Context(), key, by)
				case 6:
					_, _ = l.Restore(key, by)
				case 7:
					if random.IntN(4) == 0 {
						peer.Close()
						<-peer.ended
						sock.Close()
						<-sock.ended
						l.restart()
						peer, sock = l.follow(theOwner, 100), l.connect(by)
						sock.sends(`{"type":"ws.follow","lists":["sessions"],"limit":100}`)
					}
				}
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			}
			l.settled()
			board.apply(peer.events())
			for _, f := range sock.frames() {
				if f, ok := f.(*contracts.ListEnvelope); ok {
					socketBoard.apply([]contracts.OverviewEvent{*f.Sessions})
				}
			}
			for _, b := range []dashboard{board, socketBoard} {
				maps.DeleteFunc(b, func(_ string, s contracts.SessionSummary) bool { // the first list has none of these
					return s.Archived || s.Status == contracts.SessionDeleted
				})
			}
			wantEqual(t, "a socket", socketBoard, board)
			shown := dashboard{}
			q, last := contracts.OverviewQuery{Limit: 2}, contracts.SessionSummary{}
			for more := true; more; more = q.After != "" {
				page, err := l.Page(theOwner, q)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range page.Sessions {
					worse := slices.Index(contracts.SessionStatuses(), s.Status) - slices.Index(contracts.SessionStatuses(), last.Status)
					if last.Status != "" && (worse < 0 || worse == 0 && s.UpdatedAt > last.UpdatedAt) {
						t.Errorf("seed %d: got %+v after %+v", seed, s, last)
					}
					last, shown[s.SessionID] = s, s
				}
				q.After = page.Next
			}
			got, _ := json.Marshal(board)
			if want, _ := json.Marshal(shown); string(got) != string(want) {
				t.Errorf("seed %d: the follower knows\n%s\nwant\n%s", seed, got, want)
			}
			peer.Close()
			sock.Close()
		})
	}
}
