package tool

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"strings"
	"testing"
)

func TestLinesAreShownWithTheirNumbers(t *testing.T) {
	b := on(t, map[string]string{
		"lf": "a\n\nb\n", "open": "a\nb", "crlf": "a\r\nb\r\n", "mixed": "a\r\nb\nc", "mark": "\uFEFFa\n", "latin": "a\xe4\n",
		"empty": "", "blank": "\n", "onlymark": "\uFEFF", "returns": "a\rb\r\r\n",
	})
	for name, want := range map[string]string{
		"lf":       "     1\ta\n     2\t\n     3\tb\n",
		"open":     "     1\ta\n     2\tb\n",
		"crlf":     "     1\ta\n     2\tb\n",
		"mixed":    "     1\ta\n     2\tb\n     3\tc\n[1 of 2 lines end in CRLF, the others in LF. Edit them one by one.]\n",
		"mark":     "     1\ta\n",
		"latin":    "     1\ta\uFFFD\n[The file is not UTF-8: where U+FFFD is shown it has other bytes.]\n",
		"empty":    "The file is empty.",
		"onlymark": "The file is empty.",
		"blank":    "     1\t\n",
		"returns":  "     1\ta\rb\r\n",
	} {
		if got := b.does("read", args{"path": name}); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := b.does("read", args{"path": b.Workspace.At("lf")}); !strings.HasPrefix(got, "     1\ta\n") {
		t.Errorf("got %q for an absolute path, want the file", got)
	}
}

func TestPartsAreShown(t *testing.T) {
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "line %d\n", i+1)
	}
	b := on(t, map[string]string{"long": text.String()})
	for _, tt := range []struct {
		offset, limit, first, last int
		more                       string
	}{
		{1, 3, 1, 3, "[Lines 1 to 3 of 3000. Go on with offset 4.]\n"},
		{2999, 10, 2999, 3000, "[Lines 2999 to 3000 of 3000.]\n"},
		{3000, 1, 3000, 3000, "[Lines 3000 to 3000 of 3000.]\n"},
		{1, 3000, 1, 3000, ""},
	} {
		got := b.does("read", args{"path": "long", "offset": tt.offset, "limit": tt.limit})
		var want strings.Builder
		for n := tt.first; n <= tt.last; n++ {
			fmt.Fprintf(&want, "%6d\tline %d\n", n, n)
		}
		if got != want.String()+tt.more {
			t.Errorf("%d, %d: got %q, want lines %d to %d and %q", tt.offset, tt.limit, got, tt.first, tt.last, tt.more)
		}
	}
	if got := b.does("read", args{"path": "long"}); !strings.HasSuffix(got, "[Lines 1 to 2000 of 3000. Go on with offset 2001.]\n") {
		t.Errorf("got …%q, want 2000 lines", got[len(got)-80:])
	}
	b.refuses("read", args{"path": "long", "offset": 3001}, "There is no line 3001: the file has 3000 lines.")
}

func TestWhatIsShownIsBounded(t *testing.T) {
	b := on(t, map[string]string{"wide": strings.Repeat("ä", 3000) + "\nnext\n", "many": strings.Repeat(strings.Repeat("x", 1000)+"\n", 1000)})
	got := b.does("read", args{"path": "wide"})
	if want := "     1\t" + strings.Repeat("ä", 1000) + "… [4000 bytes left out]\n     2\tnext\n"; got != want {
		t.Errorf("got %d bytes, want the line cut", len(got))
	}
	got = b.does("read", args{"path": "many"})
	if len(got) > maxReadText+100 || !strings.HasSuffix(got, "[Lines 1 to 79 of 1000. Go on with offset 80.]\n") {
		t.Errorf("got %d bytes, …%q; want at most %d", len(got), got[len(got)-60:], maxReadText)
	}
	must(t, os.Truncate(b.Workspace.At("wide"), maxFileBytes+1))
	b.refuses("read", args{"path": "wide"}, "larger than the 32 MiB")
}

func TestPicturesAreShown(t *testing.T) {
	var p, j, g bytes.Buffer
	gray := image.NewGray(image.Rect(0, 0, 2, 2))
	must(t, png.Encode(&p, gray))
	must(t, jpeg.Encode(&j, gray, nil))
	must(t, gif.Encode(&g, gray, nil))
	webp := "RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
	files := map[string]string{"png": p.String(), "jpeg": j.String(), "gif": g.String(), "webp": webp}
	b := on(t, files)
	for name, data := range files {
		res := b.call("read", args{"path": name})
		if res.IsError || len(res.Images) != 1 || res.Images[0].MimeType != "image/"+name || !bytes.Equal(res.Images[0].Data, []byte(data)) {
			t.Errorf("%s: got %+v, want the picture", name, res)
		}
	}
	put(t, b.Workspace.At("large"), p.String())
	must(t, os.Truncate(b.Workspace.At("large"), maxImageBytes+1))
	b.refuses("read", args{"path": "large"}, "picture of 5242881 bytes")
}

func TestWhatIsNoTextIsTold(t *testing.T) {
	b := on(t, map[string]string{"dir/x": "", "binary": "a\x00b", "riff": "RIFF\x1a\x00\x00\x00WAVE"})
	b.refuses("read", args{"path": "dir"}, "dir is a directory", "glob")
	b.refuses("read", args{"path": "."}, "is a directory")
	b.refuses("read", args{"path": "binary"}, "binary is a binary file of 3 bytes")
	b.refuses("read", args{"path": "riff"}, "binary file")
	b.refuses("read", args{"path": "none/x"}, "There is no file none/x.")
	b.refuses("read", args{"path": "binary/x"}, "binary/x: not a directory.")
	b.refuses("read", args{"path": "a\x00b"}, "invalid")
}

func TestOneOfTooManyFilesIsForgotten(t *testing.T) {
	b := on(t, nil)
	var last file
	for i := range maxSeen + 1 {
		last = file{rel: fmt.Sprint(i)}
		b.remember(last, []byte("x"))
	}
	if sum := b.seen[b.key(last)]; sum != sha256.Sum256([]byte("x")) || len(b.seen) != maxSeen {
		t.Errorf("got %d files, the last one with sum %x, want %d with it", len(b.seen), sum, maxSeen)
	}
}
