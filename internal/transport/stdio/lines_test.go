package stdio

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"

	"github.com/seed-028515a8/maestro/contracts"
)

// refused stands for a line that was too long.
const refused = "\x00too long"

// all returns every line of r, and the error that ended it.
func all(t *testing.T, r io.Reader, max int) ([]string, error) {
	t.Helper()
	l := newLines(r, max, false)
	var got []string
	for {
		line, err := l.next()
		switch refusal, ok := errors.AsType[*contracts.Error](err); {
		case ok && refusal.Code == contracts.CodeBadRequest && refusal.Type == contracts.ErrorProtocol:
			got = append(got, refused)
		case err != nil:
			return got, err
		default:
			got = append(got, string(line))
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10) // does not fit the reader's buffer
	for _, tt := range []struct {
		name, in string
		max      int
		want     []string
	}{
		{"nothing", "", 10, nil},
		{"LF", "a\nb\n", 10, []string{"a", "b"}},
		{"CRLF", "a\r\nb\r\n", 10, []string{"a", "b"}},
		{"mixed", "a\r\nb\nc\r\n", 10, []string{"a", "b", "c"}},
		{"CR alone does not end a line", "a\rb\n", 10, []string{"a\rb"}},
		{"last line without end", "a\nb", 10, []string{"a", "b"}},
		{"last line ends in CR", "a\nb\r", 10, []string{"a", "b"}},
		{"blank lines", "\n\r\n  \n\t\r\n\u00a0\na\n\n", 10, []string{"a"}},
		{"blank at the end", "a\n  ", 10, []string{"a"}},
		{"white space around stays", "  a  \n", 10, []string{"  a  "}},
		{"byte-order mark", "\ufeffa\nb\n", 10, []string{"a", "b"}},
		{"byte-order mark alone", "\ufeff\na\n", 10, []string{"a"}},
		{"byte-order mark at the end", "\ufeff", 10, nil},
		{"only the first mark is one", "\ufeff\ufeffa\n\ufeffb\n", 10, []string{"\ufeffa", "\ufeffb"}},
		{"mark after a blank line stays", "\n\ufeffa\n", 10, []string{"\ufeffa"}},
		{"at the limit", "0123456789\n0123456789\r\n0123456789", 10, []string{"0123456789", "0123456789", "0123456789"}},
		{"at the limit behind a mark", "\ufeff0123456789\r\n", 10, []string{"0123456789"}},
		{"over the limit", "a\n0123456789x\nb\n", 10, []string{"a", refused, "b"}},
		{"over the limit with CRLF", "0123456789x\r\nb\r\n", 10, []string{refused, "b"}},
		{"over the limit at the end", "a\n0123456789x", 10, []string{"a", refused}},
		{"two over the limit", "0123456789x\n0123456789x\nb\n", 10, []string{refused, refused, "b"}},
		{"longer than the buffer", long + "\nb\n", len(long), []string{long, "b"}},
		{"longer than the buffer without end", "a\n" + long, len(long), []string{"a", long}},
		{"longer than the buffer and the limit", long + "\nb\n", len(long) - 1, []string{refused, "b"}},
		{"far over the limit", strings.Repeat(long, 5) + "\r\nb\n", 10, []string{refused, "b"}},
		{"NUL and broken UTF-8 pass", "\x00\xff\n", 10, []string{"\x00\xff"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for kind, r := range map[string]io.Reader{
				"at once":   strings.NewReader(tt.in),
				"data+EOF":  iotest.DataErrReader(strings.NewReader(tt.in)),
				"by halves": iotest.HalfReader(strings.NewReader(tt.in)),
				"bytewise":  iotest.OneByteReader(strings.NewReader(tt.in)),
			} {
				got, err := all(t, r, tt.max)
				if err != io.EOF || !equal(got, tt.want) {
					t.Errorf("%s: got %.200q, %v, want %.200q", kind, got, err, tt.want)
				}
			}
		})
	}
}

func equal(a, b []string) bool {
	return strings.Join(a, "\n\n") == strings.Join(b, "\n\n") && len(a) == len(b)
}

func TestTextOfTheRefusalNamesTheLimit(t *testing.T) {
	l := newLines(strings.NewReader(strings.Repeat("x", contracts.MaxLineBytes+1)), contracts.MaxLineBytes, false)
	_, err := l.next()
	if want := "Failed to parse command: line exceeds 10485760 bytes"; err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestHalfALineIsDroppedWhenReadingFails(t *testing.T) {
	broken := errors.New("broken")
	got, err := all(t, io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), 10)
	if !errors.Is(err, broken) || !equal(got, []string{"a"}) {
		t.Fatalf("got %q, %v, want [a], %v", got, err, broken)
	}
}

// endless is a line that never ends, up to its number of bytes.
type endless int

func (n *endless) Read(p []byte) (int, error) {
	if *n <= 0 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	*n -= endless(len(p))
	return len(p), nil
}

func TestLongLineIsNotBuffered(t *testing.T) {
	const limit = 1 << 20
	line := endless(256 * limit)
	l := newLines(&line, limit, false)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := l.next()
	_, end := l.next() // behind the rest of it
	runtime.ReadMemStats(&after)
	if err == nil || end != io.EOF {
		t.Fatalf("got %v, then %v; want the line refused, then the end", err, end)
	}
	// All the sizes that the buffer had on its way to the limit, together.
	if got := after.TotalAlloc - before.TotalAlloc; got > 8*limit {
		t.Errorf("got %d bytes allocated, want at most %d", got, 8*limit)
	}
}

// reference cuts a whole stream into lines without any regard for memory.
func reference(in []byte, max int) (want []string) {
	in = bytes.TrimPrefix(in, []byte("\ufeff"))
	for line := range bytes.SplitSeq(in, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch {
		case len(line) > max:
			want = append(want, refused)
		case len(bytes.TrimFunc(line, unicode.IsSpace)) > 0:
			want = append(want, string(line))
		}
	}
	return want
}

// cuts reads a stream in pieces of the sizes that its bytes name.
type cuts struct {
	in, sizes []byte
}

func (c *cuts) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(c.in))
	if len(c.sizes) > 0 {
		n = min(n, int(c.sizes[0])+1)
		c.sizes = c.sizes[1:]
	}
	n = copy(p, c.in[:n])
	c.in = c.in[n:]
	return n, nil
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("\ufeff{\"type\":\"hello\"}\r\n\n  \nlast"), []byte{0, 1, 2}, byte(20))
	f.Add([]byte("0123456789\n"), []byte{9, 0}, byte(9))
	f.Add([]byte("\r\n\r"), []byte{0, 0, 0}, byte(0))
	f.Fuzz(func(t *testing.T, in, sizes []byte, limit byte) {
		// Repeated, the stream also passes the reader's buffer.
		for _, stream := range [][]byte{in, bytes.Repeat(in, 1+((64<<10)/max(len(in), 1))%64)} {
			got, err := all(t, &cuts{stream, sizes}, int(limit))
			if want := reference(stream, int(limit)); err != io.EOF || !equal(got, want) {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
	})
}
