package utility

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		"bom": "\uFEFFtext\n", "bad": "a\xffb\n", "many": many.String(), "late nul": strings.Repeat("x", 2048) + "\x00",
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
	line := strings.Repeat("x", 100_000)
	r := newRoom(t, Options{}, map[string]string{
		"line": strings.Repeat("é", maxLineBytes) + "\nnext", "lines": strings.Repeat(line+"\n", 12),
		"escapes": strings.Repeat("\x01", 300_000) + "\n" + strings.Repeat("\u2028", 100_000) + "\nend",
	})
	got := r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "line"})
	first, second, _ := strings.Cut(got.Content, "\n")
	if want := fmt.Sprintf("é… [line cut, %d bytes]", 2*maxLineBytes); !strings.HasSuffix(first, want) || second != "next" || got.EndLine != 2 || got.Truncated {
		t.Errorf("got a line that ends in %.50q, then %q to %d; want %q and the next", first[max(0, len(first)-50):], second, got.EndLine, want)
	}
	got = r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "lines"})
	if n := int64(strings.Count(got.Content, "\n") + 1); n != got.EndLine || n < 8 || got.TotalLines != 12 || !got.Truncated {
		t.Errorf("got %d lines to %d of %d, truncated %v; want as many as fit of 12", n, got.EndLine, got.TotalLines, got.Truncated)
	}
	got = r.result(&contracts.UtilityFileRead{ReadID: "r", Path: "escapes"})
	if !strings.HasSuffix(got.Content, "\nend") || got.EndLine != 3 {
		t.Errorf("got %d bytes to line %d, want three lines", len(got.Content), got.EndLine)
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
	for began := time.Now(); seen < 30 || refused < 30; {
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
