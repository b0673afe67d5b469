package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/agent/diff"
	"github.com/seed-028515a8/maestro/contracts"
)

// How the arguments of a tool are shown: in a line beside its name, and whole
// where somebody decides about them.

// Names under which tools take a file, and a text and what replaces it.
var (
	pathKeys   = []string{"path", "file_path", "filePath", "file", "filename", "notebook_path"}
	changeKeys = [][2]string{
		{"old_string", "new_string"}, {"oldString", "newString"}, {"old_str", "new_str"}, {"old_text", "new_text"}, {"oldText", "newText"},
	}
)

// An extra is what an agent of the Agent Client Protocol says of a call beside
// its arguments, in "_acp".
type extra struct {
	Title     string `json:"title"`
	Locations []struct {
		Path string `json:"path"`
		Line *int   `json:"line"`
	} `json:"locations"`
	Diff         string                    `json:"diff"`
	Options      contracts.ApprovalOptions `json:"options"`
	OmittedBytes int                       `json:"omitted_bytes"`
}

// fields returns the arguments by name, and the extra, which is not among them;
// nil if there is none. It returns false if the arguments have no names.
func fields(args json.RawMessage) (map[string]json.RawMessage, *extra, bool) {
	var byName map[string]json.RawMessage
	if json.Unmarshal(args, &byName) != nil || byName == nil {
		return nil, nil, false
	}
	more := &extra{}
	if byName["_acp"] == nil || json.Unmarshal(byName["_acp"], more) != nil {
		return byName, nil, true
	}
	delete(byName, "_acp")
	return byName, more, true
}

// summary returns a tool's arguments in a line: a command as it would be typed,
// or what an agent calls the call, anything else as JSON.
func summary(args json.RawMessage) string {
	byName, more, ok := fields(args)
	if command, isText := textOf(byName["command"]); isText {
		return "$ " + inLine(command, maxArgs)
	}
	if ok && more != nil && more.Title != "" {
		text := inLine(more.Title, maxArgs)
		for _, place := range more.places() {
			if !strings.Contains(text, place) {
				text += " " + place
			}
		}
		return text
	}
	if more != nil {
		args = asJSON(byName)
	}
	return inLine(compacted(args), maxArgs)
}

// details returns a tool's arguments line by line, all of them: its command or
// the file it is about first, then what is short. Nothing in them can be taken
// for another one, or is not seen.
func details(args json.RawMessage) []string {
	byName, more, ok := fields(args)
	if !ok || len(byName) == 0 && more == nil {
		return lines(compacted(args))
	}
	command, isCommand := textOf(byName["command"])
	shown := more.details(command)
	places := more.files()
	paths := slices.Clone(places)
	if isCommand {
		delete(byName, "command")
		shown = append(shown, hang("$ ", "  ", command)...)
	}
	for _, key := range pathKeys {
		if path, ok := textOf(byName[key]); ok {
			if !slices.Contains(places, path) { // which are shown
				shown = append(shown, field(key, path)...)
			}
			paths = append(paths, path)
			delete(byName, key)
		}
	}
	change := changeIn(byName)
	if more != nil && more.Diff != "" { // which may be cut, or not what the arguments say: those are shown as well
		told := lines(more.Diff)
		if slices.Equal(marked(change, " "), marked(hunks(told), "")) {
			change = nil
		}
		change = append(told, change...)
		maps.DeleteFunc(byName, func(_ string, value json.RawMessage) bool {
			text, _ := textOf(value)
			return repeats(lines(text), told, paths)
		})
	}
	short, long := plain(byName)
	shown = append(append(shown, short...), change...)
	return append(shown, long...)
}

// details returns what an extra adds: the title, unless it is the command, and
// the places.
func (e *extra) details(command string) (shown []string) {
	if e == nil {
		return nil
	}
	if e.Title != "" && e.Title != command {
		shown = lines(e.Title)
	}
	for _, place := range e.places() {
		shown = append(shown, "at "+place)
	}
	if e.OmittedBytes > 0 {
		shown = append(shown, fmt.Sprintf("(%d bytes are too much to be shown)", e.OmittedBytes))
	}
	return shown
}

// places returns the files and lines that a call is about.
func (e *extra) places() (places []string) {
	for _, l := range e.Locations {
		place := inLine(l.Path, maxShown)
		if l.Line != nil {
			place += fmt.Sprintf(":%d", *l.Line)
		}
		places = append(places, place)
	}
	return places
}

// files returns the files of the places that are shown whole.
func (e *extra) files() (paths []string) {
	if e == nil {
		return nil
	}
	for _, l := range e.Locations {
		if len(l.Path) <= maxShown {
			paths = append(paths, l.Path)
		}
	}
	return paths
}

// repeats reports whether a text says what the difference does and no more: the
// same hunks, of one of the files.
func repeats(text, change, paths []string) bool {
	body := hunks(text)
	for _, l := range text[:len(text)-len(body)] {
		l, _, _ = strings.Cut(l, "\t") // a time follows
		name := l[strings.LastIndex(l, " ")+1:]
		for _, side := range []string{"a/", "b/"} {
			name = strings.TrimPrefix(name, side)
		}
		names := func(path string) bool { return name != "" && strings.HasSuffix("/"+path, "/"+name) }
		if strings.Trim(l, "=") != "" && !strings.HasPrefix(l, "@@ ") && !slices.ContainsFunc(paths, names) {
			return false
		}
	}
	return len(body) > 0 && slices.Equal(body, hunks(change))
}

// hunks returns the lines of a difference after what stands before its first
// hunk, all of them if nothing does.
func hunks(change []string) []string {
	at := slices.IndexFunc(change, func(l string) bool { return strings.HasPrefix(l, "@@ ") })
	return change[at+1:]
}

// marked returns the lines that a difference takes away and adds, each right after
// its mark; space is what the difference has between them.
func marked(change []string, space string) (changed []string) {
	for _, l := range change {
		for _, mark := range []string{"-", "+"} {
			if rest, ok := strings.CutPrefix(l, mark+space); ok {
				changed = append(changed, mark+rest)
			}
		}
	}
	return changed
}

// changeIn takes a text and what replaces it off the arguments, and returns them
// as a diff.
func changeIn(byName map[string]json.RawMessage) []string {
	for _, keys := range changeKeys {
		before, isBefore := textOf(byName[keys[0]])
		after, isAfter := textOf(byName[keys[1]])
		if isBefore && isAfter {
			delete(byName, keys[0])
			delete(byName, keys[1])
			return changed(strings.Split(exposed(before), "\n"), strings.Split(exposed(after), "\n"))
		}
	}
	return nil
}

// changed returns the lines of both, those that stay the same once.
func changed(before, after []string) (shown []string) {
	if len(before) == 1 && before[0] == "" {
		before = nil // a new file
	}
	put := func(mark string, lines []string) {
		for _, l := range lines {
			shown = append(shown, mark+l)
		}
	}
	at := 0
	for _, r := range diff.Compare(before, after) {
		put("  ", before[at:r.From])
		put("- ", before[r.From:r.To])
		put("+ ", r.Lines)
		at = r.To
	}
	put("  ", before[at:])
	return shown
}

// plain returns the arguments in the order of their names, those of one line and
// those of several.
func plain(byName map[string]json.RawMessage) (short, long []string) {
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		text, isText := textOf(byName[name])
		if !isText || text == "" || text != strings.TrimSpace(text) && !strings.Contains(text, "\n") {
			text = compacted(byName[name]) // shows where it begins and ends
		}
		if shown := field(name, text); len(shown) == 1 {
			short = append(short, shown...)
		} else {
			long = append(long, shown...)
		}
	}
	return short, long
}

// field returns an argument with its name.
func field(name, text string) []string {
	name = inLine(name, maxShown) + ":"
	if !strings.Contains(text, "\n") {
		return []string{name + " " + exposed(text)}
	}
	return append([]string{name}, hang("  | ", "  | ", text)...)
}

// hang returns the lines of a text, with first before the first and rest before
// the others.
func hang(first, rest, text string) []string {
	shown := split(text)
	for i := range shown {
		shown[i] = first + shown[i]
		first = rest
	}
	return shown
}

// lines returns a text, exposed, line by line.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return split(text)
}

// split returns a text as lines does, the empty one as an empty line.
func split(text string) []string {
	return strings.Split(strings.TrimSuffix(exposed(text), "\n"), "\n")
}

// textOf returns the text that a value is, and whether it is one.
func textOf(raw json.RawMessage) (text string, ok bool) {
	return text, len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
}

// compacted returns JSON without what is not needed, or nothing if it is none.
func compacted(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}
