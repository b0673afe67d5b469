package line

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// long stands before what was returned of a line that was too long.
const long = "\x00"

// all returns every line, and the error that ended them.
func all(r *Reader) (got []string, err error) {
	for {
		text, err := r.Next()
		switch {
		case errors.Is(err, ErrLong):
			got = append(got, long+string(text))
		case err != nil:
			return got, err
		default:
			got = append(got, string(text))
		}
	}
}

func TestOnlyLongLinesAreSkipped(t *testing.T) {
	text := "short\n" + strings.Repeat("x", 101) + "\n" + strings.Repeat("y", 100) + "\n\n" + strings.Repeat("z", 1000) + "\r\nlast\r"
	want := []string{"short", long + strings.Repeat("x", 100), strings.Repeat("y", 100), "", long + strings.Repeat("z", 100), "last\r"}
	for _, size := range []int{16, 100, 101, 102, 4096} {
		for kind, in := range map[string]io.Reader{
			"at once":  strings.NewReader(text),
			"data+EOF": iotest.DataErrReader(strings.NewReader(text)),
			"bytewise": iotest.OneByteReader(strings.NewReader(text)),
		} {
			got, err := all(&Reader{in: bufio.NewReaderSize(in, size), limit: 100})
			if err != io.EOF || !slices.Equal(got, want) {
				t.Errorf("buffer of %d, %s: got %q, %v; want %q", size, kind, got, err, want)
			}
		}
	}
}

// A line without end costs no more than the limit, and is told before it ends.
func TestLinesWithoutEndAreGivenUp(t *testing.T) {
	const limit = 1 << 20
	r := NewReader(io.LimitReader(endless{}, 64*limit), limit)
	if text, err := r.Next(); !errors.Is(err, ErrLong) || len(text) != limit {
		t.Errorf("got %d bytes, %v; want %d, %v", len(text), err, limit, ErrLong)
	}
	if got := cap(r.kept); got > 2*limit {
		t.Errorf("got %d bytes kept, want at most %d", got, 2*limit)
	}
	if _, err := r.Next(); err != io.EOF || cap(r.kept) > maxKept {
		t.Errorf("got %v and %d bytes kept behind the rest, want the end and at most %d", err, cap(r.kept), maxKept)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestBufferOfALongLineIsGivenUp(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("x", 4*maxKept)+"\na\n"), 8*maxKept)
	for range 2 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if got := cap(r.kept); got > maxKept {
		t.Errorf("got %d bytes kept, want at most %d", got, maxKept)
	}
}

func TestHalfALineIsDroppedWhenReadingFails(t *testing.T) {
	broken := errors.New("broken")
	for text, want := range map[string][]string{
		"a\nhalf":              {"a"},
		"a\nhalf a line of it": {"a", long + "half a lin"}, // it is not passed over without an error
	} {
		r := &Reader{in: bufio.NewReaderSize(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), 16), limit: 10}
		if got, err := all(r); !errors.Is(err, broken) || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v; want %q, %v", text, got, err, want, broken)
		}
	}
}

// FuzzReader compares with what cuts a whole stream without any regard for memory.
func FuzzReader(f *testing.F) {
	f.Add([]byte("a\n\n0123456789012345678901234567890\r\nlast"), byte(20), byte(3))
	f.Add([]byte("0123456789012345\n"), byte(16), byte(0))
	f.Add([]byte("\n"), byte(0), byte(1))
	f.Fuzz(func(t *testing.T, in []byte, limit, size byte) {
		var want []string
		for text := range bytes.SplitSeq(bytes.TrimSuffix(in, []byte("\n")), []byte("\n")) {
			if len(text) > int(limit) {
				want = append(want, long+string(text[:limit]))
			} else if len(in) > 0 {
				want = append(want, string(text))
			}
		}
		got, err := all(&Reader{in: bufio.NewReaderSize(bytes.NewReader(in), int(size)), limit: int(limit)})
		if err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})
}
