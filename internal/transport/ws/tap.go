package ws

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	// closeTimeout bounds all that follows a close: the write under way, the
	// close frame and the wait for the peer's.
	closeTimeout = time.Second

	// messageTimeout is the time from a message's first byte to its last; a slower
	// one gets 4408.
	messageTimeout = 30 * time.Second

	readBuffer  = 256 // bytes; larger reads bypass it
	writeBuffer = 128 // bytes; holds a control frame, the largest that the library writes
)

var errFlood = errors.New("the message takes far more bytes on the wire than it has")

// A tap is the socket under the WebSocket library. The library reads from it
// and writes close frames to it. All other frames are written past the library,
// whole frames at a time. Writers must hold writing.
type tap struct {
	net.Conn               // static once hijacked
	born     time.Time     // when the tap was made
	timeout  time.Duration // of one write

	seen atomic.Int64           // when the peer last sent anything, in ns since born
	pong atomic.Pointer[[]byte] // the answer to the latest ping, until it is sent

	// Owned by the goroutine that reads.
	in        io.Reader // the bytes that the peer sent before the upgrade was answered, then Conn
	scanner   scanner   // of the bytes read
	readErr   error     // the first error of the socket, as opposed to the library's
	bytesLeft int       // wire bytes that the current message may still take; negative means no bound

	// writing is a lock that is held across I/O: a channel of capacity 1, full
	// while it is locked. A goroutine that waits for it waits for the peer.
	writing chan struct{}
	ended   bool // guarded by writing: a close frame was sent or a write failed

	deadlines sync.Mutex // locked after writing
	closing   bool       // guarded by deadlines: they are final
}

func newTap(timeout time.Duration, maxMessage int) *tap {
	return &tap{
		born: time.Now(), timeout: timeout, bytesLeft: -1, writing: make(chan struct{}, 1),
		scanner: scanner{most: maxMessage},
	}
}

// Read reads from the socket for the library.
func (t *tap) Read(p []byte) (n int, err error) {
	n, err = t.in.Read(p)
	if n > 0 {
		t.seen.Store(int64(time.Since(t.born)))
		if scanErr := t.scanner.scan(p[:n]); scanErr != nil && err == nil {
			err = scanErr // the library gets it after the bytes before it
		}
	}
	if t.bytesLeft >= 0 {
		if t.bytesLeft -= n; t.bytesLeft < 0 && err == nil {
			err = errFlood
		}
	}
	if err != nil && t.readErr == nil {
		t.readErr = err
	}
	return n, err
}

// beginMessage bounds the time and the bytes of the current message, including
// frame headers and control frames between its fragments.
func (t *tap) beginMessage() {
	t.bytesLeft = 2*t.scanner.most + 64<<10
	t.setDeadline(t.Conn.SetReadDeadline, time.Now().Add(messageTimeout))
}

// endMessage removes the bounds of beginMessage: between messages a peer may be
// silent.
func (t *tap) endMessage() {
	t.bytesLeft = -1
	t.setDeadline(t.Conn.SetReadDeadline, time.Time{})
}

// setDeadline sets a deadline, unless the connection is closing.
func (t *tap) setDeadline(set func(time.Time) error, at time.Time) {
	t.deadlines.Lock()
	defer t.deadlines.Unlock()
	if !t.closing {
		_ = set(at) // fails on a dead socket, where reading and writing fail as well
	}
}

// startClosing sets the deadline of both directions to closeTimeout and calls
// then, unless the connection is closing already. From now on only a close
// frame is written.
func (t *tap) startClosing(then func()) {
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

// Write writes a frame for the library, which flushes each frame at once. It is
// always a close frame, because [tap.onPing] answers pings. The frame either
// answers the peer's close frame and repeats its reason, or reports a violation;
// Write replaces the library's text for a violation with a code.
func (t *tap) Write(p []byte) (int, error) {
	frame := p
	switch code, text, ok := closing(p); {
	case ok && code == closeProtocolError:
		frame = closeFrame(code, string(contracts.CodeBadRequest))
	case ok && !utf8.Valid(text): // the library does not check it
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

// send writes frames with one deadline and one system call for each
// contracts.WritePart bytes, so that a client that takes a large frame slowly
// is not cut. After a close frame or a failure, which may have sent half a
// frame, it sends nothing more. The caller holds writing.
func (t *tap) send(frames []byte) error {
	if t.ended {
		return net.ErrClosed
	}
	if len(frames) == 0 {
		return nil
	}
	var err error
	for part := range slices.Chunk(frames, contracts.WritePart) {
		t.setDeadline(t.Conn.SetWriteDeadline, time.Now().Add(t.timeout))
		if _, err = t.Conn.Write(part); err != nil {
			break
		}
	}
	t.ended = err != nil || frames[0] == finClose
	if err != nil {
		_ = t.Conn.Close() // wakes the reader; the socket is unusable
		return fmt.Errorf("write %d bytes: %w", len(frames), err)
	}
	return nil
}

// onPing is called for each ping. It never waits for a write under way, because
// then it would stop reading from a peer that reads slowly. If a write is under
// way, the writer sends the latest answer in unlock.
func (t *tap) onPing(_ context.Context, payload []byte) (libraryAnswers bool) {
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

// unlock sends the waiting answer to a ping, if any, and releases writing. It
// checks again afterwards, because an answer may have arrived in between.
func (t *tap) unlock() {
	for {
		if frame := t.pong.Swap(nil); frame != nil && !t.isClosing() {
			_ = t.send(*frame) // send records a failure in ended
		}
		<-t.writing
		if t.pong.Load() == nil || !t.tryLock() {
			return
		}
	}
}

// A hijacker is a ResponseWriter that wraps the hijacked connection in a tap.
type hijacker struct {
	http.ResponseWriter
	tap *tap
}

// Hijack returns the tap and small buffers. The server's own hold 8 KiB, which
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
	w.tap.Conn, w.tap.in = conn, conn
	if len(early) > 0 {
		w.tap.in = io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)
	}
	return w.tap, bufio.NewReadWriter(bufio.NewReaderSize(w.tap, readBuffer), bufio.NewWriterSize(w.tap, writeBuffer)), nil
}

var errTooLarge = errors.New("the message is larger than allowed")

// A scanner follows the frames that a peer sends. It finds a message that is
// too large by the length in its frame headers, which the library does not
// expose.
type scanner struct {
	most int // bound of a message, in bytes

	head    [14]byte // header of the current frame
	got     int      // bytes of head read so far
	skip    int64    // payload bytes of the frame still to come
	message int64    // announced bytes of the current message
}

// scan processes the next bytes from the peer.
func (s *scanner) scan(p []byte) error {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, int64(len(p)))
			s.skip -= n
			p = p[n:]
			continue
		}
		s.head[s.got] = p[0]
		s.got++
		p = p[1:]
		length, whole := s.length()
		if !whole {
			continue
		}
		s.got, s.skip = 0, length
		if opcode := s.head[0] & 0x0f; opcode > opBinary {
			continue // a control frame is not part of a message
		} else if opcode != opContinuation {
			s.message = 0
		}
		if length > int64(s.most)-s.message {
			return errTooLarge
		}
		s.message += length
	}
	return nil
}

// length returns the length of the frame's payload once the header is whole.
// The library refuses a negative length.
func (s *scanner) length() (payload int64, whole bool) {
	if s.got < 2 {
		return 0, false
	}
	size := 2
	if s.head[1]&0x80 != 0 { // masked
		size += 4
	}
	switch n := s.head[1] & 0x7f; n {
	case 126:
		size += 2
		payload = int64(binary.BigEndian.Uint16(s.head[2:]))
	case 127:
		size += 8
		payload = int64(binary.BigEndian.Uint64(s.head[2:]))
	default:
		payload = int64(n)
	}
	return payload, s.got == size
}
