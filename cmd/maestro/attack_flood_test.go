//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// floodFort is a server for two people who do not know each other.
func floodFort(t *testing.T, flags ...string) *fort {
	t.Helper()
	f := startFort(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--agent", "conformance", "--state-dir", t.TempDir(),
		"--jwt-key", forge().file(t), "--jwt-issuer", issuer, "--jwt-audience", audience}, flags...)...)
	f.keys["alice"], f.keys["mallory"] = forge().token("alice", nil), forge().token("mallory", nil)
	f.want(shot{as: "mallory", what: "POST /api/headless/sessions", body: `{"sessionId":"den","role":"viewer"}`})
	return f
}

// works fails the test unless alice is served in full.
func (f *fort) works() {
	f.t.Helper()
	r := f.want(shot{as: "alice", what: "POST /api/headless/connections", body: `{}`})
	session, conn, secret := r.text("session_id"), r.text("connection_id"), r.header.Get("X-Maestro-Headless-Connection-Token")
	own := []string{"X-Maestro-Headless-Connection-Id: " + conn, "X-Maestro-Headless-Connection-Token: " + secret}
	f.want(shot{as: "alice", what: "POST /api/headless/sessions/" + session + "/messages", body: `{"type":"prompt","content":"hello"}`, headers: own})
	f.want(shot{as: "alice", what: "POST /api/headless/sessions/" + session + "/messages", body: shutdown, headers: own})
}

// overrun fires a shot so often and counts the answers. All that do not get
// through are refused with code.
func (f *fort) overrun(times int, s shot, code contracts.Code) (through int) {
	f.t.Helper()
	for range times {
		r := f.fire(s)
		if r.status < 400 {
			through++
			continue
		}
		var body struct{ Code contracts.Code }
		if err := json.Unmarshal(r.body, &body); err != nil || r.status != code.HTTPStatus() || body.Code != code || code.Retryable() && r.header.Get("Retry-After") == "" {
			f.t.Fatalf("%s: got %d %s, want %d %s and when to come back", s.what, r.status, r.body, code.HTTPStatus(), code)
		}
	}
	return through
}

// floodAttacks try to use up what others need.
func floodAttacks() []attack {
	limited, full := contracts.CodeRateLimited, contracts.CodeOverloaded
	viewer := shot{as: "mallory", what: "POST /api/headless/sessions/den/subscribe", body: `{"role":"viewer"}`}
	return []attack{
		{name: "thousands of half-open streams", strike: halfOpenStreams},
		{name: "thousands of half-open sockets", strike: func(t *testing.T, _ *fort) {
			const most = 100
			f := floodFort(t, "--attach-burst", strconv.Itoa(most), "--attach-rate", "0.0001")
			if got := f.overrun(1500, shot{as: "mallory", what: "WS /api/headless/ws?sessionId=den"}, limited); got != most-1 {
				t.Errorf("got %d through, want %d", got, most-1)
			}
			f.works()
		}},
		{name: "connections without end", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--attach-burst", "50", "--attach-rate", "0.0001")
			if got := f.overrun(500, viewer, limited); got != 49 {
				t.Errorf("got %d through, want 49", got)
			}
			f.works()
		}},
		{name: "connections up to the limit", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--max-connections", "20", "--subscription-ttl", "24h", "--lease-ttl", "24h")
			f.overrun(100, viewer, full) // those that nobody attaches to make room for others
			var open []*peer
			for range 30 {
				p := f.dial()
				head, _ := f.request(shot{as: "mallory", what: "GET /api/headless/sessions/den/events"})
				if _, err := io.WriteString(p, head); err != nil {
					t.Fatal(err)
				}
				r := f.read(p)
				switch {
				case r.status == 200 && len(open) < 10: // half of them
					open = append(open, p)
				case r.status != 429 || len(open) != 10:
					t.Errorf("stream %d: got %d %s", len(open)+1, r.status, r.body)
				}
			}
			f.works()
		}},
		{name: "subscriptions without end", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t)
			r := f.want(viewer)
			s := viewer
			s.body, s.headers = `{"connectionId":"`+r.text("connection_id")+`"}`, []string{"X-Maestro-Headless-Connection-Token: " + r.header.Get("X-Maestro-Headless-Connection-Token")}
			if got := f.overrun(30, s, limited); got != 7 {
				t.Errorf("got %d more subscriptions of one connection, want 7", got)
			}
			f.works()
		}},
		{name: "controllers without end", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--max-controllers", "3")
			for range 3 {
				f.attachAs("mallory", "sessionId=den&role=controller&takeControl=later", strings.Replace(quietText, `"type":"hello"`, `"type":"hello","role":"controller"`, 1)).sees(t, `"type":"ws.attached"`, `"ws.attached"`)
			}
			if got := f.overrun(20, shot{as: "mallory", what: "POST /api/headless/connections", body: `{"sessionId":"den","role":"controller","takeControl":true}`}, limited); got != 0 {
				t.Errorf("got %d more controllers, want none", got)
			}
			f.want(viewer)
			f.works()
		}},
		{name: "sessions without end", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--max-sessions", "6") // two are there
			f.want(shot{as: "alice", what: "POST /api/headless/sessions", body: `{"sessionId":"hers","role":"viewer"}`})
			if got := f.overrun(30, shot{as: "mallory", what: "POST /api/headless/sessions", body: `{"role":"viewer"}`}, limited); got != 3 {
				t.Errorf("got %d more sessions, want 3", got)
			}
			f.want(shot{as: "alice", what: "GET /api/headless/sessions/hers/state"})
		}},
		{name: "shares without end", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t)
			if got := f.overrun(300, shot{as: "mallory", what: "POST /api/headless/sessions/den/shares", body: `{}`}, limited); got != 256 {
				t.Errorf("got %d shares, want 256", got)
			}
			f.want(shot{as: "alice", what: "POST /api/headless/sessions", body: `{"sessionId":"hers","role":"viewer"}`})
			f.want(shot{as: "alice", what: "POST /api/headless/sessions/hers/shares", body: `{}`})
		}},
		{name: "tickets without end", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--request-rate", "-1")
			const more = 4097
			mint := "POST /api/headless/ws-tickets HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer " + f.keys["mallory"] +
				"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
			minted := answers(t, f.exchange(strings.Repeat(mint, 1+more), true)) // over one connection
			if len(minted) != 1+more {
				t.Fatalf("got %d answers, want %d", len(minted), 1+more)
			}
			first, last := minted[0].text("ticket"), minted[more].text("ticket")
			f.refuses(shot{what: "GET /api/headless/sessions/den?ticket=" + first, code: contracts.CodeUnauthenticated})
			f.want(shot{what: "GET /api/headless/sessions/den?ticket=" + last})
			f.works()
		}},
		{name: "requests without end", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--request-burst", "40", "--request-rate", "0.0001")
			if got := f.overrun(300, shot{as: "mallory", what: "GET /api/headless/sessions/den/state"}, limited); got != 40 {
				t.Errorf("got %d through, want 40", got)
			}
			f.works()
		}},
		{name: "requests without end over one connection", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--request-burst", "40", "--request-rate", "0.0001")
			one := "GET /api/headless/sessions/den/state HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer " + f.keys["mallory"] + "\r\n\r\n"
			statuses := map[int]int{}
			for _, r := range answers(t, f.raw(strings.Repeat(one, 300))) {
				statuses[r.status]++
			}
			if statuses[200] != 40 || statuses[429] == 0 || len(statuses) != 2 {
				t.Errorf("got answers %v, want 40 through", statuses)
			}
			f.works()
		}},
		{name: "guessing", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t)
			statuses := map[int]int{}
			for i := range 300 {
				f.keys["nobody"] = fmt.Sprintf("guess-%040d", i)
				statuses[f.fire(shot{as: "nobody", what: "GET /api/headless/sessions"}).status]++
			}
			if statuses[401] < 50 || statuses[429] == 0 || len(statuses) != 2 {
				t.Errorf("got answers %v, want 401 and then 429", statuses)
			}
			f.works() // from the same address
			f.from = 77
			f.refuses(shot{as: "nobody", what: "GET /api/headless/sessions", code: contracts.CodeUnauthenticated})
		}},
		{name: "a flood on a stream", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t)
			p := f.dial()
			head, _ := f.request(shot{as: "mallory", what: "GET /api/headless/sessions/den/events"})
			if _, err := io.WriteString(p, head); err != nil {
				t.Fatal(err)
			}
			if r := f.read(p); r.status != 200 {
				t.Fatalf("got %d, want a stream", r.status)
			}
			sent := 0
			for n, err := 0, error(nil); err == nil; sent += n {
				if n, err = p.Write(make([]byte, 64<<10)); sent > 64<<20 {
					t.Fatalf("sent %d MiB on a stream, want it to be cut", sent>>20)
				}
			}
			f.works()
		}},
		{name: "lists without end that nobody reads", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--max-sessions", "1000", "--write-timeout", "2s")
			for i := range 300 { // so that a list fills the buffers of a socket soon
				id := fmt.Sprintf("%s%03d", strings.Repeat("a-long-name-", 8), i)
				f.want(shot{as: "mallory", what: "POST /api/headless/sessions", body: `{"sessionId":"` + id + `","role":"viewer"}`})
			}
			var wg sync.WaitGroup
			for range 20 {
				p := f.upgrade(shot{as: "mallory", what: "WS /api/headless/lists/ws"})
				wg.Go(func() { // ends when the server gives up
					for i := 0; ; i++ {
						if _, err := p.Write(frame(opText, fmt.Sprintf(`{"type":"ws.follow","lists":["inbox","sessions"],"limit":%d}`, 499+i%2))); err != nil {
							if errors.Is(err, os.ErrDeadlineExceeded) {
								t.Error("the server goes on with a client that does not read")
							}
							return
						}
					}
				})
			}
			f.works() // among them
			wg.Wait()
			f.works()
		}},
		{name: "slow heads", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--header-timeout", "2s")
			var slow []*peer
			for range 300 {
				p := f.dial()
				if _, err := io.WriteString(p, "GET /api/headless/sessions HTTP/1.1\r\nHost: "+f.addr+"\r\nX-Slow: "); err != nil {
					t.Fatal(err)
				}
				slow = append(slow, p)
			}
			f.works() // among them
			for _, p := range slow {
				p.givenUp(t)
			}
		}},
		{name: "slow bodies", strike: func(t *testing.T, _ *fort) {
			f := floodFort(t, "--read-timeout", "2s")
			var slow []*peer
			for _, what := range []string{"POST /api/headless/connections", "POST /api/headless/sessions/den/messages", "POST /api/headless/ws-tickets", "POST /login"} {
				p := f.dial()
				head, _ := f.request(shot{as: "mallory", what: what, headers: []string{"Content-Length: 1000"}})
				if _, err := io.WriteString(p, head+`{"x":`); err != nil {
					t.Fatal(err)
				}
				slow = append(slow, p)
			}
			f.works()
			for _, p := range slow {
				p.givenUp(t)
			}
			f.works()
		}},
	}
}

// givenUp fails the test unless the server ends the connection.
func (p *peer) givenUp(t *testing.T) {
	t.Helper()
	if all, err := io.ReadAll(p.r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %.200q and no end, want the server to give up", all)
	}
}

// halfOpenStreams opens thousands of streams and reads none.
func halfOpenStreams(t *testing.T, _ *fort) {
	const most, tries = 200, 3000
	f := floodFort(t, "--attach-burst", strconv.Itoa(most), "--attach-rate", "0.0001", "--request-rate", "-1")
	head, _ := f.request(shot{as: "mallory", what: "GET /api/headless/sessions/den/events"})
	var mu sync.Mutex
	statuses := map[int]int{}
	var open []net.Conn
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // ends with its share of the tries
			for range tries / 8 {
				p, err := f.stream(head)
				mu.Lock()
				if err != nil {
					t.Error(err)
				} else if statuses[p.status]++; p.status == http.StatusOK {
					open = append(open, p.conn)
				} else {
					_ = p.conn.Close()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if statuses[http.StatusOK] != most-1 || statuses[http.StatusTooManyRequests] != tries-most+1 {
		t.Errorf("got answers %v, want %d streams and otherwise 429", statuses, most-1)
	}
	f.works()
	for _, c := range open {
		_ = c.Close()
	}
}

// A stream that was asked for.
type asked struct {
	conn   net.Conn
	status int
}

func (f *fort) stream(head string) (asked, error) {
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		return asked{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return asked{}, err
	}
	if _, err := io.WriteString(conn, head); err != nil {
		return asked{}, err
	}
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, line); err != nil {
		return asked{}, err
	}
	status, err := strconv.Atoi(string(line[len(line)-3:]))
	return asked{conn, status}, err
}
