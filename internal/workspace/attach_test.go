package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestAttachmentsAreReadByKind(t *testing.T) {
	w := open(t, map[string]string{
		"notes.txt": "héllo", "page.html": "<p>", "blob": "plain", "bad.txt": "a\xffb",
		"pic.PNG": "\x89PNG\x00", "empty.jpg": "", "sub/x.heif": "h",
	})
	for _, want := range []Attachment{
		{Path: "notes.txt", MimeType: "text/plain", Text: "héllo"},
		{Path: "./page.html", MimeType: "text/html", Text: "<p>"},
		{Path: "blob", MimeType: "application/octet-stream", Text: "plain"},
		{Path: "bad.txt", MimeType: "text/plain", Text: "a\uFFFDb"},
		{Path: "pic.PNG", MimeType: "image/png", Data: []byte("\x89PNG\x00")},
		{Path: "empty.jpg", MimeType: "image/jpeg", Data: []byte{}},
		{Path: "sub/../sub/x.heif", MimeType: "image/heif", Data: []byte("h")},
		{Path: filepath.Join(w.Root(), "notes.txt"), MimeType: "text/plain", Text: "héllo"},
	} {
		got, failed := w.Attachments([]string{want.Path})
		if len(failed) > 0 || !reflect.DeepEqual(got, []Attachment{want}) {
			t.Errorf("%s: got %+v, %q; want %+v", want.Path, got, failed, want)
		}
	}
}

func TestHomeIsExpanded(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	write(t, filepath.Join(home, "project", "a.txt"), "a")
	w, err := Open(filepath.Join(home, "project"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	got, failed := w.Attachments([]string{"~/project/a.txt", "~/elsewhere"})
	if len(got) != 1 || got[0].Text != "a" || got[0].Path != "~/project/a.txt" {
		t.Errorf("got %+v, want the file in the home directory", got)
	}
	if want := []string{"Attachment not readable: ~/elsewhere"}; !slices.Equal(failed, want) {
		t.Errorf("got %q, want %q", failed, want)
	}
}

func TestUnusableAttachmentsAreToldInTestedTexts(t *testing.T) {
	w := open(t, map[string]string{
		"dir/file": "x", "empty.txt": "", "nul.txt": "a\x00b", "big.txt": strings.Repeat("x", 10<<20+1), "ok.txt": "fine",
	})
	for path, want := range map[string]string{
		"missing.txt": "Attachment not readable: missing.txt",
		"dir":         "Unsupported attachment (not image/text): dir",
		"empty.txt":   "Unsupported attachment (not image/text): empty.txt",
		"nul.txt":     "Unsupported attachment (not image/text): nul.txt",
		"big.txt":     "Attachment too large (10MB): big.txt",
		"":            "Unsupported attachment (not image/text): ",
	} {
		loaded, failed := w.Attachments([]string{path, "ok.txt"})
		if !slices.Equal(failed, []string{want}) {
			t.Errorf("%q: got %q, want %q", path, failed, want)
		}
		if len(loaded) != 1 || loaded[0].Path != "ok.txt" {
			t.Errorf("%q: got %+v, want the attachment after it", path, loaded)
		}
	}
}

func TestNoAttachmentLeavesTheRoot(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.txt")
	write(t, outside, "secret")
	w := open(t, map[string]string{"a/in.txt": "in"})
	for name, target := range map[string]string{"file": outside, "dir": filepath.Dir(outside), "up": "../..", "absolute": filepath.Join(w.Root(), "a/in.txt")} {
		if err := os.Symlink(target, filepath.Join(w.Root(), name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a/in.txt", filepath.Join(w.Root(), "inner")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{outside, "../secret.txt", "file", "dir/secret.txt", "up/secret.txt", "absolute", "a/../../x", "/", "in\x00.txt"} {
		loaded, failed := w.Attachments([]string{path})
		if want := "Attachment not readable: " + path; len(loaded) > 0 || !slices.Equal(failed, []string{want}) {
			t.Errorf("%q: got %+v, %q; want only %q", path, loaded, failed, want)
		}
	}
	if loaded, failed := w.Attachments([]string{"inner"}); len(loaded) != 1 || loaded[0].Text != "in" {
		t.Errorf("inner: got %+v, %q; want the file that the link inside the root names", loaded, failed)
	}
}

func TestAttachmentsAreCounted(t *testing.T) {
	files := map[string]string{}
	var paths []string
	for i := range 22 {
		paths = append(paths, fmt.Sprintf("f%d.txt", i))
		files[paths[i]] = "x"
	}
	w := open(t, files)
	loaded, failed := w.Attachments(paths[:20])
	if len(loaded) != 20 || len(failed) > 0 {
		t.Errorf("20 files: got %d and %q, want all", len(loaded), failed)
	}
	loaded, failed = w.Attachments(paths)
	want := []string{"Too many attachments: only the first 20 of 22 are used"}
	if len(loaded) != 20 || !slices.Equal(failed, want) {
		t.Errorf("22 files: got %d and %q, want 20 and %q", len(loaded), failed, want)
	}
}

func TestAttachmentsTogetherAreBounded(t *testing.T) {
	w := open(t, map[string]string{"small.txt": "x"})
	var paths []string
	for i := range 4 { // of 10 MiB each: sparse, so that they cost nothing
		name := fmt.Sprintf("%d.png", i)
		write(t, filepath.Join(w.Root(), name), "")
		if err := os.Truncate(filepath.Join(w.Root(), name), 10<<20); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, name)
	}
	loaded, failed := w.Attachments(append(paths, "small.txt"))
	want := []string{"Attachments together are larger than 32MB: 3.png"}
	if len(loaded) != 4 || loaded[3].Path != "small.txt" || !slices.Equal(failed, want) {
		t.Errorf("got %d and %q, want three images, the small file and %q", len(loaded), failed, want)
	}
}

func TestTextIsCutAtACharacter(t *testing.T) {
	text := strings.Repeat("ä", maxTextChars)
	w := open(t, map[string]string{"long.txt": text + "ß", "short.txt": text})
	loaded, failed := w.Attachments([]string{"long.txt", "short.txt"})
	if len(failed) > 0 || len(loaded) != 2 {
		t.Fatalf("got %+v, %q; want both", loaded, failed)
	}
	for _, a := range loaded {
		if a.Text != text {
			t.Errorf("%s: got %d bytes, want %d", a.Path, len(a.Text), len(text))
		}
	}
}
