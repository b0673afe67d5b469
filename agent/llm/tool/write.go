package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

const writeSchema = `{
  "type": "object",
  "properties": {
    "path": {"type": "string", "minLength": 1, "description": "The file, relative to the workspace or absolute; directories on the way are made"},
    "content": {"type": "string", "description": "All that the file is to hold, exactly"}
  },
  "required": ["path", "content"],
  "additionalProperties": false
}`

type writeArgs struct{ path, content string }

func (a *writeArgs) decode(raw json.RawMessage) error {
	err := decode(raw,
		arg{name: "path", to: &a.path, required: true},
		arg{name: "content", to: &a.content, required: true},
	)
	if err == nil && len(a.content) > maxFileBytes {
		return refusal(fmt.Sprintf("The content has %d bytes, and at most %d are allowed.", len(a.content), maxFileBytes))
	}
	return err
}

// write makes files.
func (k *Kit) write() Tool {
	return Tool{
		Tool: model.Tool{
			Name: "write",
			Description: "Makes a file that holds exactly the content, or replaces all of an existing one, which has to be read first. " +
				"To change a part of a file use edit.",
			Schema: json.RawMessage(writeSchema),
		},
		Title: "Write", Gated: true,
		Brief: func(raw json.RawMessage) (label, action string) {
			var a writeArgs
			name := pathOf(a.decode(raw), a.path)
			return "Wrote " + name, "Writing " + name
		},
		Run: told(k.runWrite),
	}
}

func (k *Kit) runWrite(_ context.Context, raw json.RawMessage, _ func(string) error) (Result, error) {
	var a writeArgs
	if err := a.decode(raw); err != nil {
		return Result{}, err
	}
	f, err := k.locate(a.path)
	if err != nil {
		return Result{}, err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if k.missing(f) {
		return k.create(f, a.content)
	}
	data, was, err := k.known(f)
	if err != nil {
		return Result{}, err
	}
	if string(data) == a.content {
		return Result{Text: f.name + " holds exactly that already."}, nil
	}
	if err := k.Workspace.ReplaceFile(f.rel, []byte(a.content), was); err != nil {
		return Result{}, f.refuse(err)
	}
	k.remember(f, []byte(a.content))
	return Result{Text: fmt.Sprintf("Replaced what was in %s by %s.", f.name, extent(a.content))}, nil
}

// missing reports whether there is nothing at the path of the file.
func (k *Kit) missing(f file) bool {
	_, err := k.Workspace.Stat(f.rel)
	return errors.Is(err, fs.ErrNotExist)
}

// create makes a new file. k.writing is held.
func (k *Kit) create(f file, content string) (Result, error) {
	if err := k.Workspace.CreateFile(f.rel, []byte(content)); err != nil {
		return Result{}, f.refuse(err)
	}
	k.remember(f, []byte(content))
	return Result{Text: fmt.Sprintf("Created %s with %s.", f.name, extent(content))}, nil
}

// extent says how long a text is.
func extent(text string) string {
	lines := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		lines++
	}
	return count(lines, "line") + " (" + count(len(text), "byte") + ")"
}
