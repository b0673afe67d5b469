package tool

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

type writeArgs struct{ path, content string }

func (a *writeArgs) list() []arg {
	return []arg{
		{name: "path", to: &a.path, required: true, min: 1, about: "The file, relative to the workspace or absolute; directories on the way are made"},
		{name: "content", to: &a.content, required: true, about: "All that the file is to hold, exactly"},
	}
}

func (a *writeArgs) decode(raw json.RawMessage) error {
	err := decode(raw, a.list()...)
	if err == nil && len(a.content) > maxFileBytes {
		return refusal(fmt.Sprintf("The content has %d bytes, and at most %d are allowed.", len(a.content), maxFileBytes))
	}
	return err
}

// write makes files.
func (k *Kit) write() Tool {
	return k.changing(Tool{
		Tool: model.Tool{
			Name: "write",
			Description: "Makes a file that holds exactly the content, or replaces all of an existing one, which has to be read first. " +
				"To change a part of a file use edit.",
			Schema: schemaOf(new(writeArgs).list()),
		},
		Title: "Write",
		Brief: func(raw json.RawMessage) (label, action string) {
			var a writeArgs
			name := pathOf(a.decode(raw), a.path)
			return "Wrote " + name, "Writing " + name
		},
	}, func(raw json.RawMessage) (string, revision, error) {
		var a writeArgs
		err := a.decode(raw)
		return a.path, a.revise, err
	})
}

func (a *writeArgs) revise(f file, was []byte, there bool) (revised, error) {
	switch {
	case !there:
		return created(f, a.content), nil
	case string(was) == a.content:
		return revised{a.content, f.name + " holds exactly that already.", "It changes nothing: the file holds that already"}, nil
	}
	return revised{
		a.content, fmt.Sprintf("Replaced what was in %s by %s.", f.name, extent(a.content)),
		"It replaces all of a file of " + extent(string(was)),
	}, nil
}

// created is what becomes of a file that was not there.
func created(f file, content string) revised {
	return revised{content, fmt.Sprintf("Created %s with %s.", f.name, extent(content)), "It makes a new file"}
}

// extent says how long a text is.
func extent(text string) string {
	lines := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		lines++
	}
	return count(lines, "line") + " (" + count(len(text), "byte") + ")"
}
