package utility

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
)

// result reads a file for alice.
func (r *room) result(cmd *contracts.UtilityFileRead) *contracts.UtilityFileReadResult {
	r.t.Helper()
	from := r.count()
	r.do(cmd)
	res, _ := await(r, "the result of a read", from, func(*contracts.UtilityFileReadResult) bool { return true })
	return res
}

func TestReadReturnsTheLinesAskedFor(t *testing.T) {
	var many strings.Builder
	for i := 1; i <= 2500; i++ {
		fmt.Fprintln(&many, i)
	}
	r := newRoom(t, Options{}, map[string]string{
		"four": "one\ntwo\nthree\nfour\n", "no end": "one\ntwo", "crlf": "a\r\nb\r\nc\rd\r\n", "empty": "", "newline": "\n", "gap": "\n\n",
		"bom": "\uFEFFtext\n", "bom newline": "\uFEFF\n", "crlf newline": "\r\n", "two boms": "\uFEFF\uFEFFx", "cr": "a\r", "bad": "a\xffb\n", "many": many.String(), "late nul": strings.Repeat("x", 2048) + "\x00",
	})
	for _, tt := range []struct {
		path          string
		offset, limit int64 // 0 is absent
		content       string
		start, end    int64
		total         int64
		truncated     bool
	}{
		{"four", 2, 2, "two\nthree", 2, 3, 4, true},
		{"four", 0, 0, "one\ntwo\nthree\nfour", 1, 4, 4, false},
		{"four", 4, 9, "four", 4, 4, 4, false},
		{"four", -3, -3, "one", 1, 1, 4, true},
		{"four", 4, math.MaxInt64, "four", 4, 4, 4, false},
		{"four", 3, 1, "three", 3, 3, 4, true},
		{"bom newline", 0, 0, "", 0, 0, 0, false},
		{"crlf newline", 0, 0, "", 0, 0, 0, false},
		{"two boms", 0, 0, "\uFEFFx", 1, 1, 1, false},
		{"cr", 0, 0, "a\r", 1, 1, 1, false},
		{"no end", 0, 0, "one\ntwo", 1, 2, 2, false},
		{"crlf", 0, 0, "a\nb\nc\rd", 1, 3, 3, false},
		{"empty", 0, 0, "", 0, 0, 0, false},
		{"newline", 0, 0, "", 0, 0, 0, false},
		{"gap", 0, 0, "\n", 1, 2, 2, false},
		{"bom", 0, 0, "text", 1, 1, 1, false},
		{"bad", 0, 0, "a\uFFFDb", 1, 1, 1, false},
		{"late nul", 0, 0, strings.Repeat("x", 2048) + "\x00", 1, 1, 1, false},
		{"many", 0, 0, lines(1, 400), 1, 400, 2500, true},
		{"many", 2, 5000, lines(2, 2001), 2, 2001, 2500, true},
		{"many", 501, 2000, lines(501, 2500), 501, 2500, 2500, false},
	} {
		cmd := &contracts.UtilityFileRead{ReadID: "r", Path: tt.path}
		if tt.offset != 0 {
			cmd.Offset = &tt.offset
		}
		if tt.limit != 0 {
			cmd.Limit = &tt.limit
		}
		want := contracts.UtilityFileReadResult{
			ReadID: "r", Path: filepath.Join(r.root, tt.path), RelativePath: tt.path, Cwd: r.root,
			Content: tt.content, StartLine: tt.start, EndLine: tt.end, TotalLines: tt.total, Truncated: tt.truncated,
		}
		if got := r.result(cmd); *got != want {
			t.Errorf("%s from %d for %d: got %+v, want %+v", tt.path, tt.offset, tt.limit, *got, want)
		}
	}
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestReadPathsCountFromCwd(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a/..b/f": "x", "a/g": "y", "~": "tilde"})
	for _, tt := range []struct{ cwd, path, rel string }{
		{"", "a/..b/f", "a/..b/f"},
		{"a", "..b/f", "..b/f"},
		{"a", "./..b/../g", "g"},
		{filepath.Join(r.root, "a"), filepath.Join(r.root, "a/g"), "g"},
		{"", filepath.Join(r.root, "a/g"), "a/g"},
		{"", "~", "~"},
	} {
		cmd := &contracts.UtilityFileRead{ReadID: "r", Path: tt.path}
		want := r.root
		if tt.cwd != "" {
			cmd.Cwd = &tt.cwd
			want = filepath.Join(r.root, "a")
		}
		got := r.result(cmd)
		if got.Cwd != want || got.RelativePath != tt.rel || got.Path != filepath.Join(want, tt.rel) {
			t.Errorf("%s in %s: got %+v, want %s in %s", tt.path, tt.cwd, got, tt.rel, want)
		}
	}
}

func TestUnfitReadsAreRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.txt")
	write(t, outside, "secret")
	r := newRoom(t, Options{}, map[string]string{
		"a/in": "x", "nul": strings.Repeat("x", 2047) + "\x00", "big": strings.Repeat("x", 2<<20+1), "fits": strings.Repeat("x", 2<<20),
		"empty": "", "three": "1\n2\n3",
	})
	for link, target := range map[string]string{"file": outside, "dir": filepath.Dir(outside), "up": "../..", "loop": "loop", "in": "a/in"} {
		must(t, os.Symlink(target, filepath.Join(r.root, link)))
	}
	at := func(name string) string { return filepath.Join(r.root, name) }
	for _, tt := range []struct {
		cwd, path string
		offset    int64
		code      contracts.Code
		text      string
	}{
		{"", outside, 0, contracts.CodeWorkspaceViolation, "Path traversal detected: " + outside + " is outside workspace root"},
		{"", "../x", 0, contracts.CodeWorkspaceViolation, "Path traversal detected: " + at("../x") + " is outside workspace root"},
		{"", "a/../../x", 0, contracts.CodeWorkspaceViolation, "Path traversal detected: " + at("../x") + " is outside workspace root"},
		{"a", "../three", 0, contracts.CodeWorkspaceViolation, "Path traversal detected: " + at("three")},
		{"/", "etc/hostname", 0, contracts.CodeWorkspaceViolation, "Path is outside workspace root: /"},
		{"", "file", 0, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + at("file")},
		{"", "dir/secret.txt", 0, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + at("dir/secret.txt")},
		{"dir", "secret.txt", 0, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + at("dir/secret.txt")},
		{"", "dir/none", 0, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + at("dir/none")},
		{"", "up/x", 0, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + at("up/x")},
		{"", "none", 0, contracts.CodeNotFound, "File not found: " + at("none")},
		{"none", "x", 0, contracts.CodeNotFound, "File not found: " + at("none/x")},
		{"", "loop", 0, contracts.CodeAccessDenied, "File not readable: " + at("loop")},
		{"", "a", 0, contracts.CodeBadRequest, "utility_file_read only supports regular files: " + at("a")},
		{"", "", 0, contracts.CodeBadRequest, "utility_file_read only supports regular files: " + r.root},
		{"", "nul", 0, contracts.CodeBadRequest, "utility_file_read only supports text files: nul"},
		{"", "big", 0, contracts.CodePayloadTooLarge, "File size exceeds maximum allowed limit: " + at("big") + " (2097153 bytes, max: 2097152 bytes)"},
		{"", "three", math.MaxInt64, contracts.CodeBadRequest, "Offset 9223372036854775807 is beyond end of file (3 lines total)"},
		{"", "three", 4, contracts.CodeBadRequest, "Offset 4 is beyond end of file (3 lines total)"},
		{"", "empty", 2, contracts.CodeBadRequest, "Offset 2 is beyond end of file (0 lines total)"},
	} {
		cmd := &contracts.UtilityFileRead{ReadID: "r", Path: tt.path}
		if tt.cwd != "" {
			cmd.Cwd = &tt.cwd
		}
		if tt.offset != 0 {
			cmd.Offset = &tt.offset
		}
		r.refused(cmd, tt.code, tt.text)
	}
	if got := r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "in"}); got.Content != "x" {
		t.Errorf("got %q, want what the link inside the workspace names", got.Content)
	}
	if got := r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "fits"}); !strings.HasPrefix(got.Content, "xxx") {
		t.Errorf("got %.20q, want a file of the largest size", got.Content)
	}
}

// The room refuses results that are too long for the wire.
func TestLongLinesAndResultsAreCut(t *testing.T) {
	line, mib := strings.Repeat("x", 100_000), 1<<20
	r := newRoom(t, Options{}, map[string]string{
		"shown": strings.Repeat("x", 800_000) + "\nnext", "line": strings.Repeat("é", mib-100) + "\nnext",
		"half": strings.Repeat("x", mib-1) + "é\n", "lines": strings.Repeat(line+"\n", 12),
		"escapes": strings.Repeat("\x01", 300_000) + "\n" + strings.Repeat("\u2028", 100_000) + "\nend", "crlf": strings.Repeat("x", mib) + "\r\n",
	})
	for _, tt := range []struct {
		path string
		size int
	}{{"line", 2 * (mib - 100)}, {"half", mib + 1}, {"escapes", 300_000}, {"crlf", mib}} {
		got := r.result(&contracts.UtilityFileRead{ReadID: "r", Path: tt.path})
		if want := fmt.Sprintf("… [line cut, %d bytes]", tt.size); !strings.HasSuffix(got.Content, want) || strings.Contains(got.Content, "\uFFFD") || got.EndLine != 1 {
			t.Errorf("%s: got a line that ends in %q, to %d; want %q", tt.path, got.Content[max(0, len(got.Content)-50):], got.EndLine, want)
		}
		if got.Truncated != (got.TotalLines > 1) {
			t.Errorf("%s: got truncated %v of %d lines", tt.path, got.Truncated, got.TotalLines)
		}
		if got.TotalLines == 1 {
			continue
		}
		rest := r.result(&contracts.UtilityFileRead{ReadID: "r", Path: tt.path, Offset: ptr(got.EndLine + 1)})
		if rest.EndLine <= got.EndLine || rest.StartLine != got.EndLine+1 {
			t.Errorf("%s: got lines %d to %d after %d, want the next", tt.path, rest.StartLine, rest.EndLine, got.EndLine)
		}
	}
	got := r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "shown"})
	if len(got.Content) != 800_005 || got.EndLine != 2 {
		t.Errorf("got %d bytes to line %d, want all", len(got.Content), got.EndLine)
	}
	got = r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "lines"})
	if n := int64(strings.Count(got.Content, "\n") + 1); n != got.EndLine || n < 8 || got.TotalLines != 12 || !got.Truncated {
		t.Errorf("got %d lines to %d of %d, truncated %v; want as many as fit of 12", n, got.EndLine, got.TotalLines, got.Truncated)
	}
}

// What a line is does not depend on where the pieces end in which a file is read.
func TestLinesAreThoseOfTheWholeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"\n", "\r\n", "\r", "a", "é", "\xff", "bc", strings.Repeat("y", 50)}), 0, 60).Draw(t, "text")
		offset := rapid.Int64Range(1, 12).Draw(t, "offset")
		limit := rapid.Int64Range(1, 12).Draw(t, "limit")
		text := strings.Join(parts, "")
		x := excerpt{res: &contracts.UtilityFileReadResult{}, offset: offset, limit: limit, left: maxResultBytes}
		size := rapid.IntRange(16, 20).Draw(t, "buffer")
		in := bufio.NewReaderSize(strings.NewReader(text), size)
		if err := x.read(in); err != io.EOF {
			t.Fatalf("got %v, want the end of the text", err)
		}
		x.finish()

		whole := strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
		var lines []string
		if whole != "" {
			lines = strings.Split(whole, "\n")
		}
		total := int64(len(lines))
		var want contracts.UtilityFileReadResult
		if want.TotalLines = total; offset <= total {
			want.StartLine, want.EndLine = offset, min(total, offset+limit-1)
			want.Content = validText([]byte(strings.Join(lines[offset-1:want.EndLine], "\n")))
			want.Truncated = want.EndLine < total
		}
		if *x.res != want {
			t.Fatalf("got %+v, want %+v", *x.res, want)
		}
	})
}

// A file that grows while it is read is read to the limit.
func TestReadingStopsAtTheLimit(t *testing.T) {
	r := newRoom(t, Options{MaxReadBytes: 1000}, map[string]string{"f": strings.Repeat("x\n", 500), "more": strings.Repeat("x\n", 501)})
	if got := r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "f"}); got.TotalLines != 500 {
		t.Errorf("got %d lines, want a file of the largest size", got.TotalLines)
	}
	f, err := os.Open(filepath.Join(r.root, "more"))
	must(t, err)
	defer f.Close()
	x := excerpt{res: &contracts.UtilityFileReadResult{Path: "more"}, offset: 1, limit: 10, left: maxResultBytes}
	err = r.readLines(t.Context(), &contracts.UtilityFileRead{ReadID: "r"}, f, &x)
	if want := "File size exceeds maximum allowed limit: more (1001 bytes, max: 1000 bytes)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if at, err := f.Seek(0, io.SeekCurrent); at != 1001 || err != nil {
		t.Errorf("got %d bytes read, %v; want one more than are allowed", at, err)
	}
}

// A directory is swapped for a link out of the workspace while it is read from.
func TestSwappedLinksDoNotLeak(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "f"), "secret")
	write(t, filepath.Join(outside, "needle-secret"), "")
	r := newRoom(t, Options{}, map[string]string{"dir/f": "public", "dir/needle": ""})
	must(t, os.Symlink(outside, filepath.Join(r.root, "link")))
	dir, spare := filepath.Join(r.root, "dir"), filepath.Join(r.root, "spare")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(dir, spare)
			_ = os.Rename(filepath.Join(r.root, "link"), dir)
			_ = os.Rename(dir, filepath.Join(r.root, "link"))
			_ = os.Rename(spare, dir)
		}
	}()
	seen, refused := 0, 0
	for began := time.Now(); seen+refused < 1000 || seen < 30 || refused < 30; {
		if time.Since(began) > patience {
			t.Fatalf("got the file %d times and a refusal %d times, want both", seen, refused)
		}
		switch err := r.Do(t.Context(), "alice", &contracts.UtilityFileRead{ReadID: "r", Path: "dir/f"}); {
		case err == nil:
			seen++
		case errors.Is(err, &contracts.Error{Code: contracts.CodeWorkspaceViolation}):
			refused++
		}
		_ = r.Do(t.Context(), "alice", &contracts.UtilityFileSearch{SearchID: "s", Query: "needle", Cwd: ptr("dir")}) // it may not be there
	}
	close(stop)
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if text := fmt.Sprintf("%+v", ev); strings.Contains(text, "secret") {
			t.Fatalf("got %s, want nothing from outside", text)
		}
	}
}
