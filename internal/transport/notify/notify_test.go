package notify

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A wire is a network on which each receiver answers as it is told. It notes when.
type wire struct {
	mu      sync.Mutex
	answers map[string]func(attempt int, r *http.Request) (*http.Response, error) // by host
	tries   map[string][]time.Duration                                            // by host, since the start
	began   time.Time
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	answer := w.answers[r.URL.Host]
	w.tries[r.URL.Host] = append(w.tries[r.URL.Host], time.Since(w.began))
	attempt := len(w.tries[r.URL.Host])
	w.mu.Unlock()
	if answer == nil {
		return reply(204, nil), nil
	}
	return answer(attempt, r)
}

func (w *wire) times(host string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.tries[host])
}

func reply(status int, header http.Header) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader("ok"))}
}

var secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))

// inBubble runs a test in a bubble with receivers of the names, which are their hosts.
func inBubble(t *testing.T, change func(o *Options), test func(n *Notifier, w *wire), names ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answers: map[string]func(int, *http.Request) (*http.Response, error){}, tries: map[string][]time.Duration{}, began: time.Now()}
		o := Options{Transport: w, Config: Config{Link: "https://here/{session}?r={request}"}}
		for _, name := range names {
			o.Config.Receivers = append(o.Config.Receivers, Receiver{Name: name, Kind: "webhook", URL: "https://" + name, Secret: secret})
		}
		if change != nil {
			change(&o)
		}
		n, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		n.Start()
		test(n, w)
	})
}

func (n *Notifier) ask(id string) {
	n.Notify("", contracts.InboxEvent{Question: &contracts.InboxQuestion{SessionID: "s", RequestID: id, RequestType: contracts.RequestApproval, Display: "rm -rf /", AskedAt: timestamp(time.Now())}})
}

func (n *Notifier) end(id string) {
	n.Notify("", contracts.InboxEvent{Ended: &contracts.InboxEnding{SessionID: "s", RequestID: id}})
}

// counts returns waiting, delivered, skipped and failed of a receiver.
func (n *Notifier) counts(name string) string {
	for _, s := range n.States().Receivers {
		if s.Name == name {
			return fmt.Sprint(s.Waiting, s.Delivered, s.Skipped, s.Failed)
		}
	}
	return "none"
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestReceiverIsTriedAgainWithGrowingPauses(t *testing.T) {
	inBubble(t, nil, func(n *Notifier, w *wire) {
		w.answers["fails"] = func(int, *http.Request) (*http.Response, error) { return nil, errors.New("refused") }
		w.answers["recovers"] = func(attempt int, _ *http.Request) (*http.Response, error) {
			return reply(map[bool]int{true: 503, false: 200}[attempt < 3], nil), nil
		}
		w.answers["limits"] = func(attempt int, _ *http.Request) (*http.Response, error) {
			return reply(map[bool]int{true: 429, false: 200}[attempt < 2], http.Header{"Retry-After": {"30"}}), nil
		}
		w.answers["refuses"] = func(int, *http.Request) (*http.Response, error) { return reply(400, nil), nil }
		w.answers["redirects"] = func(int, *http.Request) (*http.Response, error) {
			return reply(302, http.Header{"Location": {"https://internal"}}), nil
		}
		w.answers["hangs"] = func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		n.ask("q")
		time.Sleep(time.Hour)
		want(t, "fails", w.times("fails"), "[0s 1s 3s 7s 15s 31s 1m3s 2m7s]")
		want(t, "recovers", w.times("recovers"), "[0s 1s 3s]")
		want(t, "limits", w.times("limits"), "[0s 30s]")
		want(t, "hangs", w.times("hangs"), "[0s 11s 23s 37s 55s 1m21s 2m3s 3m17s]")
		want(t, "redirects", w.times("internal"), "[]")
		for name, counts := range map[string]string{
			"fails": "0 0 0 1", "recovers": "0 1 0 0", "limits": "0 1 0 0", "refuses": "0 0 0 1", "redirects": "0 0 0 1", "hangs": "0 0 0 1", "works": "0 1 0 0",
		} {
			want(t, name, n.counts(name), counts)
		}
		dead := n.States().Receivers[0].Dead
		if len(dead) != 1 || dead[0].RequestID != "q" || dead[0].Attempts != maxAttempts || dead[0].Reason != "refused" {
			t.Errorf("got %+v, want the dead letter", dead)
		}
	}, "fails", "recovers", "limits", "refuses", "redirects", "hangs", "works")
}

func TestQuestionThatEndsIsNotNotified(t *testing.T) {
	inBubble(t, nil, func(n *Notifier, w *wire) {
		w.answers["fails"] = func(int, *http.Request) (*http.Response, error) { return reply(500, nil), nil }
		n.ask("q1")
		n.ask("q2")
		synctest.Wait()
		n.end("q1")
		n.end("q2")
		n.ask("q3")
		synctest.Wait()
		want(t, "counts", n.counts("fails"), "1 0 2 0")
		want(t, "tries", w.times("fails"), "[0s 0s]")
	}, "fails")
}

func TestQueuesOfNotificationsAreBounded(t *testing.T) {
	var names []string
	for i := range 32 {
		names = append(names, fmt.Sprint("hangs", i))
	}
	inBubble(t, nil, func(n *Notifier, w *wire) {
		for _, name := range names {
			w.answers[name] = func(_ int, r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
		}
		for i := range 500 {
			n.ask(fmt.Sprint("q", i))
		}
		waiting := int64(0)
		for _, s := range n.States().Receivers {
			waiting += s.Waiting
			if s.Waiting > maxQueue || len(s.Dead) > maxDead || s.Waiting+s.Failed != 500 {
				t.Errorf("%s: got %d waiting, %d failed, %d dead letters", s.Name, s.Waiting, s.Failed, len(s.Dead))
			}
		}
		if most := int64(maxReceivers * maxQueue); waiting > most {
			t.Errorf("got %d waiting, want at most %d", waiting, most)
		}
	}, names...)
}

// Receivers that hang take no room of others, however many they are.
func TestEachReceiverHasRoomOfItsOwn(t *testing.T) {
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprint("hangs", i))
	}
	inBubble(t, nil, func(n *Notifier, w *wire) {
		for _, name := range names {
			w.answers[name] = func(_ int, r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
		}
		for i := range maxQueue {
			n.ask(fmt.Sprint("q", i))
		}
		for _, s := range n.States().Receivers {
			if s.Waiting != maxQueue || s.Failed > 0 {
				t.Errorf("%s: got %d waiting and %d failed, want all waiting", s.Name, s.Waiting, s.Failed)
			}
		}
	}, names...)
}

func TestNotificationOfAnEndedQuestionTakesNoRoom(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.Config.Receivers[0].QuietHours, o.Config.Receivers[0].TimeZone = "22:00-07:00", "UTC" // a bubble begins at midnight UTC
	}, func(n *Notifier, w *wire) {
		n.ask("first")
		synctest.Wait()
		for i := range 2 * maxQueue {
			n.ask(fmt.Sprint("q", i))
			n.end(fmt.Sprint("q", i))
		}
		n.ask("last")
		want(t, "at night", n.counts("quiet"), fmt.Sprint("2 0 ", 2*maxQueue, " 0"))
		time.Sleep(8 * time.Hour)
		want(t, "in the morning", n.counts("quiet"), fmt.Sprint("0 2 ", 2*maxQueue, " 0"))
	}, "quiet")
}

func TestQuietHoursAndPeopleWhoLook(t *testing.T) {
	looking := true
	inBubble(t, func(o *Options) {
		o.Looking = func(id string) bool { return id == "owner" && looking }
		o.Config.Receivers[0].QuietHours, o.Config.Receivers[0].TimeZone = "22:00-07:00", "UTC" // a bubble begins at midnight UTC
		o.Config.Receivers[1].UnlessLooking = "owner"
	}, func(n *Notifier, w *wire) {
		n.ask("q1")
		n.ask("q2")
		synctest.Wait()
		n.end("q2")
		time.Sleep(8 * time.Hour)
		want(t, "quiet", w.times("quiet"), "[7h0m0s]")
		want(t, "quiet", n.counts("quiet"), "0 1 1 0")
		want(t, "looks", w.times("looks"), "[]")
		looking = false
		n.ask("q3")
		synctest.Wait()
		want(t, "looks", n.counts("looks"), "0 1 2 0")
	}, "quiet", "looks")
}

func TestHoursThatAreQuiet(t *testing.T) {
	at := func(clock string) time.Time {
		day, err := time.Parse("15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		return day
	}
	for _, tt := range []struct {
		hours, now string
		left       time.Duration
	}{
		{"22:00-07:00", "21:59", 0}, {"22:00-07:00", "22:00", 9 * time.Hour}, {"22:00-07:00", "06:59", time.Minute}, {"22:00-07:00", "07:00", 0},
		{"12:30-13:00", "12:45", 15 * time.Minute}, {"12:30-13:00", "13:00", 0}, {"", "13:00", 0},
	} {
		q, err := parseQuiet(tt.hours, "UTC")
		if got := q.left(at(tt.now)); got != tt.left || err != nil {
			t.Errorf("%s at %s: got %v, %v, want %v", tt.hours, tt.now, got, err, tt.left)
		}
	}
	for _, bad := range []string{"22-7", "24:00-07:00", "22:00-07:60", "22:00-07:00 x", "-1:00-07:00"} {
		if _, err := parseQuiet(bad, "UTC"); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
	if _, err := parseQuiet("22:00-07:00", "Nowhere/City"); err == nil {
		t.Error("an unknown time zone: got no error")
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	good := `{"link":"https://here","receivers":[{"name":"a","kind":"webhook","url":"https://a","secret":"` + secret + `","quiet_hours":"22:00-07:00"},{"name":"b","kind":"ntfy","url":"http://b/topic"}]}`
	for text, valid := range map[string]bool{
		good:                                   true,
		strings.Replace(good, `"b"`, `"a"`, 1): false,
		strings.Replace(good, `"ntfy"`, `"mail"`, 1):                       false,
		strings.Replace(good, `https://a`, `file:///etc/passwd`, 1):        false,
		strings.Replace(good, secret, "whsec_short", 1):                    false,
		strings.Replace(good, secret, secret[len("whsec_"):], 1):           false,
		strings.Replace(good, "22:00", "22", 1):                            false,
		strings.Replace(good, `"link":"https://here",`, "", 1):             false,
		strings.Replace(good, `"name":"a"`, `"name":"a","user":"root"`, 1): false,
		good + good: false,
	} {
		path := filepath.Join(t.TempDir(), "notify.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := LoadConfig(path)
		if err == nil {
			var n *Notifier
			if n, err = New(Options{Config: c}); err == nil {
				n.Close()
			}
		}
		if (err == nil) != valid {
			t.Errorf("%s: got %v, want it valid: %t", text, err, valid)
		}
	}
}

func TestReceiverThatFloodsIsCutOff(t *testing.T) {
	first, second, stop := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	first <- struct{}{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-first:
		default:
			second <- struct{}{}
			<-stop
			return
		}
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
	}))
	defer server.Close()
	defer close(stop)
	n, err := New(Options{Config: Config{Link: "x", Receivers: []Receiver{{Name: "floods", Kind: "webhook", URL: server.URL, Secret: secret}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Start()
	n.ask("q1")
	n.ask("q2")
	<-second // so the first notification is done
	want(t, "floods", n.counts("floods"), "1 1 0 0")
}
