package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// gatherDelay is how long output waits for more of it, so that a command that
// writes bytes one by one does not cost an event each.
const gatherDelay = 20 * time.Millisecond

// pump passes what comes out of the pipe to emit until its end. Closing the
// pipe elsewhere is an end, too.
func pump(pipe *os.File, emit func(text string) error) error {
	buf := make([]byte, contracts.MaxTextBytes)
	var dec textDecoder
	for {
		n, err := gather(pipe, buf)
		text := dec.decode(buf[:n], err != nil)
		for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
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

// A textDecoder turns a stream of bytes into text. A character cut by the end of a
// piece waits for the next one; every byte that is not UTF-8 becomes U+FFFD.
type textDecoder struct {
	cut []byte // the beginning of a character; at most 3 bytes
}

// decode returns the text of the next piece of the stream.
func (d *textDecoder) decode(piece []byte, last bool) string {
	all := slices.Concat(d.cut, piece)
	d.cut = nil
	if !last {
		start := cutAt(all)
		all, d.cut = all[:start], slices.Clone(all[start:])
	}
	if utf8.Valid(all) {
		return string(all)
	}
	return string([]rune(string(all)))
}

// cutAt returns where a character begins that b does not hold all of, or the
// length of b.
func cutAt(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				break
			}
			return i
		}
	}
	return len(b)
}
