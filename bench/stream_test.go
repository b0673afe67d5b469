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
	f.Add(traffic(0), uint8(3)) // small: the fuzzer is slow with large inputs
	f.Add(frame(opClose, "\x03\xe8bye"), uint8(1))
	f.Add([]byte{0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255, '#'}, uint8(1))
	f.Add([]byte("\x81 #0000000000000000000000000A0000000"), uint8(1)) // a damaged message is no frame, however it is cut
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		var whole, cut stream
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
