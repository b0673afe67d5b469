package tool

import (
	"os"
	"strings"
	"testing"
)

func TestNewFilesAreWritten(t *testing.T) {
	b := on(t, nil)
	for path, want := range map[string]string{
		"a.go": "Created a.go with 2 lines (4 bytes).", "b/c/d.go": "Created b/c/d.go with 2 lines (4 bytes).",
		b.Workspace.At("e.go"): "Created e.go with 2 lines (4 bytes).",
	} {
		if got := b.does("write", args{"path": path, "content": "x\n\r\n"}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, name := range []string{"a.go", "b/c/d.go", "e.go"} {
		b.holds(name, "x\n\r\n")
	}
	b.refuses("write", args{"path": "a.go/below", "content": "x"}, "a.go/below: not a directory.")
	b.refuses("write", args{"path": "b", "content": "x"}, "b is a directory")
	b.refuses("write", args{"path": ".", "content": "x"}, "is a directory")
}

// What was read, or written, may be replaced as long as nobody else changes it.
func TestOnlyKnownFilesAreChanged(t *testing.T) {
	b := on(t, map[string]string{"file": "old\n", "empty": ""})
	must(t, os.Symlink("file", b.Workspace.At("link")))
	change := map[string]func(path, text string) args{
		"write": func(path, text string) args { return args{"path": path, "content": text} },
		"edit":  func(path, text string) args { return args{"path": path, "old_string": "old", "new_string": text} },
	}
	for name, with := range change {
		put(t, b.Workspace.At("file"), "old\n")
		clear(b.seen)
		b.refuses(name, with("file", "new"), "file was not read yet")
		b.does("grep", args{"pattern": "old", "output_mode": "content"})
		b.refuses(name, with("file", "new"), "file was not read yet")
		b.does("read", args{"path": "link"}) // the same file
		put(t, b.Workspace.At("file"), "old\nand changed\n")
		b.refuses(name, with("file", "new"), "file has changed since it was last read")
		b.holds("file", "old\nand changed\n")
		b.does("read", args{"path": "file", "offset": 2})
		put(t, b.Workspace.At("file"), "old\nand changed\n") // the same again
		b.does(name, with("file", "mine"))
		b.does("edit", args{"path": "file", "old_string": "mine", "new_string": "again"}) // what was written is known
		b.does("write", args{"path": "file", "content": "x"})
		b.holds("file", "x")
	}
	b.does("write", args{"path": "empty", "content": "nothing is lost"})
	b.holds("empty", "nothing is lost")
	put(t, b.Workspace.At("empty"), "")
	b.does("edit", args{"path": "empty", "old_string": "", "new_string": "nor here"})
	b.holds("empty", "nor here")
}

func TestWrittenFileKeepsItsModeAndItsLinks(t *testing.T) {
	b := on(t, map[string]string{"script": "old"})
	must(t, os.Chmod(b.Workspace.At("script"), 0o750))
	must(t, os.Symlink("script", b.Workspace.At("link")))
	b.does("read", args{"path": "script"})
	if got, want := b.does("write", args{"path": "link", "content": "new"}), "Replaced what was in link by 1 line (3 bytes)."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.holds("script", "new")
	if info, err := os.Lstat(b.Workspace.At("link")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("got %v, %v; want a link still", info.Mode(), err)
	}
	if info, err := os.Stat(b.Workspace.At("script")); err != nil || info.Mode() != 0o750 {
		t.Errorf("got %v, %v; want mode 0750", info.Mode(), err)
	}
	if got := b.does("write", args{"path": "script", "content": "new"}); !strings.Contains(got, "holds exactly that already") {
		t.Errorf("got %q, want it said that nothing changed", got)
	}
	must(t, os.Chmod(b.Workspace.At("script"), 0o400))
	b.refuses("write", args{"path": "script", "content": "newer"}, "No permission for script.")
}

func TestLookSaysWhatArgumentsDoNot(t *testing.T) {
	b := on(t, map[string]string{"unread": "x\n", "file": "one two\ntwo\n", "empty": ""})
	b.does("read", args{"path": "file"})
	replace := func(before string, all bool) args {
		return args{"path": "file", "old_string": before, "new_string": "three", "replace_all": all}
	}
	for _, tt := range []struct {
		tool    string
		args    args
		want    string
		refused bool
	}{
		{"write", args{"path": "new", "content": "x"}, "It makes a new file", false},
		{"edit", args{"path": "new", "old_string": "", "new_string": "x"}, "It makes a new file", false},
		{"write", args{"path": "file", "content": "x"}, "It replaces all of a file of 2 lines (12 bytes)", false},
		{"write", args{"path": "empty", "content": "x"}, "It replaces all of a file of 0 lines (0 bytes)", false},
		{"write", args{"path": "file", "content": "one two\ntwo\n"}, "It changes nothing: the file holds that already", false},
		{"edit", replace("one", false), "", false},
		{"edit", replace("two", true), "It replaces the text in 2 places", false},
		{"edit", replace("two", false), "old_string occurs more than once", true},
		{"edit", replace("four", false), "old_string", true},
		{"write", args{"path": "unread", "content": "y"}, "unread was not read yet", true},
		{"write", args{"path": "../out", "content": "y"}, "outside the workspace", true},
		{"write", args{"path": "new"}, "content", true},
	} {
		got := b.tool(tt.tool).Look(tt.args.json(t))
		if got.IsError != tt.refused || !strings.Contains(got.Text, tt.want) || !tt.refused && got.Text != tt.want {
			t.Errorf("%s %v: got %+v, want %q, refused: %t", tt.tool, tt.args, got, tt.want, tt.refused)
		}
	}
	b.holds("file", "one two\ntwo\n")
	b.holds("empty", "")
	if _, err := os.Stat(b.Workspace.At("new")); !os.IsNotExist(err) {
		t.Errorf("got %v, want that nothing was made", err)
	}
}
