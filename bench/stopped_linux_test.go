package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/bench/control"
)

func chunk(cursor int, text string) []byte {
	return frame(opText, fmt.Sprintf(`{"type":"message","cursor":%d,"message":{"type":"response_chunk","content":%q}}`, cursor, text))
}

func text(n uint64) string { return string(control.Text(n, sent)) }

// playback is a server that attaches a viewer and then sends it live; a viewer
// that comes back with a cursor is sent again.
func playback(t *testing.T, live, again [][]byte) (addr string, d dialect, requests chan string) {
	d = dialect{path: "/ws?role=viewer", opcode: opText, opening: "hello", answer: `"hello_ok"`}
	requests = make(chan string, 10)
	addr = listen(t, d, func(c net.Conn, request string) {
		requests <- strings.SplitN(request, "\r\n", 2)[0]
		hello := make([]byte, len(appendMasked(nil, opText, []byte(d.opening))))
		if _, err := io.ReadFull(c, hello); err != nil {
			return
		}
		attached := frame(opText, `{"type":"ws.attached","epoch":"e1"}`)
		if strings.Contains(request, "cursor=") {
			send(c, append([][]byte{attached}, again...)...)
			io.Copy(io.Discard, c)
			return
		}
		send(c, attached, frame(opText, `{"type":"snapshot","snapshot":{"cursor":7,"state":{}}}`),
			frame(opText, `{"type":"message","cursor":7,"message":{"type":"hello_ok"}}`))
		send(c, live...)
	})
	return addr, d, requests
}

func TestStoppedViewerComesBackForTheRest(t *testing.T) {
	cut := chunk(9, text(1))
	addr, d, requests := playback(t,
		[][]byte{chunk(8, text(0)), cut[:len(cut)/2]},                              // closed in the middle of a frame
		[][]byte{chunk(11, text(1)+text(2)+text(3)[:20]), chunk(12, text(3)[20:])}, // merged, and cut anywhere
	)
	v, err := attachStopped(addr, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if v.epoch != "e1" || v.cursor != 7 {
		t.Errorf("after attaching: got epoch %q and cursor %d, want e1 and 7", v.epoch, v.cursor)
	}
	if err := v.catchUp(4); err != nil {
		t.Fatal(err)
	}
	if v.next != 4 || v.resumes != 1 {
		t.Errorf("after catching up: got %d messages, %d reconnections; want 4, 1", v.next, v.resumes)
	}
	<-requests
	if got, want := <-requests, "GET /ws?role=viewer&cursor=8&epoch=e1 HTTP/1.1"; got != want {
		t.Errorf("request when coming back: got %q, want %q", got, want)
	}
}

func TestStoppedViewerNoticesIncompleteText(t *testing.T) {
	reset := frame(opText, `{"type":"reset","reason":"lagged","snapshot":{"cursor":9,"state":{}}}`)
	for _, tt := range []struct {
		name, want string
		live       [][]byte
	}{
		{"lost", "want that of message 1", [][]byte{chunk(8, text(0)), chunk(9, text(2))}},
		{"changed", "want that of message 0", [][]byte{chunk(8, strings.Replace(text(0), "fox", "cat", 1))}},
		{"too much", "beyond the last", [][]byte{chunk(8, text(0)), chunk(9, text(1)+"more")}},
		{"backwards", "cursor went back", [][]byte{chunk(8, text(0)), chunk(6, text(1))}},
		{"reset", "got a reset (lagged)", [][]byte{chunk(8, text(0)), reset}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, d, _ := playback(t, tt.live, nil)
			v, err := attachStopped(addr, d, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer v.close()
			if err := v.catchUp(2); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("catching up: got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestStoppedViewerGivesUpOnAServerThatKeepsClosing(t *testing.T) {
	addr, d, _ := playback(t, nil, [][]byte{frame(opClose, "\x11\x4dslow")})
	v, err := attachStopped(addr, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if err := v.catchUp(1); err == nil || !strings.Contains(err.Error(), "disconnected 6 times") {
		t.Errorf("catching up: got %v, want that it was disconnected 6 times", err)
	}
}
