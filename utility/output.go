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

// gatherDelay is how long output waits for more of it, so that a command that
// writes bytes one by one does not cost an event each. What comes after as long a
// silence does not wait: it may be the echo of a key.
const gatherDelay = 20 * time.Millisecond

// lateDelay is how long what was written before the end may take to arrive. What
// is in a pipe is there already; a terminal hands on what it has.
const lateDelay = 50 * time.Millisecond

// maxLast is how much a command that was asked to end may write before it has to
// wait for its owner again: its last words, but not a flood of them.
const maxLast = 1 << 20

// An outlet is where output comes from: a pipe or a terminal.
type outlet interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
	Unread() int // how much is there to be read, at most
}

// A pipe is the end that we read from.
type pipe struct{ *os.File }

func (p pipe) Unread() int { return proc.Unread(p.File) }

// An output is one of the streams that a command writes to.
type output struct {
	stream contracts.Stream
	from   outlet

	mu   sync.Mutex
	late bool          // nobody is left whose output is waited for
	held time.Duration // how long the owner was waited for, while nothing was read
	hold time.Time     // since when it is; zero if it is not

	// Owned by the pump.
	counted bool
	left    int // bytes still to be read once it is late and counted
}

// A piece is what was read of an output at once.
type piece struct {
	bytes []byte
	err   error // why it is the last one
}

// pump publishes what the command writes to o until the end of the stream, and
// reads on meanwhile: a terminal holds so little that the command would wait for
// every event. While publishing blocks no more than one piece is read, and once
// the pipe is full the command waits.
func (c *command) pump(o *output) {
	pieces, used := make(chan piece), make(chan []byte, 2)
	used <- make([]byte, contracts.MaxTextBytes)
	used <- make([]byte, contracts.MaxTextBytes)
	go func() { // ends with the stream, which comes after expire at the latest
		defer close(pieces)
		last := 0 // bytes since the command was asked to end
		for err := error(nil); err == nil; {
			o.awaitOwner(c, last)
			buf, n := <-used, 0
			n, err = o.gather(buf)
			if c.waiting.Err() != nil {
				last += n
			}
			pieces <- piece{buf[:n], err}
		}
	}()
	var text proc.Text
	shown := true
	for p := range pieces {
		for _, part := range contracts.SplitText(text.Decode(p.bytes, p.err != nil), contracts.MaxTextBytes) {
			if !shown { // what is still to come is lost
				continue
			}
			if shown = c.host.show(&contracts.UtilityCommandOutput{CommandID: c.id, Stream: o.stream, Content: part}); !shown {
				c.end(ending{force: true})
			}
		}
		if p.err != nil && !ended(p.err) {
			c.host.opts.Log.Warn("read output", slog.String("command", c.id), slog.Any("err", p.err))
		}
		used <- p.bytes[:cap(p.bytes)]
	}
}

// ended reports whether err is a way in which output ends: it was closed, here
// or by those who wrote to it.
func ended(err error) bool { return errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) }

// gather reads until buf is full or gatherDelay has passed, the silence before the
// first bytes included. Where pipes have no deadlines it returns those.
func (o *output) gather(buf []byte) (n int, err error) {
	began := time.Now()
	for n == 0 {
		if o.isLate() {
			return o.rest(buf)
		}
		_ = o.wait(0) // without deadlines none is set
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

// rest reads what was written before the output was late. What a process that
// left the command's group writes after that is not waited for.
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

// wait says how long the next reads may take; 0 is as long as it needs. Once it
// is late they end at once.
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

// expire lets the stream end with what is in the pipe by now. Where pipes have no
// deadlines it ends it at once.
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

// awaitOwner waits for the command's owner to read, as far as the command has to.
// last is what was read since it was asked to end.
func (o *output) awaitOwner(c *command, last int) {
	o.mark(time.Now())
	defer o.mark(time.Time{})
	if c.host.await(c.waiting, c.owner) != nil && last > maxLast {
		_ = c.host.await(c.living, c.owner) // it fails when nobody is left, and what there is is shown
	}
}

// mark notes since when the owner is waited for; the zero time ends that.
func (o *output) mark(since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.hold.IsZero() {
		o.held += time.Since(o.hold)
	}
	o.hold = since
}

// heldFor returns how long the owner was waited for so far.
func (o *output) heldFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hold.IsZero() {
		return o.held
	}
	return o.held + time.Since(o.hold)
}
