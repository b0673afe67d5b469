package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
)

var sent = time.UnixMicro(1_700_000_000_000_000)

// frame is a server's frame.
func frame(opcode byte, payload string) []byte {
	b := []byte{0x80 | opcode}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

func message(n uint64) string { return string(control.Envelope(control.Text(n, sent))) }

// traffic is messages 0 to 5 in every shape a server may choose: one in a
// frame, several in one, one across two frames, control frames between, and one
// behind padding of the given size.
func traffic(padding int) []byte {
	m := message(3)
	var b []byte
	b = append(b, frame(opText, message(0))...)
	b = append(b, frame(opPing, "are you there")...)
	b = append(b, frame(opText, message(1)+message(2))...)
	b = append(b, frame(opBinary, m[:110])...)
	b = append(b, frame(opPing, "")...)
	b = append(b, frame(opContinuation, m[110:])...)
	b = append(b, frame(opText, `{"type":"heartbeat","cursor":9}`)...)
	b = append(b, frame(opText, "")...)
	return append(b, frame(opText, strings.Repeat(" ", padding)+message(4)+message(5))...)
}

func TestStreamCountsMessagesHoweverTheyAreCut(t *testing.T) {
	all := traffic(1 << 16)
	for _, size := range []int{1, 2, 3, 7, 26, 27, 100, 203, 4096, len(all)} {
		var s stream
		sum := tally{timed: true, now: sent.UnixMicro() + 250}
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			if err := s.feed(rest[:n], &sum); err != nil {
				t.Fatalf("pieces of %d bytes: %v", size, err)
			}
			rest = rest[n:]
		}
		if s.next != 6 || sum.deliveries != 6 {
			t.Errorf("pieces of %d bytes: got next %d and %d deliveries, want 6 and 6", size, s.next, sum.deliveries)
		}
		if sum.frames != 7 || sum.bytes != int64(len(all)) {
			t.Errorf("pieces of %d bytes: got %d frames and %d bytes, want 7 and %d", size, sum.frames, sum.bytes, len(all))
		}
		if got := fmt.Sprint(sum.ages); got != "[250 250 250 250 250 250]" {
			t.Errorf("pieces of %d bytes: got ages %s, want six of 250", size, got)
		}
		pongs := appendMasked(appendMasked(nil, opPong, []byte("are you there")), opPong, nil)
		if string(s.reply) != string(pongs) {
			t.Errorf("pieces of %d bytes: got reply %q, want %q", size, s.reply, pongs)
		}
	}
}

// event is a server-sent event.
func event(data string) string { return "id: e.1\ndata: " + data + "\n\n" }

// chunked is one chunk.
func chunked(data string) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(data), data) }

// streaming is messages 0 to 5 in chunks of every kind: with one event, with
// several, with a part of one, without any, and behind padding of the given size.
func streaming(padding int) []byte {
	m := event(message(3))
	var b []byte
	b = append(b, chunked(event(message(0)))...)
	b = append(b, chunked(event(message(1))+event(message(2)))...)
	b = append(b, chunked(m[:110])...)
	b = append(b, chunked(m[110:])...)
	b = append(b, chunked(": ka\n\n")...)
	return append(b, chunked(strings.Repeat(":", padding)+event(message(4))+event(message(5)))...)
}

func TestStreamCountsMessagesHoweverTheyAreChunked(t *testing.T) {
	all := streaming(1 << 16)
	for _, size := range []int{1, 2, 3, 7, 26, 27, 100, 203, 4096, len(all)} {
		s := stream{chunked: true}
		sum := tally{timed: true, now: sent.UnixMicro() + 250}
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			if err := s.feed(rest[:n], &sum); err != nil {
				t.Fatalf("pieces of %d bytes: %v", size, err)
			}
			rest = rest[n:]
		}
		if s.next != 6 || sum.deliveries != 6 || len(sum.ages) != 6 {
			t.Errorf("pieces of %d bytes: got next %d, %d deliveries and %d ages, want 6 of each", size, s.next, sum.deliveries, len(sum.ages))
		}
		if sum.frames != 6 || sum.bytes != int64(len(all)) {
			t.Errorf("pieces of %d bytes: got %d chunks and %d bytes, want 6 and %d", size, sum.frames, sum.bytes, len(all))
		}
		if len(s.reply) > 0 {
			t.Errorf("pieces of %d bytes: got reply %q, want none: nobody listens", size, s.reply)
		}
	}
}

func TestStreamNoticesChunksThatAreNone(t *testing.T) {
	one := string(chunked(event(message(0))))
	for _, tt := range []struct{ name, want, in string }{
		{"lost", "got number 1, want 0", string(chunked(event(message(1))))},
		{"repeated", "got number 0, want 1", one + one},
		{"damaged", "damaged message", strings.Replace(one, "#0", "#x", 1)},
		{"ended", "server ended the stream", one + "0\r\n\r\n"},
		{"longer than it says", "does not end where", "3\r\nabcd\r\n"},
		{"shorter than it says", "does not end where", "5\r\nabcd\r\n1\r\na\r\n"},
		{"no size", "not the size", "\r\nabcd\r\n"},
		{"not a number", "not the size", "-1\r\nabcd\r\n"},
		{"too large", "not the size", "10000000000000000\r\nabcd\r\n"},
		{"without an end", "too long", strings.Repeat("0", 100)},
		{"a WebSocket", "not the size", "\x81\x02\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stream{chunked: true}
			err := s.feed([]byte(tt.in), &tally{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("feed: got %v, want an error with %q", err, tt.want)
			}
			cut := stream{chunked: true}
			var errCut error
			for i := 0; i < len(tt.in) && errCut == nil; i++ {
				errCut = cut.feed([]byte(tt.in[i:i+1]), &tally{})
			}
			if fmt.Sprint(errCut) != fmt.Sprint(err) {
				t.Errorf("feed byte by byte: got %v, want %v", errCut, err)
			}
		})
	}
}

func TestUnchunkReturnsWhatIsThere(t *testing.T) {
	all, want := streaming(3), ""
	for n := range uint64(6) {
		if n == 4 {
			want += ": ka\n\n:::"
		}
		want += event(message(n))
	}
	had := 0
	for n := range len(all) + 1 {
		body, err := unchunk(all[:n])
		if err != nil || !strings.HasPrefix(want, string(body)) || len(body) < had {
			t.Fatalf("the first %d bytes: got %q, %v; want %d bytes or more of %q", n, body, err, had, want)
		}
		had = len(body)
	}
	if had != len(want) {
		t.Errorf("unchunk of everything: got %d bytes, want %d", had, len(want))
	}
	if _, err := unchunk([]byte("3\r\nabcd\r\n")); err == nil {
		t.Errorf("unchunk of a chunk that is longer than it says: got no error, want one")
	}
}

func TestStreamNoticesWhatAServerMustNotDo(t *testing.T) {
	masked := frame(opText, "hello")
	masked[1] |= 0x80
	compressed := frame(opText, "hello")
	compressed[0] |= 0x40
	for _, tt := range []struct {
		name, want string
		in         []byte
	}{
		{"lost", "got number 1, want 0", frame(opText, message(1))},
		{"repeated", "got number 0, want 1", frame(opText, message(0)+message(0))},
		{"damaged", "damaged message", frame(opText, strings.Replace(message(0), "#0", "#x", 1))},
		{"masked", "masked frame", masked},
		{"compressed", "reserved bits", compressed},
		{"long ping", "control frame is too long", frame(opPing, strings.Repeat("p", 126))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s stream
			err := s.feed(tt.in, &tally{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("feed: got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestCloseFrameEndsAStreamWithItsCode(t *testing.T) {
	for _, tt := range []struct {
		payload string
		want    closedError
	}{
		{"\x11\x4dslow_consumer", closedError{4429, "slow_consumer"}},
		{"", closedError{1005, ""}},
	} {
		var s stream
		got, ok := errors.AsType[*closedError](s.feed(frame(opClose, tt.payload), &tally{}))
		if !ok || *got != tt.want {
			t.Errorf("close frame %q: got %v, want %v", tt.payload, got, tt.want)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add(traffic(0), uint8(3), false) // small: the fuzzer is slow with large inputs
	f.Add(frame(opClose, "\x03\xe8bye"), uint8(1), false)
	f.Add([]byte{0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255, '#'}, uint8(1), false)
	f.Add([]byte("\x81 #0000000000000000000000000A0000000"), uint8(1), false) // a damaged message is no frame, however it is cut
	f.Add(streaming(0), uint8(3), true)
	f.Add([]byte("ffffffffffffffff\r\n#"), uint8(1), true)
	f.Add([]byte("1;a=b\r\n#\r\n0\r\n\r\n"), uint8(1), true)
	f.Fuzz(func(t *testing.T, in []byte, size uint8, chunked bool) {
		whole, cut := stream{chunked: chunked}, stream{chunked: chunked}
		var sumWhole, sumCut tally
		errWhole := whole.feed(in, &sumWhole)
		var errCut error
		for rest := in; len(rest) > 0 && errCut == nil; {
			n := min(int(size)+1, len(rest))
			errCut = cut.feed(rest[:n], &sumCut)
			rest = rest[n:]
		}
		if fmt.Sprint(errWhole) != fmt.Sprint(errCut) || whole.next != cut.next || sumWhole.frames != sumCut.frames {
			t.Errorf("in pieces of %d: got %v after %d messages in %d frames, want %v, %d, %d",
				int(size)+1, errCut, cut.next, sumCut.frames, errWhole, whole.next, sumWhole.frames)
		}
	})
}
