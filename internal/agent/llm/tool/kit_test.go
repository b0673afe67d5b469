package tool

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/internal/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bench is a kit in a workspace of files.
type bench struct {
	*Kit
	t testing.TB
}

// on returns a bench with files, named by their slash-separated paths.
func on(t testing.TB, files map[string]string) bench {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(dir, name), text)
	}
	w, err := workspace.Open(dir)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return bench{&Kit{Workspace: w}, t}
}

// put makes a file and the directories it lies in.
func put(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tool returns the tool of that name.
func (b bench) tool(name string) Tool {
	for _, tool := range b.Tools() {
		if tool.Name == name {
			return tool
		}
	}
	b.t.Fatalf("got no tool %s, want one", name)
	return Tool{}
}

// args is the arguments of a call.
type args map[string]any

func (a args) json(t testing.TB) json.RawMessage {
	text, err := json.Marshal(a)
	must(t, err)
	return text
}

// call runs a tool.
func (b bench) call(name string, a args) Result {
	b.t.Helper()
	res, err := b.tool(name).Run(context.Background(), a.json(b.t), func(string) error { return nil })
	if err != nil {
		b.t.Fatalf("%s %v: %v", name, a, err)
	}
	return res
}

// looked runs a tool that nobody disturbs: what a look before it refuses, it
// refuses with the same words.
func (b bench) looked(name string, a args) Result {
	b.t.Helper()
	var look Result
	if tool := b.tool(name); tool.Look != nil {
		look = tool.Look(a.json(b.t))
	}
	res := b.call(name, a)
	if look.IsError && !reflect.DeepEqual(look, res) {
		b.t.Errorf("%s %v: got %+v after a look that said %+v, want the same", name, a, res, look)
	}
	return res
}

// does checks that a call succeeds, and returns what it says.
func (b bench) does(name string, a args) string {
	b.t.Helper()
	res := b.looked(name, a)
	if res.IsError {
		b.t.Errorf("%s %v: got refusal %q, want success", name, a, res.Text)
	}
	return res.Text
}

// refuses checks that a call is refused in words that contain each of want.
func (b bench) refuses(name string, a args, want ...string) {
	b.t.Helper()
	res := b.looked(name, a)
	if !res.IsError {
		b.t.Errorf("%s %v: got %q, want a refusal", name, a, res.Text)
	}
	for _, w := range want {
		if !strings.Contains(res.Text, w) {
			b.t.Errorf("%s %v: got %q, want %q in it", name, a, res.Text, w)
		}
	}
}

// holds checks what a file holds.
func (b bench) holds(name, want string) {
	b.t.Helper()
	got, err := os.ReadFile(b.Workspace.At(name))
	if err != nil || string(got) != want {
		b.t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
	}
}

func TestWhatChangesSomethingIsGated(t *testing.T) {
	gated := map[string]bool{"bash": true, "read": false, "write": true, "edit": true, "glob": false, "grep": false}
	for _, tool := range on(t, nil).Tools() {
		want, listed := gated[tool.Name]
		if delete(gated, tool.Name); !listed || tool.Gated != want {
			t.Errorf("%s: got gated %v, listed %v; want %v", tool.Name, tool.Gated, listed, want)
		}
		if tool.Title == "" || tool.Description == "" {
			t.Errorf("%s: got title %q, description %q; want both", tool.Name, tool.Title, tool.Description)
		}
	}
	if len(gated) > 0 {
		t.Errorf("got no tools %v, want all", gated)
	}
}

func TestCallsAreLabelledForPeople(t *testing.T) {
	b := on(t, nil)
	for _, tt := range []struct {
		tool          string
		args          args
		label, action string
	}{
		{"bash", args{"command": "ls -l"}, "Ran ls -l", "Running ls -l"},
		{"bash", args{"command": "rm -rf x", "description": "Lists files"}, "Ran rm -rf x", "Running rm -rf x"},
		{"bash", args{"command": "a\nb"}, "Ran a…", "Running a…"},
		{"bash", args{"command": strings.Repeat("ä", 81)}, "Ran " + strings.Repeat("ä", 80) + "…", "Running " + strings.Repeat("ä", 80) + "…"},
		{"bash", nil, "Ran a command", "Running a command"},
		{"read", args{"path": "a.go"}, "Read a.go", "Reading a.go"},
		{"write", args{"path": "a.go", "content": ""}, "Wrote a.go", "Writing a.go"},
		{"edit", args{"path": "a.go", "old_string": "a", "new_string": "b"}, "Edited a.go", "Editing a.go"},
		{"edit", args{"path": 1}, "Edited a file", "Editing a file"},
		{"glob", args{"pattern": "*.go"}, "Found *.go", "Finding *.go"},
		{"grep", args{"pattern": "func"}, "Searched for func", "Searching for func"},
	} {
		label, action := b.tool(tt.tool).Brief(tt.args.json(t))
		if label != tt.label || action != tt.action {
			t.Errorf("%s %v: got %q, %q; want %q, %q", tt.tool, tt.args, label, action, tt.label, tt.action)
		}
	}
}

func TestPathsOutsideAreRefused(t *testing.T) {
	b := on(t, map[string]string{"in": "in"})
	outside := t.TempDir()
	put(t, filepath.Join(outside, "secret"), "secret")
	must(t, os.Symlink(outside, b.Workspace.At("dir")))
	must(t, os.Symlink(filepath.Join(outside, "secret"), b.Workspace.At("file")))
	for _, path := range []string{"../x", "/etc/passwd", filepath.Join(outside, "secret"), "dir/secret", "file", "dir"} {
		for name, a := range map[string]args{
			"read": {"path": path}, "write": {"path": path, "content": "x"}, "edit": {"path": path, "old_string": "secret", "new_string": "x"},
			"glob": {"path": path, "pattern": "*"}, "grep": {"path": path, "pattern": "secret"},
		} {
			b.refuses(name, a, "outside the workspace")
		}
	}
	b.refuses("edit", args{"path": "dir/new", "old_string": "", "new_string": "x"}, "outside the workspace")
	for name, a := range map[string]args{"glob": {"pattern": "**"}, "grep": {"pattern": "secret|in"}} {
		if got := b.does(name, a); strings.Contains(got, "secret") {
			t.Errorf("%s: got %q, want nothing from outside", name, got)
		}
	}
	if got, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(got) != "secret" {
		t.Errorf("got %q, %v; want the file as it was", got, err)
	}
}

func TestEndedCallReturnsItsCause(t *testing.T) {
	b := on(t, map[string]string{"a": "a"})
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	for name, a := range map[string]args{"bash": {"command": "true"}, "glob": {"pattern": "*"}, "grep": {"pattern": "a"}} {
		if res, err := b.tool(name).Run(ctx, a.json(t), func(string) error { return nil }); !errors.Is(err, stopped) {
			t.Errorf("%s: got %+v, %v; want error %v", name, res, err, stopped)
		}
	}
}
