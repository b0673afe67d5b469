package ws

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
)

const (
	partText     = 0x01 // a text message's first fragment of several
	continuation = 0x00
	finContinue  = 0x80
	finBinary    = 0x82
)

func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

func unmask(first byte, payload string) []byte {
	return append([]byte{first, byte(len(payload))}, payload...)
}

func TestBrokenFramingEndsTheConnection(t *testing.T) {
	s := newServer(t, false, Options{MaxFrameBytes: 1000})
	long := strings.Repeat("x", 1001)
	for _, tt := range []struct {
		name, want string
		bytes      []byte
	}{
		{"binary", "1003 bad_request", mask(finBinary, "x")},
		{"binary in fragments", "1003 bad_request", mask(0x02, "x")},
		{"invalid UTF-8", "1007 bad_request", mask(finText, "a\xff")},
		{"invalid UTF-8 across fragments", "1007 bad_request", join(mask(partText, "\xc3"), mask(finContinue, "a"))},
		{"half a character at the end", "1007 bad_request", mask(finText, "\xc3")},
		{"too large", "1009 payload_too_large", mask(finText, long)},
		{"too large in fragments", "1009 payload_too_large", join(mask(partText, long[:600]), mask(finContinue, long[:600]))},
		{"header that promises too much", "1009 payload_too_large", join(maskHeader(finText, 1<<62), []byte(long))},
		{"header that promises the most there is, and nothing else", "1009 payload_too_large", maskHeader(finText, 1<<63-1)},
		{"header that promises a byte too much, and nothing else", "1009 payload_too_large", maskHeader(finText, 1001)},
		{"header after a ping that promises too much, and nothing else", "1009 payload_too_large", join(mask(finPing, "x"), maskHeader(finText, 1<<40))},
		{"header of a fragment that promises too much, and nothing else", "1009 payload_too_large", join(mask(partText, long[:600]), maskHeader(finContinue, 401))},
		{"negative length", "1002 bad_request", maskHeader(finText, 1<<63)},
		{"not masked", "1002 bad_request", unmask(finText, "x")},
		{"ping that is not masked", "1002 bad_request", unmask(finPing, "x")},
		{"reserved bit 1", "1002 bad_request", mask(finText|0x40, "x")},
		{"reserved bit 2", "1002 bad_request", mask(finText|0x20, "x")},
		{"reserved bit 3", "1002 bad_request", mask(finText|0x10, "x")},
		{"reserved data opcode", "1002 bad_request", mask(0x83, "x")},
		{"reserved control opcode", "1002 bad_request", mask(0x8b, "x")},
		{"continuation of nothing", "1002 bad_request", mask(finContinue, "x")},
		{"message within a message", "1002 bad_request", join(mask(partText, "x"), mask(finText, "x"))},
		{"fragmented ping", "1002 bad_request", mask(0x09, "x")},
		{"long ping", "1002 bad_request", mask(finPing, strings.Repeat("x", 126))},
		{"close with half a code", "1002 bad_request", mask(finClose, "\x03")},
		{"close with a reason that is not UTF-8", "1007 bad_request", mask(finClose, "\x03\xe8a\xff")},
		{"close with a code that must not be sent", "1002 bad_request", mask(finClose, "\x03\xed")},
		{"garbage", "1002 bad_request", []byte("GET / HTTP/1.1\r\n\r\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := s.raw()
			receive(t, s.conns)
			p.trySend(tt.bytes)
			if got := p.closed(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := receive(t, s.read); got.err == nil {
				t.Errorf("got a frame %q, want none", got.text)
			}
		})
	}
}

func TestOddButLegalFramingPasses(t *testing.T) {
	s := newServer(t, false, Options{MaxFrameBytes: 1000})
	full := strings.Repeat("x", 1000)
	for _, tt := range []struct {
		name, want string
		bytes      []byte
	}{
		{"empty", "", mask(finText, "")},
		{"at the limit", full, mask(finText, full)},
		{"length in eight bytes", "hi", join([]byte{finText, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 2}, maskKey[:], xor("hi"))},
		{"character across fragments", "aäb", join(mask(partText, "a\xc3"), mask(finContinue, "\xa4b"))},
		{"pings between fragments", "abc", join(mask(partText, "a"), mask(finPing, ""), mask(continuation, "b"), mask(finPong, "x"), mask(finContinue, "c"))},
		{"empty fragments", "ab", join(mask(partText, ""), mask(continuation, "a"), mask(continuation, ""), mask(finContinue, "b"))},
		{"many fragments", full, join(mask(partText, ""), bytes.Repeat(mask(continuation, "x"), 1000), mask(finContinue, ""))},
		{"unasked pong", "a", join(mask(finPong, "x"), mask(finText, "a"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := s.raw()
			receive(t, s.conns)
			p.send(tt.bytes)
			if got := receive(t, s.read); got.err != nil || got.text != tt.want {
				t.Errorf("got %q, %v, want %q", got.text, got.err, tt.want)
			}
			_ = p.Close()
			receive(t, s.read) // the end
		})
	}
}

// A message whose end is the end of the connection is not a message: it could
// be the beginning of another.
func TestTruncatedMessageIsNotDelivered(t *testing.T) {
	s := newServer(t, false, Options{})
	for name, b := range map[string][]byte{
		"after a header":             maskHeader(finText, 5),
		"inside a payload":           join(maskHeader(finText, 5), xor("abc")),
		"at the buffer's end":        join(maskHeader(finText, 2*firstRead), xor(strings.Repeat("x", firstRead))),
		"between fragments":          mask(partText, `{"type":"interrupt"}`),
		"inside a fragment's header": join(mask(partText, "{}"), []byte{finContinue}),
	} {
		t.Run(name, func(t *testing.T) {
			p := s.raw()
			receive(t, s.conns)
			p.send(b)
			_ = p.Close()
			if got := receive(t, s.read); got.err == nil || got.err == io.EOF {
				t.Errorf("got %q, %v, want an error", got.text, got.err)
			}
		})
	}
}

func TestEndlessFragmentsAreCutOff(t *testing.T) {
	for name, fragment := range map[string][]byte{
		"empty":    mask(continuation, ""),
		"one byte": mask(continuation, "x"),
		"pings":    mask(finPing, ""),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, false, Options{MaxFrameBytes: 100 << 10})
			p := s.raw()
			receive(t, s.conns)
			sent := make(chan int, 1)
			go func() { // ends when the server hangs up
				flood := bytes.Repeat(fragment, 1000)
				n, err := p.Write(mask(partText, "x"))
				for err == nil {
					var m int
					m, err = p.Write(flood)
					n += m
				}
				sent <- n
			}()
			if got, want := p.closed(), "1009 payload_too_large"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			receive(t, sent)
		})
	}
}

// TestUnfinishedMessagesAreBounded sends messages without their ends.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := connlimit.New(connlimit.Options{Unfinished: 1 << 20, PrincipalUnfinished: 512 << 10})
		s := newServer(t, true, Options{ConnLimit: d, Authorize: func(r *http.Request) (contracts.Principal, error) {
			return contracts.Principal{ID: "share_" + r.Header.Get("Who"), SessionID: "main"}, nil
		}})
		begin := func(who string) *raw {
			p := s.rawAs("Who: " + who + "\r\n")
			<-s.conns
			whole := mask(finText, strings.Repeat("x", 200<<10))
			go p.trySend(whole[:len(whole)-1]) // ends with the connection
			synctest.Wait()
			return p
		}
		first := begin("a") // 256 KiB
		if got := d.Counts().Unfinished; got != 256<<10 {
			t.Errorf("got %d bytes counted, want %d", got, 256<<10)
		}
		if got := begin("a").closed(); got != "4429 rate_limited" {
			t.Errorf("the same principal: got %q, want 4429", got)
		}
		<-s.read
		begin("b")
		if got := begin("c").closed(); got != "1013 overloaded" {
			t.Errorf("a third one: got %q, want 1013", got)
		}
		<-s.read
		p := s.rawAs("Who: c\r\n")
		<-s.conns
		p.send(mask(finText, "short"))
		if got := <-s.read; got.text != "short" {
			t.Errorf("a short message: got %+v, want it", got)
		}
		first.send(mask(finText, "x")[len(mask(finText, "")):]) // the last byte
		if got := <-s.read; got.err != nil || len(got.text) != 200<<10 {
			t.Errorf("the rest of the first: got %d bytes, %v, want all of it", len(got.text), got.err)
		}
		synctest.Wait()
		if got := d.Counts().Unfinished; got != 256<<10 { // that of b
			t.Errorf("got %d bytes counted, want %d", got, 256<<10)
		}
	})
}

func TestMessageThatDripsTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.raw()
		<-s.conns
		start := time.Now()
		var drip sync.WaitGroup
		defer drip.Wait()
		drip.Go(func() { // a byte a second, until the server hangs up
			for _, b := range mask(finText, strings.Repeat("x", 100)) {
				if _, err := p.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		if got, want := p.closed(), "4408 timeout"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		// The header, six bytes, comes first; a last second goes to the close.
		if took := time.Since(start); took > 40*time.Second {
			t.Errorf("took %v, want about 36 s", took)
		}
		<-s.read
	})
}

func TestSilencePastAMessageIsNoOffence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.raw()
		<-s.conns
		for range 3 {
			p.send(mask(finText, "x"))
			if got := <-s.read; got.text != "x" {
				t.Fatalf("got %+v, want x", got)
			}
			time.Sleep(time.Hour)
		}
	})
}

// Whatever a peer sends after the handshake, the connection ends or goes on,
// and what is delivered is text within the limit.
func FuzzPeer(f *testing.F) {
	f.Add(mask(finText, "{}"))
	f.Add(join(mask(partText, "a"), mask(finPing, "p"), mask(finContinue, "b"), mask(finClose, "\x03\xe8")))
	f.Add(unmask(finText, "x"))
	f.Add(maskHeader(finText, 1<<40))
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, true, Options{MaxFrameBytes: 64})
			p := s.raw()
			<-s.conns
			go func() { _, _ = io.Copy(io.Discard, p.r) }() // ends with the connection
			p.trySend(b)
			_ = p.Close()
			for {
				got := <-s.read
				if got.err != nil {
					break
				}
				if len(got.text) > 64 {
					t.Fatalf("got %d bytes, want at most 64", len(got.text))
				}
			}
		})
	})
}
