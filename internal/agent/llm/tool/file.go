package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// maxFileBytes bounds a file, which is held in memory a few times over.
const maxFileBytes = 32 << 20

// A file is a file that the model named.
type file struct {
	rel  string // below the root
	name string // slash-separated, as the model is told of it
}

// locate returns what path names, relative to the workspace or absolute.
func (k *Kit) locate(path string) (file, error) {
	rel, err := k.Workspace.Rel(path)
	if err != nil {
		return file{}, refusal(fmt.Sprintf("%s is outside the workspace, which is %s. Use a path below it.", quote(path), k.Workspace.Root()))
	}
	return file{rel: rel, name: filepath.ToSlash(rel)}, nil
}

// refuse says why something could not be done with the file.
func (f file) refuse(err error) error {
	for _, known := range []struct {
		err  error
		text string
	}{
		{workspace.ErrOutside, "%s leads outside the workspace: a symbolic link in it does, or is absolute."},
		{workspace.ErrTooLarge, "%s is larger than the 32 MiB that can be read at once. Look at parts of it with bash."},
		{workspace.ErrNotRegular, "%s is not a regular file but a directory, a pipe or a device."},
		{workspace.ErrChanged, "%s was changed by somebody else just now and left alone. Read it again."},
		{fs.ErrNotExist, "There is no file %s."},
		{fs.ErrExist, "There is a file %s already. Read it before changing it."},
		{fs.ErrPermission, "No permission for %s."},
	} {
		if errors.Is(err, known.err) {
			return refusal(fmt.Sprintf(known.text, f.name))
		}
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return refusal(fmt.Sprintf("%s: %v.", f.name, err))
}

// load returns what a regular file holds.
func (k *Kit) load(f file) ([]byte, fs.FileInfo, error) {
	data, info, err := k.Workspace.ReadFile(f.rel, maxFileBytes)
	switch {
	case err == nil:
		return data, info, nil
	case info != nil && info.IsDir():
		return nil, nil, refusal(f.name + " is a directory. Find the files in it with glob, or list it with bash.")
	}
	return nil, nil, f.refuse(err)
}

// key returns the path of a file with its links resolved.
func (k *Kit) key(f file) string {
	if real, err := k.Workspace.Real(f.rel); err == nil {
		return real
	}
	return f.rel
}

// maxBriefChars bounds a command or path in labels.
const maxBriefChars = 80

// brief returns the first line of text, at most maxBriefChars of it.
func brief(text string) string { return abridge.Line(text, maxBriefChars) }

// valid returns text as models and clients can take it: what is not UTF-8, and
// NUL, becomes U+FFFD.
func valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// cutLine returns a line, at most limit bytes of it and what it says about that.
func cutLine(line string, limit int) string {
	if len(line) <= limit {
		return line
	}
	first := abridge.Head(line, limit)
	return fmt.Sprintf("%s… [%d bytes left out]", first, len(line)-len(first))
}

// count returns a number of things, such as "1 line" or "2 lines".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// A window keeps the beginning and the end of a text that comes in pieces, at
// most half bytes of each. No character is cut.
type window struct {
	half       int
	head, tail string // tail is empty as long as head has room
	size       int    // of the whole text
}

func (w *window) add(text string) {
	w.size += len(text)
	if w.tail == "" {
		first := abridge.Head(text, w.half-len(w.head))
		w.head, text = w.head+first, text[len(first):]
	}
	w.tail = contracts.TailText(w.tail+text, w.half)
}

// text returns what was kept and says how much was not.
func (w *window) text() string {
	lost := w.size - len(w.head) - len(w.tail)
	if lost == 0 {
		return w.head + w.tail
	}
	return fmt.Sprintf("%s\n[… %s left out …]\n%s", w.head, count(lost, "byte"), w.tail)
}
