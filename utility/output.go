package utility

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/child"
)

// gatherDelay is how long output waits for more of it, so that a command that
// writes bytes one by one does not cost an event each.
const gatherDelay = 20 * time.Millisecond

// An output is one of the streams that a command writes to.
type output struct {
	stream contracts.Stream
	pipe   *os.File

	mu   sync.Mutex
	late bool // nobody is left whose output is waited for

	// Owned by the pump.
	counted bool
	left    int // bytes still to be read once it is late and counted
}

// pump publishes what the command writes to o until the end of the stream.
// While publishing blocks nothing is read, and once the pipe is full the
// command waits.
func (c *command) pump(o *output) {
	var text child.Text
	buf := make([]byte, contracts.MaxTextBytes)
	for {
		n, err := o.gather(buf)
		for _, piece := range contracts.SplitText(text.Decode(buf[:n], err != nil), contracts.MaxTextBytes) {
			if !c.host.show(&contracts.UtilityCommandOutput{CommandID: c.id, Stream: o.stream, Content: piece}) {
				c.end(ending{force: true})
				return
			}
		}
		if err != nil {
			if !ended(err) {
				c.host.opts.Log.Warn("read output", slog.String("command", c.id), slog.Any("err", err))
			}
			return
		}
	}
}

// ended reports whether err is a way in which output ends: it was closed, here
// or by those who wrote to it.
func ended(err error) bool { return errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) }

// gather reads until buf is full or gatherDelay has passed since the first bytes
// came. Where pipes have no deadlines it returns those.
func (o *output) gather(buf []byte) (n int, err error) {
	for n == 0 {
		if o.isLate() {
			return o.rest(buf)
		}
		_ = o.wait(0) // without deadlines none is set
		n, err = o.pipe.Read(buf)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	if o.wait(gatherDelay) != nil {
		return n, nil
	}
	for err = nil; n < len(buf) && err == nil; {
		var more int
		more, err = o.pipe.Read(buf[n:])
		n += more
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
		o.counted, o.left = true, child.Unread(o.pipe)
	}
	if o.left <= 0 {
		return 0, io.EOF
	}
	_ = o.pipe.SetReadDeadline(time.Time{}) // nobody else reads, so the bytes are there
	n, err := o.pipe.Read(buf[:min(len(buf), o.left)])
	o.left -= n
	return n, err
}

// wait says how long the next reads may take; 0 is as long as it needs. Once it
// is late they end at once.
func (o *output) wait(d time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.late:
		return o.pipe.SetReadDeadline(time.Now())
	case d > 0:
		return o.pipe.SetReadDeadline(time.Now().Add(d))
	}
	return o.pipe.SetReadDeadline(time.Time{})
}

// expire lets the stream end with what is in the pipe by now. Where pipes have no
// deadlines it ends it at once.
func (o *output) expire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = true
	if o.pipe.SetReadDeadline(time.Now()) != nil {
		_ = o.pipe.Close() // it is only read
	}
}

func (o *output) isLate() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.late
}
