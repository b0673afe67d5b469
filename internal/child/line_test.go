package child

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestOnlyLongLinesAreSkipped(t *testing.T) {
	text := "short\n" + strings.Repeat("x", 101) + "\n" + strings.Repeat("y", 100) + "\n\n" + strings.Repeat("z", 1000) + "\nlast"
	for _, size := range []int{16, 101, 102, 4096} {
		r := bufio.NewReaderSize(strings.NewReader(text), size)
		for _, want := range []struct {
			line string
			err  error
		}{{"short", nil}, {"", ErrLongLine}, {strings.Repeat("y", 100), nil}, {"", nil}, {"", ErrLongLine}, {"last", nil}, {"", io.EOF}} {
			line, err := ReadLine(r, 100)
			if string(line) != want.line || !errors.Is(err, want.err) {
				t.Errorf("buffer of %d: got %q, %v; want %q, %v", size, line, err, want.line, want.err)
			}
			if errors.Is(err, ErrLongLine) {
				SkipLine(r)
			}
		}
	}
}

// A line without end costs no more than the limit.
func TestLinesWithoutEndAreGivenUp(t *testing.T) {
	if _, err := ReadLine(bufio.NewReader(endless{}), 1<<20); !errors.Is(err, ErrLongLine) {
		t.Errorf("got %v, want %v", err, ErrLongLine)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
