package acp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/diff"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
)

// A block is a piece of content of any type.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	MimeType string `json:"mimeType"`
	URI      string `json:"uri"`
	Resource struct {
		URI      string `json:"uri"`
		Text     string `json:"text"`
		MimeType string `json:"mimeType"`
	} `json:"resource"`
}

// text returns the block as text. For content that is not text it returns a
// name.
func (b block) text() string {
	switch b.Type {
	case "text":
		return b.Text
	case "image", "audio":
		return "[" + b.Type + ":" + cmp.Or(b.MimeType, "unknown") + "]"
	case "resource_link":
		return "[" + b.URI + "]"
	case "resource":
		return cmp.Or(b.Resource.Text, "["+b.Resource.URI+"]")
	}
	return ""
}

// A toolContent is a piece of a call's content: a block, a change of a file or
// a terminal.
type toolContent struct {
	Type     string  `json:"type"`
	Content  block   `json:"content"`
	Path     string  `json:"path"`
	Old      *string `json:"oldText"` // nil for a new file
	New      string  `json:"newText"`
	Terminal string  `json:"terminalId"`

	created bool
	long    int  // bytes of a change that is too long to show
	cut     bool // a change is not all there is, or its path was too long
}

// maxContent bounds the pieces of a call's content.
const maxContent = 256

// contents decodes content piece by piece.
// Together the pieces keep about maxShown bytes of text, earlier ones first.
// The result is not nil.
func contents(all list[json.RawMessage]) []toolContent {
	raw := all.kept
	list := make([]toolContent, 0, min(len(raw), maxContent))
	left := maxShown
	for _, r := range raw[:min(len(raw), maxContent)] {
		var c toolContent
		decode(r, &c)
		path := c.Path
		left = max(0, left-c.shrink(left))
		c.cut = c.Type == "diff" && c.Path != path
		list = append(list, c)
	}
	if more := len(raw) - maxContent + all.more; more > 0 {
		list = append(list, toolContent{
			Type: "content", Content: block{Type: "text", Text: fmt.Sprintf("[%d more pieces are not shown]", more)}, cut: true,
		})
	}
	return list
}

// shrink cuts a piece to about limit bytes and returns its size. A change is
// kept whole or not at all, because a part of it would be a different change.
func (c *toolContent) shrink(limit int) int {
	if c.Old == nil {
		c.Old = new(string)
		c.created = true
	}
	if size := len(c.New) + len(*c.Old); size > limit {
		c.New, c.Old, c.long = "", new(string), size
	}
	for text, limit := range map[*string]int{
		&c.Type: maxKind, &c.Content.Type: maxKind, &c.Content.MimeType: maxLabel, &c.Content.Resource.MimeType: maxLabel,
		&c.Path: maxPath, &c.Content.URI: maxPath, &c.Content.Resource.URI: maxPath, &c.Terminal: maxKey,
	} {
		*text = abridge.Bytes(*text, limit)
	}
	for _, text := range []*string{&c.Content.Text, &c.Content.Resource.Text} {
		if len(*text) > limit {
			*text = strings.Clone(abridge.Bytes(*text, limit))
		}
	}
	return len(c.New) + len(*c.Old) + len(c.Content.Text) + len(c.Content.Resource.Text)
}

// render returns content of a call as text: the given types of it, and all types
// without any. It leaves out terminals, whose output is published as it comes.
func render(list []toolContent, types ...string) string {
	var parts []string
	for _, c := range list {
		if len(types) > 0 && !slices.Contains(types, c.Type) {
			continue
		}
		text := ""
		switch {
		case c.Type == "content":
			text = c.Content.text()
		case c.Type == "diff" && c.long > 0:
			text = fmt.Sprintf("[the change of %s is too long to be shown: %d bytes]", c.Path, c.long)
		case c.Type == "diff":
			text = unified(c.Path, c.created, *c.Old, c.New)
		}
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n")
}

// resultText returns the raw output of a call as text: a string as it is, and
// any other value as JSON with secrets masked.
func resultText(raw json.RawMessage) string {
	if isNull(raw) {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, mask.Args(raw)) // it is valid
	return compact.String()
}

// unified returns the change of a file as a unified diff, "" if there is none.
func unified(path string, created bool, old, new string) string {
	path = strings.TrimPrefix(path, "/")
	from := "a/" + path
	if created {
		from = "/dev/null"
	}
	return strings.Join(diff.Unified(from, "b/"+path, old, new), "")
}

// maxListed bounds the processed elements of a list from the program: a line
// has room for millions of empty elements.
const maxListed = 1024

// A list is a list from the program, of which the first elements are kept. A
// value that is not a list decodes as no list.
type list[T any] struct {
	kept []T // nil if there was no list
	more int // number of elements that were not kept
}

// UnmarshalJSON implements [json.Unmarshaler]. Members of a wrong type in an
// element are ignored.
func (l *list[T]) UnmarshalJSON(raw []byte) error {
	*l = list[T]{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return nil
	}
	l.kept = []T{}
	for dec.More() {
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			return err
		}
		if len(l.kept) == maxListed {
			l.more++
			continue
		}
		var t T
		decode(element, &t)
		l.kept = append(l.kept, t)
	}
	return nil
}
