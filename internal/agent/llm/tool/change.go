package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/diff"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

// Bounds on a diff in a result.
const (
	maxDiffLines = 200
	maxDiffLine  = 300
)

type writeArgs struct {
	Path    string `json:"path" min:"1" about:"The file, relative to the workspace or absolute; directories on the way are made"`
	Content string `json:"content" about:"All that the file is to hold, exactly"`
}

func (k *Kit) write() Tool {
	return change(k, Tool{
		Tool: model.Tool{
			Name: "write",
			Description: "Makes a file that holds exactly the content, or replaces all of an existing one, which has to be read first. " +
				"To change a part of a file use edit.",
		},
		Title: "Write",
	}, "Wrote", "Writing", func(a *writeArgs) string { return a.Path }, func(a *writeArgs) revision { return a.revise })
}

func (a *writeArgs) revise(f file, was []byte, there bool) (revised, error) {
	switch {
	case !there:
		return created(f, a.Content), nil
	case string(was) == a.Content:
		return revised{a.Content, f.name + " holds exactly that already.", "It changes nothing: the file holds that already"}, nil
	}
	return revised{
		a.Content, fmt.Sprintf("Replaced what was in %s by %s.", f.name, extent(a.Content)),
		"It replaces all of a file of " + extent(string(was)),
	}, nil
}

// created returns the change that makes a new file.
func created(f file, content string) revised {
	return revised{content, fmt.Sprintf("Created %s with %s.", f.name, extent(content)), "It makes a new file"}
}

func extent(text string) string {
	return count(len(diff.Lines(text)), "line") + " (" + count(len(text), "byte") + ")"
}

type editArgs struct {
	Path      string `json:"path" min:"1" about:"The file, relative to the workspace or absolute"`
	OldString string `json:"old_string" about:"The text to replace, exactly as in the file, without line numbers; empty makes a new file of new_string"`
	NewString string `json:"new_string" about:"The text to put in its place"`
	All       bool   `json:"replace_all,omitempty" about:"Replace every place where old_string occurs; false if not given"`
}

func (a *editArgs) check() error {
	if a.OldString == a.NewString {
		return refusal("old_string and new_string are the same: there is nothing to change.")
	}
	return nil
}

func (k *Kit) edit() Tool {
	return change(k, Tool{
		Tool: model.Tool{
			Name: "edit",
			Description: "Replaces old_string by new_string in a text file that was read before. old_string has to occur exactly once, " +
				"so give enough of the text around it, or set replace_all. Line endings stay as the file has them: use a plain line feed. " +
				"An empty old_string makes a new file. The result is a diff.",
		},
		Title: "Edit",
	}, "Edited", "Editing", func(a *editArgs) string { return a.Path }, func(a *editArgs) revision { return a.revise })
}

func (a *editArgs) revise(f file, was []byte, there bool) (revised, error) {
	switch {
	case !there && a.OldString == "":
		return created(f, a.NewString), nil
	case !there:
		return revised{}, f.refuse(fs.ErrNotExist)
	case bytes.IndexByte(was, 0) >= 0:
		return revised{}, refusal(f.name + " is a binary file. Change it with bash.")
	case a.OldString == "" && len(was) > 0:
		return revised{}, refusal(f.name + " is there already and not empty, so old_string must say what to replace. To replace all of it use write.")
	}
	d := newDocument(string(was))
	before, after := lineFeeds(a.OldString), lineFeeds(a.NewString)
	n := strings.Count(d.text, before)
	switch grown := len(after) + strings.Count(after, "\n") - len(before); {
	case n == 0:
		return revised{}, notFound(f, before)
	case a.All && len(was)+n*grown > maxFileBytes:
		return revised{}, refusal(fmt.Sprintf("%s would be larger than %d MiB.", f.name, maxFileBytes>>20))
	case !a.All && strings.Index(d.text, before) != strings.LastIndex(d.text, before): // also where it overlaps itself
		line := 1 + strings.Count(d.text[:strings.Index(d.text, before)], "\n")
		return revised{}, refusal(fmt.Sprintf("old_string occurs more than once in %s, first on line %d. "+
			"Add text around it until it is unique, or set replace_all to change every one.", f.name, line))
	}
	changed := strings.ReplaceAll(d.text, before, after)
	text := d.file(changed)
	if text == string(was) {
		return revised{}, refusal("That changes nothing: the text differs in line endings alone, and those stay as the file has them.")
	}
	about := ""
	if n > 1 {
		about = "It replaces the text in " + count(n, "place")
	}
	lines := diff.Unified("a/"+f.name, "b/"+f.name, lineFeeds(d.text), lineFeeds(changed))
	shown := ""
	for _, line := range lines[:min(len(lines), maxDiffLines)] {
		shown += cutLine(valid(strings.TrimSuffix(line, "\n")), maxDiffLine) + "\n"
	}
	if more := len(lines) - maxDiffLines; more > 0 {
		shown += fmt.Sprintf("[%s of the diff left out]\n", count(more, "line"))
	}
	return revised{text, fmt.Sprintf("Edited %s: %s.\n\n%s", f.name, count(n, "replacement"), shown), about}, nil
}

// maxSeen bounds the files in Kit.seen. The model has to read a dropped file again.
const maxSeen = 4096

// remember notes that the model knows what the file holds, even if only a part was
// shown. It may drop another file. The caller holds k.mu.
func (k *Kit) remember(f file, data []byte) {
	if k.seen == nil {
		k.seen = map[string][sha256.Size]byte{}
	}
	for other := range k.seen {
		if len(k.seen) < maxSeen {
			break
		}
		delete(k.seen, other)
	}
	k.seen[k.key(f)] = sha256.Sum256(data)
}

// A revised is a change of a file: its new text, what the model is told, and what
// people are told who are asked first, if the arguments alone do not say it.
type revised struct{ text, said, about string }

// A revision returns the change of a file that held was, if it was there.
type revision func(f file, was []byte, there bool) (revised, error)

// change completes a tool that changes a file. Its arguments of type A have the path
// and the revision.
func change[A any](k *Kit, t Tool, did, doing string, path func(*A) string, to func(*A) revision) Tool {
	t = define(t, did, doing, "a file", path, func(_ context.Context, a *A, _ func(string) error) (Result, error) {
		return k.revise(path(a), to(a), true)
	})
	t.Gated = true
	t.Look = func(raw json.RawMessage) Result {
		look, _ := call(raw, func(a *A) (Result, error) { return k.revise(path(a), to(a), false) })
		return look // every error is a refusal
	}
	return t
}

// revise changes a file or makes a new one. The model must know what an existing
// file holds. Without apply revise says only what it would do.
func (k *Kit) revise(path string, change revision, apply bool) (Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := k.locate(path)
	if err != nil {
		return Result{}, err
	}
	var was []byte
	var info fs.FileInfo
	_, missing := k.Workspace.Stat(f.rel)
	there := !errors.Is(missing, fs.ErrNotExist)
	if there {
		if was, info, err = k.load(f); err != nil {
			return Result{}, err
		}
		switch sum, ever := k.seen[k.key(f)]; {
		case len(was) == 0: // nothing is lost
		case !ever:
			return Result{}, refusal(f.name + " was not read yet. Read it before changing it.")
		case sum != sha256.Sum256(was):
			return Result{}, refusal(fmt.Sprintf("%s has changed since it was last read, maybe by a command or by a person. Read it again before changing it.", f.name))
		}
	}
	to, err := change(f, was, there)
	switch {
	case err != nil:
		return Result{}, err
	case len(to.text) > maxFileBytes:
		return Result{}, refusal(fmt.Sprintf("The file would have %d bytes, and at most %d are allowed.", len(to.text), maxFileBytes))
	case !apply:
		return Result{Text: to.about}, nil
	case !there:
		err = k.Workspace.CreateFile(f.rel, []byte(to.text))
	case to.text != string(was):
		err = k.Workspace.ReplaceFile(f.rel, []byte(to.text), info)
	}
	if err != nil {
		return Result{}, f.refuse(err)
	}
	k.remember(f, []byte(to.text))
	return Result{Text: to.said}, nil
}
