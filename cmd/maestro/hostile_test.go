//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

const (
	pairWords = 100 // of the answer to most prompts

	// promptLong is answered with more than the kernel keeps for a connection.
	promptLong  = "at length"
	longPieces  = 240
	longLetters = 50_000
)

// shortText and longText are the answers in full.
func shortText() string {
	var text strings.Builder
	for i := range pairWords {
		fmt.Fprintf(&text, "word-%d ", i+1)
	}
	return text.String()
}

func longText() string { return strings.Repeat(strings.Repeat("x", longLetters), longPieces) }

// A pair is a controller and a viewer that behave.
type pair struct{ controller, viewer *client.Client }

// client attaches as the owner.
func (v victim) client(ctx context.Context, role contracts.Role) (*client.Client, error) {
	opts := []client.Option{client.WithRole(role), client.WithoutReconnect()}
	if v.token != "" {
		opts = append(opts, client.WithTokenFile(v.token))
	}
	return client.Dial(ctx, "http://"+v.addr, opts...)
}

func newPair(t *testing.T, v victim) pair {
	t.Helper()
	dial := func(role contracts.Role) *client.Client {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c, err := v.client(ctx, role)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(false) })
		return c
	}
	return pair{dial(contracts.RoleController), dial(contracts.RoleViewer)}
}

// works fails the test unless a prompt is answered, in full and for both.
func (p pair) works(t *testing.T) {
	t.Helper()
	p.answers(t, "go on", shortText())
}

// answers fails the test unless both get want as the answer to a prompt.
func (p pair) answers(t *testing.T, prompt, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var texts [2]string
	var errs [2]error
	var wg sync.WaitGroup
	for i, c := range []*client.Client{p.controller, p.viewer} {
		wg.Go(func() { texts[i], errs[i] = answer(ctx, c) }) // ends with ctx
	}
	if _, err := p.controller.Prompt(ctx, prompt); err != nil {
		cancel()
		t.Errorf("prompt: %v", err)
	}
	wg.Wait()
	for i, who := range []string{"controller", "viewer"} {
		if errs[i] != nil || texts[i] != want {
			t.Fatalf("%s: got %d bytes %.60q, %v, want %d bytes", who, len(texts[i]), texts[i], errs[i], len(want))
		}
	}
}

// answer returns the text of the next response.
func answer(ctx context.Context, c *client.Client) (string, error) {
	var text strings.Builder
	for u, err := range c.Updates(ctx) {
		if err != nil {
			return text.String(), err
		}
		switch e := u.Event.(type) {
		case *contracts.ResponseChunk:
			text.WriteString(e.Content)
		case *contracts.ResponseEnd:
			return text.String(), nil
		}
	}
	return text.String(), errors.New("the client was closed")
}

const (
	crowdSize = 10_000
	spare     = 500 // descriptors for everything but the crowd

	// perMember is several times what an idle connection costs; a server that
	// queued for those who do not read would need far more.
	perMember  = 64 << 10
	crowdFloor = 256 << 20
)

// TestCrowdThatNeverReadsHurtsNobody fills a server up with connections that
// stop reading as soon as they are attached, and lets others work among them.
func TestCrowdThatNeverReadsHurtsNobody(t *testing.T) {
	size := crowd(t)
	// The race detector would use more memory for the crowd than the server.
	v := serveScript(t, buildBinary(t), "--attach-rate", "-1", "--max-connections", strconv.Itoa(size+2))
	p := newPair(t, v) // the two
	p.works(t)
	before := v.resident(t)
	peers := gather(t, v, size)
	p.works(t)
	p.works(t)
	got, most := v.resident(t)-before, int64(size*perMember+crowdFloor)
	t.Logf("a crowd of %d costs the server %d MiB", size, got>>20)
	if got > most {
		t.Errorf("got %d MiB more for a crowd of %d, want at most %d", got>>20, size, most>>20)
	}
	for range 20 {
		_, err := v.upgrade(t.Context(), "")
		if e, ok := errors.AsType[*refusedUpgrade](err); !ok || e.status != http.StatusServiceUnavailable || e.code != contracts.CodeOverloaded {
			t.Errorf("one too many: got %v, want 503 %s", err, contracts.CodeOverloaded)
		}
	}
	for _, m := range peers {
		_ = m.Close() // the server may have given it up
	}
	p.works(t)
}

// TestStalledViewersCostNoQueue lets more text flow than the kernel takes for
// those who do not read. They must cost a cursor, not what they have missed.
func TestStalledViewersCostNoQueue(t *testing.T) {
	const stalled, most = 50, 256 << 20
	v := serveScript(t, buildBinary(t))
	p := newPair(t, v)
	p.answers(t, promptLong, longText()) // what the journal keeps in memory is there from now on
	before := v.resident(t)
	for _, m := range gather(t, v, stalled) {
		defer m.Close()
	}
	p.answers(t, promptLong, longText())
	got := v.resident(t) - before
	t.Logf("%d viewers that missed %d MiB each cost the server %d MiB", stalled, longPieces*longLetters>>20, got>>20)
	if got > most {
		t.Errorf("got %d MiB more, want at most %d", got>>20, most>>20)
	}
	p.works(t)
}

// crowd raises the limit of open files and returns how many peers it allows, at
// most crowdSize.
func crowd(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max >= crowdSize+spare {
		return crowdSize
	}
	size := max(int(limit.Max)-spare, 100)
	t.Logf("%d files may be open: a crowd of %d instead of %d", limit.Max, size, crowdSize)
	return size
}

// gather attaches size peers that read nothing after that.
func gather(t *testing.T, v victim, size int) []*peer {
	t.Helper()
	peers := make([]*peer, size)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { // ends when all have attached, or one has not
			for i := next.Add(1) - 1; i < int64(size); i = next.Add(1) - 1 {
				m, err := v.attach(t.Context(), "", quietText)
				if err != nil {
					t.Errorf("peer %d: %v", i, err)
					return
				}
				peers[i] = m
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return peers
}

// TestUnfinishedHandshakesAreClosed leaves handshakes unfinished in every way.
func TestUnfinishedHandshakesAreClosed(t *testing.T) {
	t.Parallel()
	v := serveScript(t, "", "--handshake-timeout", "2s", "--header-timeout", "2s")
	p := newPair(t, v)
	hello := string(frame(opText, helloText))
	const timedOut = "4408 timeout"
	tests := []struct {
		name     string
		upgraded bool
		sends    string
		slowly   string // and then this, a byte a second
		want     string // how it ends; empty: without a close frame
	}{
		{"no byte", false, "", "", ""},
		{"half a request", false, v.request("")[:60], "", ""},
		{"request without an end", false, v.request(""), "", ""},
		{"request byte by byte", false, "", v.request(""), ""},
		{"no hello", true, "", "", timedOut},
		{"half a frame header", true, hello[:1], "", timedOut},
		{"half a hello", true, hello[:20], "", timedOut},
		{"hello byte by byte", true, "", hello, timedOut},
		{"pings instead of a hello", true, "\x89\x80\x00\x00\x00\x00", strings.Repeat("\x89\x80\x00\x00\x00\x00", 20), timedOut},
		{"resume without a hello", true, string(frame(opText, `{"type":"ws.resume","connection_token":"x"}`)), "", timedOut},
	}
	peers := make([]*peer, len(tests)) // all at once, so that their time runs out together
	for i, tt := range tests {
		begin := v.upgrade
		if !tt.upgraded {
			begin = func(ctx context.Context, _ string) (*peer, error) { return v.dial(ctx) }
		}
		peers[i] = unfinished(t, begin, tt.sends, tt.slowly)
	}
	p.works(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.upgraded {
				if got, err := peers[i].until(""); got != tt.want {
					t.Errorf("got %q, %v, want %q", got, err, tt.want)
				}
				return
			}
			_, err := io.Copy(io.Discard, peers[i].r) // an answer is as good as none
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %v, want the server to hang up", err)
			}
		})
	}
	p.works(t)
}

// unfinished begins a handshake with what is sent at once and goes on slowly
// until the test has ended.
func unfinished(t *testing.T, begin func(context.Context, string) (*peer, error), sends, slowly string) *peer {
	t.Helper()
	m, err := begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(m, sends); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { m.trickle(slowly, ended) }) // ends with ended at the latest
	t.Cleanup(func() {
		close(ended)
		_ = m.Close() // the server has hung up
		wg.Wait()
	})
	return m
}

// trickle sends text one byte a second until it or the connection ends.
func (p *peer) trickle(text string, ended <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range len(text) {
		select {
		case <-tick.C:
		case <-ended:
			return
		}
		if _, err := p.Write([]byte{text[i]}); err != nil {
			return
		}
	}
}

// TestGarbageIsRefusedWithACode sends what no client sends, to a server that others use.
func TestGarbageIsRefusedWithACode(t *testing.T) {
	t.Parallel()
	v := serveScript(t, "")
	p := newPair(t, v)
	before := v.resident(t)
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  string // a close code and reason, or the code of a refusal after which the connection goes on
	}{
		{"no frames at all", []byte("GET / HTTP/1.1\r\n\r\n"), "1002 bad_request"},
		{"every bit set", []byte(strings.Repeat("\xff", 64)), "1002 bad_request"},
		{"binary", frame(opBinary, helloText), "1003 bad_request"},
		{"not UTF-8", frame(opText, "{\"type\":\"\xff\"}"), "1007 bad_request"},
		{"too long", frame(opText, `{"type":"prompt","content":"`+strings.Repeat("x", contracts.MaxSocketBytes)+`"}`), "1009 payload_too_large"},
		{"empty", frame(opText, ""), "4400 bad_request"},
		{"not JSON", frame(opText, "hello?"), "4400 bad_request"},
		{"two values", frame(opText, `{"type":"interrupt"}{"type":"interrupt"}`), "4400 bad_request"},
		{"half a value", frame(opText, `{"type":"prompt","content":"`), "4400 bad_request"},
		{"control frame nobody knows", frame(opText, `{"type":"ws.nonsense"}`), "4400 bad_request"},
		{"too deep", frame(opText, `{"type":"interrupt","x":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`), "4400 bad_request"},
		{"duplicate key", frame(opText, `{"type":"prompt","content":"a","content":"b"}`), "bad_request"},
		{"type nobody knows", frame(opText, `{"type":"nonsense"}`), "bad_request"},
		{"no type", frame(opText, `{"content":"a"}`), "bad_request"},
		{"not an object", frame(opText, `[]`), "bad_request"},
		{"wrong type of a value", frame(opText, `{"type":"prompt","content":7}`), "bad_request"},
		{"huge number", frame(opText, `{"type":"ws.ack","cursor":1e999999999}`), "bad_request"},
		{"command of another", frame(opText, `{"type":"prompt","content":"a"}`), "access_denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := v.attach(t.Context(), "?role=viewer", helloText)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			_, _ = m.Write(tt.bytes) // the server may hang up in the middle
			if strings.Contains(tt.want, " ") {
				if got, err := m.until(""); got != tt.want {
					t.Errorf("got %q, %v, want %q", got, err, tt.want)
				}
				return
			}
			if got, err := m.until(`"type":"ws.error"`); !strings.Contains(got, `"code":"`+tt.want+`"`) {
				t.Errorf("got %.200q, %v, want a refusal with code %s", got, err, tt.want)
			}
			m.send(`{"type":"ws.ping","id":"still here"}`)
			if got, err := m.until(`"type":"ws.pong"`); !strings.Contains(got, "still here") {
				t.Errorf("got %.200q, %v, want a pong: the connection goes on", got, err)
			}
		})
	}
	p.works(t)
	if got, most := v.resident(t), 8*before; got > most {
		t.Errorf("got %d MiB, want at most %d", got>>20, most>>20)
	}
}

// TestBadRequestsAreRefusedBeforeTheUpgrade sends HTTP that is no attachment.
func TestBadRequestsAreRefusedBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	v := serveScript(t, "")
	p := newPair(t, v)
	for _, tt := range []struct {
		name    string
		request string
		want    string
	}{
		{"oversize header", v.request("") + "X-Much: " + strings.Repeat("x", 256<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"oversize query", v.request("?sessionId=" + strings.Repeat("x", 256<<10)), "HTTP/1.1 431 "},
		{"many headers", v.request("") + strings.Repeat("X-Many: x\r\n", 30_000) + "\r\n", "HTTP/1.1 431 "},
		{"no HTTP", strings.Repeat("\x00\xff", 100) + "\r\n\r\n", "HTTP/1.1 400 "},
		{"strange host", strings.Replace(v.request("")+"\r\n", "Host: "+v.addr, "Host: evil.example", 1), "HTTP/1.1 4"},
		{"strange origin", v.request("") + "Origin: https://evil.example\r\n\r\n", "HTTP/1.1 403 "},
		{"broken cursor", v.request("?cursor=nonsense") + "\r\n", "HTTP/1.1 400 "},
		{"unknown session", v.request("?sessionId=nonsense") + "\r\n", "HTTP/1.1 404 "},
		{"session outside", v.request("?create=1&sessionId=../../x") + "\r\n", "HTTP/1.1 400 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := v.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() { _, _ = io.WriteString(m, tt.request) }) // the server may hang up in the middle
			line, err := m.r.ReadString('\n')
			if !strings.HasPrefix(line, tt.want) {
				t.Errorf("got %q, %v, want %q", line, err, tt.want)
			}
			_ = m.Close()
		})
	}
	p.works(t)
}

// TestControllersBeyondTheCapAreRefused attaches as many as there may be, and more.
func TestControllersBeyondTheCapAreRefused(t *testing.T) {
	t.Parallel()
	const most = 8
	v := serveScript(t, "", "--max-controllers", strconv.Itoa(most))
	p := newPair(t, v) // one of them
	for i := range most - 1 {
		m, err := v.attach(t.Context(), "?role=controller&takeControl=later", strings.Replace(quietText, `"type":"hello"`, `"type":"hello","role":"controller"`, 1))
		if err != nil {
			t.Fatalf("controller %d: %v", i+2, err)
		}
		defer m.Close()
	}
	for range 10 {
		m, err := v.upgrade(t.Context(), "?role=controller&takeControl=later")
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.send(strings.Replace(quietText, `"type":"hello"`, `"type":"hello","role":"controller"`, 1))
		if got, err := m.until(`"type":"ws.attached"`); got != "4429 rate_limited" {
			t.Errorf("got %.100q, %v, want 4429 rate_limited", got, err)
		}
	}
	m, err := v.attach(t.Context(), "?role=viewer", quietText)
	if err != nil {
		t.Fatalf("a viewer: got %v, want it to be let in", err)
	}
	defer m.Close()
	p.works(t)
}

// TestHastyAttachmentsAreToldWhenToComeBack attaches faster than one principal
// may.
func TestHastyAttachmentsAreToldWhenToComeBack(t *testing.T) {
	const most = 10
	v := serveScript(t, "", "--attach-burst", strconv.Itoa(most), "--attach-rate", "0.001")
	p := newPair(t, v) // two of them
	for i := range most + 5 {
		m, err := v.upgrade(t.Context(), "")
		if i < most-2 {
			if err != nil {
				t.Fatalf("attachment %d: %v", i+3, err)
			}
			defer m.Close()
			continue
		}
		e, ok := errors.AsType[*refusedUpgrade](err)
		if !ok || e.status != http.StatusTooManyRequests || e.code != contracts.CodeRateLimited {
			t.Fatalf("attachment %d: got %v, want 429 %s", i+3, err, contracts.CodeRateLimited)
		}
		if seconds, err := strconv.Atoi(e.retryAfter); err != nil || seconds <= 0 {
			t.Errorf("got Retry-After %q, want seconds", e.retryAfter)
		}
	}
	p.works(t)
}

// TestBadLinesAreRefusedOneByOne sends lines to a local session that nobody sends.
func TestBadLinesAreRefusedOneByOne(t *testing.T) {
	t.Parallel()
	cmd := program(t, "headless", "--agent", "conformance")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	out := bufio.NewScanner(stdout)
	out.Buffer(nil, 1<<20)
	errorLine := func() string {
		for out.Scan() {
			if strings.Contains(out.Text(), `"type":"error"`) {
				return out.Text()
			}
		}
		return "the end of the output"
	}
	bad := []struct{ name, line, want string }{
		{"too long", `{"type":"prompt","content":"` + strings.Repeat("x", contracts.MaxLineBytes) + `"}`, "line exceeds"},
		{"not UTF-8", "{\"type\":\"prompt\",\"content\":\"\xff\"}", "Failed to parse command"},
		{"too deep", `{"type":"interrupt","x":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}`, "Failed to parse command"},
		{"duplicate key", `{"type":"prompt","content":"a","content":"b"}`, "content"},
		{"no object", `null`, ""},
		{"random bytes", "\x00\x01\x02\x7f\x80\xfe\xff", "Failed to parse command"},
		{"type nobody knows", `{"type":"nonsense"}`, "Unknown headless command type"},
	}
	var wg sync.WaitGroup
	wg.Go(func() { // ends when the program has read it all, or has ended
		for _, b := range slices.Concat(bad, bad) {
			_, _ = io.WriteString(stdin, b.line+"\n")
		}
		_, _ = io.WriteString(stdin, `{"type":"prompt","content":"still here?"}`+"\n")
	})
	for _, b := range slices.Concat(bad, bad) {
		if got := errorLine(); !strings.Contains(got, b.want) || !strings.Contains(got, `"error_type":"protocol"`) {
			t.Errorf("%s: got %.200s, want a protocol error with %q", b.name, got, b.want)
		}
	}
	for out.Scan() && !strings.Contains(out.Text(), `"type":"response_end"`) {
	}
	if !strings.Contains(out.Text(), `"type":"response_end"`) {
		t.Error("got no response after the bad lines, want one")
	}
	wg.Wait()
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	for out.Scan() { // until it has ended
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("got %v, want the program to end with its input", err)
	}
}
