package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

type editArgs struct {
	path, before, after string
	all                 bool
}

func (a *editArgs) list() []arg {
	return []arg{
		{name: "path", to: &a.path, required: true, min: 1, about: "The file, relative to the workspace or absolute"},
		{name: "old_string", to: &a.before, required: true, about: "The text to replace, exactly as in the file, without line numbers; empty makes a new file of new_string"},
		{name: "new_string", to: &a.after, required: true, about: "The text to put in its place"},
		{name: "replace_all", to: &a.all, about: "Replace every place where old_string occurs; false if not given"},
	}
}

func (a *editArgs) decode(raw json.RawMessage) error {
	err := decode(raw, a.list()...)
	switch {
	case err != nil:
		return err
	case a.before == a.after:
		return refusal("old_string and new_string are the same: there is nothing to change.")
	case len(a.after) > maxFileBytes:
		return refusal(fmt.Sprintf("new_string has %d bytes, and at most %d are allowed.", len(a.after), maxFileBytes))
	}
	return nil
}

// edit replaces text in files.
func (k *Kit) edit() Tool {
	return k.changing(Tool{
		Tool: model.Tool{
			Name: "edit",
			Description: "Replaces old_string by new_string in a text file that was read before. old_string has to occur exactly once, " +
				"so give enough of the text around it, or set replace_all. Line endings stay as the file has them: use a plain line feed. " +
				"An empty old_string makes a new file. The result is a diff.",
			Schema: schemaOf(new(editArgs).list()),
		},
		Title: "Edit",
		Brief: func(raw json.RawMessage) (label, action string) {
			var a editArgs
			name := pathOf(a.decode(raw), a.path)
			return "Edited " + name, "Editing " + name
		},
	}, func(raw json.RawMessage) (string, revision, error) {
		var a editArgs
		err := a.decode(raw)
		return a.path, a.revise, err
	})
}

func (a *editArgs) revise(f file, was []byte, there bool) (revised, error) {
	switch {
	case !there && a.before == "":
		return created(f, a.after), nil
	case !there:
		return revised{}, f.refuse(fs.ErrNotExist)
	case bytes.IndexByte(was, 0) >= 0:
		return revised{}, refusal(f.name + " is a binary file. Change it with bash.")
	case a.before == "" && len(was) > 0:
		return revised{}, refusal(f.name + " is there already and not empty, so old_string must say what to replace. To replace all of it use write.")
	}
	d := newDocument(string(was))
	changes, err := d.changes(f, a)
	if err != nil {
		return revised{}, err
	}
	text := d.apply(changes)
	if text == string(was) {
		return revised{}, refusal("That changes nothing: the text differs in line endings alone, and those stay as the file has them.")
	}
	about := ""
	if len(changes) > 1 {
		about = "It replaces the text in " + count(len(changes), "place")
	}
	return revised{text, fmt.Sprintf("Edited %s: %s.\n\n%s", f.name, count(len(changes), "replacement"), unified(f.name, d.text, newDocument(text).text)), about}, nil
}

// changes returns what the edit does to the text.
func (d *document) changes(f file, a *editArgs) ([]change, error) {
	before, after := lineFeeds(a.before), lineFeeds(a.after)
	if before == "" { // the file is empty
		return []change{{text: after}}, nil
	}
	first, last := strings.Index(d.text, before), strings.LastIndex(d.text, before)
	switch {
	case first < 0:
		return nil, d.notFound(f, before)
	case first != last && !a.all:
		return nil, d.ambiguous(f, before)
	}
	n := strings.Count(d.text, before)
	if !a.all {
		n = 1 // also where it overlaps itself
	}
	if grown := len(after) + strings.Count(after, "\n") - len(before); len(d.text)+len(d.returns)+n*grown > maxFileBytes {
		return nil, refusal(fmt.Sprintf("%s would be larger than %d MiB.", f.name, maxFileBytes>>20))
	}
	changes := make([]change, 0, n)
	for at := 0; len(changes) < n; {
		at += strings.Index(d.text[at:], before)
		changes = append(changes, change{at, at + len(before), after})
		at += len(before)
	}
	return changes, nil
}
