package notify

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A lifetime runs one notifier after the other with the same file, in a bubble.
type lifetime struct {
	*Notifier
	*wire
	t       *testing.T
	options Options
	asked   map[string]string // when
	ids     []string          // of the requests that arrived; guarded by wire.mu
}

// outliving runs a test in a bubble with receivers of the names. They answer with status.
func outliving(t *testing.T, status *atomic.Int32, change func(o *Options), test func(l *lifetime), names ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "notify.json")
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answers: map[string]func(int, *http.Request) (*http.Response, error){}, tries: map[string][]time.Duration{}, began: time.Now()}
		l := &lifetime{wire: w, t: t, asked: map[string]string{}, options: Options{
			Transport: w, StateFile: path, Config: Config{Link: "https://here/{session}?r={request}"},
		}}
		for _, name := range names {
			l.options.Config.Receivers = append(l.options.Config.Receivers, Receiver{Name: name, Kind: "webhook", URL: "https://" + name, Secret: secret})
			w.answers[name] = func(_ int, r *http.Request) (*http.Response, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				l.ids = append(l.ids, r.Header.Get("Webhook-Id"))
				return reply(int(status.Load()), nil), nil
			}
		}
		if change != nil {
			change(&l.options)
		}
		l.begin()
		defer func() { l.Close() }()
		test(l)
	})
}

func (l *lifetime) begin() {
	n, err := New(l.options)
	if err != nil {
		l.t.Fatal(err)
	}
	l.Notifier = n
	n.Start()
}

// restart ends the notifier and starts another one.
func (l *lifetime) restart() {
	l.Close()
	l.begin()
}

// kill is restart, but the notifier saves nothing in its end.
func (l *lifetime) kill() {
	text, err := os.ReadFile(l.options.StateFile)
	l.Close()
	if err != nil {
		text = nil
	}
	if err := os.WriteFile(l.options.StateFile, text, 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.begin()
}

// arrived returns the ids of the requests that arrived.
func (l *lifetime) arrived() []string {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return slices.Clone(l.ids)
}

// poses tells of a question. Each process tells of those that are open.
func (l *lifetime) poses(id string) {
	if l.asked[id] == "" {
		l.asked[id] = timestamp(time.Now())
	}
	l.Notify("", contracts.InboxEvent{Question: &contracts.InboxQuestion{
		SessionID: "s", RequestID: id, RequestType: contracts.RequestApproval, AskedAt: l.asked[id],
	}})
}

func TestRetriesGoOnAfterARestart(t *testing.T) {
	var status atomic.Int32
	status.Store(503)
	outliving(t, &status, nil, func(l *lifetime) {
		l.poses("q")
		time.Sleep(5 * time.Second)
		l.restart()
		l.poses("q")
		time.Sleep(9 * time.Second)
		l.kill()
		time.Sleep(time.Hour)
		want(t, "attempts", l.times("hook"), "[0s 1s 3s 7s 15s 31s 1m3s 2m7s]")
		for range 2 {
			dead := l.States().Receivers[0].Dead
			if len(dead) != 1 || dead[0].RequestID != "q" || dead[0].Attempts != maxAttempts || l.counts("hook") != "0 0 0 1" {
				t.Fatalf("got %+v, want one dead letter", dead)
			}
			l.restart()
			l.poses("q")
		}
		ids := l.arrived()
		for _, id := range ids {
			want(t, "the id", id, ids[0])
		}
	}, "hook")
}

func TestReceiverIsToldAtLeastOnce(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	outliving(t, &status, nil, func(l *lifetime) {
		l.poses("q1")
		synctest.Wait()
		if err := os.Remove(l.options.StateFile); err != nil { // killed before it was saved that the receiver knows
			t.Fatal(err)
		}
		l.kill()
		l.poses("q1")
		time.Sleep(time.Second)
		l.kill()
		l.poses("q1")
		time.Sleep(time.Second)
		if ids := l.arrived(); len(ids) != 2 || ids[0] != ids[1] {
			t.Errorf("got the ids %v, want one twice", ids)
		}
		status.Store(503)
		l.poses("q2")
		time.Sleep(time.Second)
		l.kill() // nobody asks again
		status.Store(200)
		time.Sleep(time.Minute)
		want(t, "counts", l.counts("hook"), "0 2 0 0")
		if err := os.WriteFile(l.options.StateFile, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		l.kill()
		l.poses("q2")
		time.Sleep(time.Second)
		want(t, "counts after the file was damaged", l.counts("hook"), "0 1 0 0")
	}, "hook")
}

func TestQuietHoursHoldAfterARestart(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	outliving(t, &status, func(o *Options) {
		o.Config.Receivers[0].QuietHours, o.Config.Receivers[0].TimeZone = "22:00-07:00", "UTC" // a bubble begins at midnight UTC
	}, func(l *lifetime) {
		l.poses("q1")
		l.poses("q2")
		l.poses("q3")
		time.Sleep(time.Hour)
		l.kill()
		l.poses("q1")
		l.end("q2")
		time.Sleep(time.Hour)
		l.restart()
		time.Sleep(6 * time.Hour)
		want(t, "times", l.times("quiet"), "[7h0m0s 7h0m0s]")
		want(t, "counts", l.counts("quiet"), "0 2 1 0")
	}, "quiet")
}

func TestMemoryIsBounded(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	outliving(t, &status, nil, func(l *lifetime) {
		for i := range 3 * maxSettled {
			l.poses(fmt.Sprint("q", i))
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if got := len(l.lanes[0].Settled); got != maxSettled {
			t.Errorf("got %d settled questions, want %d", got, maxSettled)
		}
		l.restart()
		for i := range 3 * maxSettled {
			l.poses(fmt.Sprint("q", i))
			synctest.Wait()
		}
		want(t, "counts", l.counts("hook"), fmt.Sprint("0 ", 3*maxSettled+1, " 0 0")) // one of those asked just at Since
	}, "hook")
}
