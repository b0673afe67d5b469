package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// gatherDelay is how long output waits for more of it, so that a command that
// writes bytes one by one does not cost an event each.
const gatherDelay = 20 * time.Millisecond

// pump passes what comes out of the pipe to emit until its end. Closing the
// pipe elsewhere is an end, too.
func pump(pipe *os.File, emit func(text string) error) error {
	buf := make([]byte, contracts.MaxTextBytes)
	var text proc.Text
	for {
		n, err := gather(pipe, buf)
		piece := text.Decode(buf[:n], err != nil)
		for _, piece := range contracts.SplitText(piece, contracts.MaxTextBytes) {
			if err := emit(piece); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read output: %w", err)
		}
	}
}

// gather reads until buf is full or gatherDelay has passed since the first
// bytes came. Where pipes have no deadlines it returns those.
func gather(pipe *os.File, buf []byte) (n int, err error) {
	_ = pipe.SetReadDeadline(time.Time{}) // without deadlines none is set
	n, err = pipe.Read(buf)
	if err != nil || pipe.SetReadDeadline(time.Now().Add(gatherDelay)) != nil {
		return n, err
	}
	for n < len(buf) && err == nil {
		var more int
		more, err = pipe.Read(buf[n:])
		n += more
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}
