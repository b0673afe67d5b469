package utility

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// gatherDelay is how long output is gathered before it is published, so that a
// command that writes single bytes does not cost an event each. Output after a
// silence of that length is not delayed, because it may be the echo of a key.
const gatherDelay = 20 * time.Millisecond

// lateDelay is how long to wait for output that was written before the end. In
// a pipe such output is available at once; a terminal may need time to pass it
// on.
const lateDelay = 50 * time.Millisecond

// maxLast bounds the output, in bytes, that is read without waiting for the owner
// after the command was asked to end.
const maxLast = 1 << 20

// An outlet is the source of an output: a pipe or a terminal.
type outlet interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
	Unread() int // upper bound of the bytes that can be read
}

// A pipe is our end of a pipe, for reading.
type pipe struct{ *os.File }

func (p pipe) Unread() int { return proc.Unread(p.File) }

// An output is one of a command's output streams.
type output struct {
	stream contracts.Stream
	from   outlet

	mu   sync.Mutex
	late bool          // no process is left whose output must be awaited
	held time.Duration // total time of waiting for the owner, without reading
	hold time.Time     // start of the current wait; zero if there is none

	// Owned by the pump.
	counted bool
	left    int // bytes still to be read once late and counted
}

// A piece is the result of one gather.
type piece struct {
	bytes []byte
	err   error // why it is the last one
}

// pump publishes what the command writes to o until the end of the stream. It
// reads on while it publishes, because a terminal's buffer is so small that the
// command would wait for every event. While publishing blocks, it reads at most
// one more piece. Once the pipe is full, the command waits.
func (c *command) pump(o *output) {
	pieces, used := make(chan piece), make(chan []byte, 2)
	used <- make([]byte, contracts.MaxTextBytes)
	used <- make([]byte, contracts.MaxTextBytes)
	go func() { // ends with the stream, at the latest after expire
		defer close(pieces)
		last := 0 // bytes since the command was asked to end
		for err := error(nil); err == nil; {
			o.awaitOwner(c, last)
			buf, n := <-used, 0
			n, err = o.gather(buf)
			if c.asked.Err() != nil {
				last += n
			}
			pieces <- piece{buf[:n], err}
		}
	}()
	var text proc.Text
	shown := true
	for p := range pieces {
		for _, part := range contracts.SplitText(text.Decode(p.bytes, p.err != nil), contracts.MaxTextBytes) {
			if !shown { // the rest is lost
				continue
			}
			if shown = c.host.show(&contracts.UtilityCommandOutput{CommandID: c.id, Stream: o.stream, Content: part}); !shown {
				c.end(ending{force: true})
			}
		}
		if p.err != nil && !ended(p.err) {
			c.host.opts.Log.Warn("cannot read output", slog.String("command", c.id), slog.Any("err", p.err))
		}
		used <- p.bytes[:cap(p.bytes)]
	}
}

// ended reports whether err is a normal end of output: our side or the writers
// closed it.
func ended(err error) bool { return errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) }

// gather reads until buf is full or gatherDelay has passed, including the wait
// for the first bytes. If the outlet has no deadlines, it returns the first
// bytes.
func (o *output) gather(buf []byte) (n int, err error) {
	began := time.Now()
	for n == 0 {
		if o.isLate() {
			return o.rest(buf)
		}
		_ = o.wait(0) // fails if there are no deadlines
		n, err = o.from.Read(buf)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	more := gatherDelay - time.Since(began)
	if more <= 0 || o.wait(more) != nil {
		return n, nil
	}
	for err = nil; n < len(buf) && err == nil; {
		var got int
		got, err = o.from.Read(buf[n:])
		n += got
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// rest reads what was written before the output was late. It does not wait for
// later output of processes that left the command's group.
func (o *output) rest(buf []byte) (int, error) {
	if !o.counted {
		o.counted, o.left = true, o.from.Unread()
	}
	if o.left <= 0 {
		return 0, io.EOF
	}
	_ = o.from.SetReadDeadline(time.Now().Add(lateDelay))
	n, err := o.from.Read(buf[:min(len(buf), o.left)])
	o.left -= n
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

// wait sets the time for the next reads; 0 means no bound. Once the output is
// late, they end at once.
func (o *output) wait(d time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.late:
		return o.from.SetReadDeadline(time.Now())
	case d > 0:
		return o.from.SetReadDeadline(time.Now().Add(d))
	}
	return o.from.SetReadDeadline(time.Time{})
}

// expire lets the stream end after the bytes that are in the pipe now. If pipes
// have no deadlines, it closes the stream at once.
func (o *output) expire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = true
	if o.from.SetReadDeadline(time.Now()) != nil {
		_ = o.from.Close() // it is only read
	}
}

func (o *output) isLate() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.late
}

// awaitOwner waits for the command's owner to read, if the command must wait.
// last is the number of bytes read since the command was asked to end.
func (o *output) awaitOwner(c *command, last int) {
	o.mark(time.Now())
	defer o.mark(time.Time{})
	if c.host.await(c.asked, c.owner) != nil && last > maxLast {
		_ = c.host.await(c.living, c.owner) // fails when no process is left; the rest is then published
	}
}

// mark starts the time of a wait for the owner; the zero time ends it.
func (o *output) mark(since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.hold.IsZero() {
		o.held += time.Since(o.hold)
	}
	o.hold = since
}

// heldFor returns the total time of waiting for the owner.
func (o *output) heldFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hold.IsZero() {
		return o.held
	}
	return o.held + time.Since(o.hold)
}
