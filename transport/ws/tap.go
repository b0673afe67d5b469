package ws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	// closeTimeout bounds everything that follows a close: the write under way,
	// the close frame, the wait for the peer's.
	closeTimeout = time.Second

	readBuffer  = 512 // larger reads go around it
	writeBuffer = 128 // holds a control frame, all that the library writes
)

var errFlood = errors.New("the message takes far more bytes on the wire than it has")

// A tap is the socket under the WebSocket library. The library reads from it
// and writes close frames to it; everything else is written beside the library,
// whole frames at a time, and nobody writes but who holds writing.
type tap struct {
	net.Conn               // static once hijacked
	born     time.Time     // when the tap was made
	timeout  time.Duration // of one write

	seen atomic.Int64           // when the peer last sent anything, in ns since born
	pong atomic.Pointer[[]byte] // the answer to the latest ping, waiting for its turn

	// Owned by the goroutine that reads.
	early   []byte  // sent by the peer before the upgrade was answered
	scanner scanner // of what the peer sends
	readErr error   // the first error of the socket, as opposed to the library's
	budget  int     // bytes the message being read may still take; negative is no bound

	// writing is 1-buffered and full while somebody writes to the socket: a lock,
	// but one that is held across I/O, so that waiting for it is waiting for the
	// peer.
	writing chan struct{}
	ended   bool // guarded by writing: a close frame went out or a write failed

	deadlines sync.Mutex // taken last
	closing   bool       // guarded by deadlines: they are final now
}

func newTap(timeout time.Duration, maxMessage int) *tap {
	return &tap{
		born: time.Now(), timeout: timeout, budget: -1, writing: make(chan struct{}, 1),
		scanner: scanner{most: maxMessage},
	}
}

// Read reads from the socket for the library.
func (t *tap) Read(p []byte) (n int, err error) {
	if len(t.early) > 0 {
		n = copy(p, t.early)
		if t.early = t.early[n:]; len(t.early) == 0 {
			t.early = nil
		}
	} else {
		n, err = t.Conn.Read(p)
	}
	if n > 0 {
		t.seen.Store(int64(time.Since(t.born)))
		if scanErr := t.scanner.scan(p[:n]); scanErr != nil && err == nil {
			err = scanErr // the library gets it after the bytes that came before
		}
	}
	if t.budget >= 0 {
		if t.budget -= n; t.budget < 0 && err == nil {
			err = errFlood
		}
	}
	if err != nil && t.readErr == nil {
		t.readErr = err
	}
	return n, err
}

// begin bounds how long the message being read may take, and how many bytes,
// headers and control frames between its fragments included.
func (t *tap) begin(timeout time.Duration) {
	t.budget = 2*t.scanner.most + 64<<10
	t.setReadDeadline(time.Now().Add(timeout))
}

// finish ends what begin began: between messages a peer may be silent.
func (t *tap) finish() {
	t.budget = -1
	t.setReadDeadline(time.Time{})
}

func (t *tap) setReadDeadline(at time.Time) {
	t.deadlines.Lock()
	defer t.deadlines.Unlock()
	if !t.closing {
		_ = t.Conn.SetReadDeadline(at) // fails on a dead socket, where reading fails as well
	}
}

func (t *tap) setWriteDeadline() {
	t.deadlines.Lock()
	defer t.deadlines.Unlock()
	if !t.closing {
		_ = t.Conn.SetWriteDeadline(time.Now().Add(t.timeout)) // as above
	}
}

// hurry gives both directions closeTimeout to end and calls then, unless the
// connection was closing already. Nothing but a close frame is written from now
// on.
func (t *tap) hurry(then func()) {
	t.deadlines.Lock()
	defer t.deadlines.Unlock()
	if t.closing {
		return
	}
	t.closing = true
	_ = t.Conn.SetDeadline(time.Now().Add(closeTimeout)) // as above
	then()
}

func (t *tap) isClosing() bool {
	t.deadlines.Lock()
	defer t.deadlines.Unlock()
	return t.closing
}

// Write writes a frame for the library, which flushes all of it at once. Pings
// are answered by [tap.answer], so it is a close frame: the answer to the
// peer's, which repeats its reason, or the library's verdict on a broken one,
// whose text becomes a code.
func (t *tap) Write(p []byte) (int, error) {
	frame := p
	switch code, text, ok := closing(p); {
	case ok && code == closeProtocolError:
		frame = closeFrame(code, string(contracts.CodeBadRequest))
	case ok && !utf8.Valid(text): // which the library does not look at
		frame = closeFrame(closeBadText, string(contracts.CodeBadRequest))
	}
	t.lock()
	defer t.unlock()
	if err := t.send(frame); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeFrames writes whole data frames, unless the connection is closing.
func (t *tap) writeFrames(frames []byte) error {
	t.lock()
	defer t.unlock()
	if t.isClosing() {
		return net.ErrClosed
	}
	return t.send(frames)
}

// send writes frames with one deadline and one system call, or one of each for
// every part of contracts.WritePart: a client that takes a large frame slowly is
// not one that takes nothing. After a close frame or a failure, which may have
// left half a frame behind, nothing more goes out. The caller holds writing.
func (t *tap) send(frames []byte) error {
	if t.ended {
		return net.ErrClosed
	}
	if len(frames) == 0 {
		return nil
	}
	var err error
	for part := range slices.Chunk(frames, contracts.WritePart) {
		t.setWriteDeadline()
		if _, err = t.Conn.Write(part); err != nil {
			break
		}
	}
	t.ended = err != nil || frames[0] == finClose
	if err != nil {
		_ = t.Conn.Close() // wakes the reader; the socket is of no use any more
		return fmt.Errorf("write %d bytes: %w", len(frames), err)
	}
	return nil
}

// answer is told of each ping. It never waits for a write under way, for then
// a peer that reads slowly would not be read from: the latest answer is left
// for whoever writes to send.
func (t *tap) answer(_ context.Context, payload []byte) (libraryAnswers bool) {
	frame := append([]byte{finPong, byte(len(payload))}, payload...)
	t.pong.Store(&frame)
	if t.tryLock() {
		t.unlock()
	}
	return false
}

func (t *tap) lock() { t.writing <- struct{}{} }

func (t *tap) tryLock() bool {
	select {
	case t.writing <- struct{}{}:
		return true
	default:
		return false
	}
}

// unlock sends the answer to a ping, if one waits, and gives writing up. It
// looks again afterwards, because an answer may have come between the two.
func (t *tap) unlock() {
	for {
		if frame := t.pong.Swap(nil); frame != nil && !t.isClosing() {
			_ = t.send(*frame) // a failure is remembered in ended
		}
		<-t.writing
		if t.pong.Load() == nil || !t.tryLock() {
			return
		}
	}
}

// lastSeen returns when the peer last sent anything.
func (t *tap) lastSeen() time.Time { return t.born.Add(time.Duration(t.seen.Load())) }

// timedOut reports whether err is a deadline of the socket.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// A hijacker is a ResponseWriter that slips a tap under whoever hijacks it.
type hijacker struct {
	http.ResponseWriter
	tap *tap
}

// Hijack returns the tap and small buffers: the server's own hold 8 KiB, which
// an idle viewer does not need.
func (w *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	w.tap.Conn, w.tap.early = conn, bytes.Clone(early)
	return w.tap, bufio.NewReadWriter(bufio.NewReaderSize(w.tap, readBuffer), bufio.NewWriterSize(w.tap, writeBuffer)), nil
}
