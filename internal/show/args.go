package show

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/diff"
)

// MaxArgs bounds the arguments of a tool in one line, in characters.
const MaxArgs = 500

// Names under which tools take a file, and a text with its replacement.
var (
	pathKeys   = []string{"path", "file_path", "filePath", "file", "filename", "notebook_path"}
	changeKeys = [][2]string{
		{"old_string", "new_string"}, {"oldString", "newString"}, {"old_str", "new_str"}, {"old_text", "new_text"}, {"oldText", "newText"},
	}
)

// An Extra is the data that an agent of the Agent Client Protocol adds to the
// arguments of a call, under "_acp".
type Extra struct {
	Title     string `json:"title"`
	Locations []struct {
		Path string `json:"path"`
		Line *int   `json:"line"`
	} `json:"locations"`
	Diff         string                    `json:"diff"`
	Options      contracts.ApprovalOptions `json:"options"`
	OmittedBytes int                       `json:"omitted_bytes"`
}

// Fields returns the arguments by name, nil if they are not an object, and the Extra
// without its name, nil if there is none.
func Fields(args json.RawMessage) (map[string]json.RawMessage, *Extra) {
	var byName map[string]json.RawMessage
	if json.Unmarshal(args, &byName) != nil {
		return nil, nil
	}
	more := &Extra{}
	if byName["_acp"] == nil || json.Unmarshal(byName["_acp"], more) != nil {
		return byName, nil
	}
	delete(byName, "_acp")
	return byName, more
}

// Summary returns a tool's arguments in one line: the command as a user types it, or
// the agent's title of the call, or JSON.
func Summary(args json.RawMessage) string {
	byName, more := Fields(args)
	if command, isText := Text(byName["command"]); isText {
		return "$ " + InLine(command, MaxArgs)
	}
	if more != nil && more.Title != "" {
		text := InLine(more.Title, MaxArgs)
		for _, place := range more.places() {
			if !strings.Contains(text, place) {
				text += " " + place
			}
		}
		return text
	}
	if more != nil {
		args = JSON(byName)
	}
	return InLine(Compact(args), MaxArgs)
}

// Details returns all of a tool's arguments, line by line: first the command or the
// file, then the short ones. No argument looks like another one, and none is hidden.
func Details(args json.RawMessage) []string {
	byName, more := Fields(args)
	if byName == nil || len(byName) == 0 && more == nil {
		return Lines(Compact(args))
	}
	more = cmp.Or(more, &Extra{})
	command, isCommand := Text(byName["command"])
	var shown, paths []string
	if more.Title != command {
		shown = Lines(more.Title)
	}
	for _, place := range more.places() {
		shown = append(shown, "at "+place)
	}
	if more.OmittedBytes > 0 {
		shown = append(shown, fmt.Sprintf("(%d bytes are too much to be shown)", more.OmittedBytes))
	}
	for _, l := range more.Locations {
		if len(l.Path) <= MaxShown { // its place is shown whole
			paths = append(paths, l.Path)
		}
	}
	located := paths
	if isCommand {
		delete(byName, "command")
		shown = append(shown, Hang("$ ", "  ", command)...)
	}
	for _, key := range pathKeys {
		if path, ok := Text(byName[key]); ok {
			if !slices.Contains(located, path) {
				shown = append(shown, field(key, path)...)
			}
			paths = append(paths, path)
			delete(byName, key)
		}
	}
	change := changeIn(byName)
	if more.Diff != "" { // the diff may be cut or differ from the arguments: then those are shown as well
		told := Lines(more.Diff)
		if slices.Equal(marked(change, " "), marked(hunks(told), "")) {
			change = nil
		}
		change = append(told, change...)
		maps.DeleteFunc(byName, func(_ string, value json.RawMessage) bool {
			text, _ := Text(value)
			return repeats(Lines(text), told, paths)
		})
	}
	short, long := plain(byName)
	return slices.Concat(shown, short, change, long)
}

// places returns the files and lines of a call.
func (e *Extra) places() (places []string) {
	for _, l := range e.Locations {
		place := InLine(l.Path, MaxShown)
		if l.Line != nil {
			place += fmt.Sprintf(":%d", *l.Line)
		}
		places = append(places, place)
	}
	return places
}

// repeats reports whether a text is the same diff as change and no more: the same
// hunks, of one of the files.
func repeats(text, change, paths []string) bool {
	body := hunks(text)
	for _, l := range text[:len(text)-len(body)] {
		l, _, _ = strings.Cut(l, "\t") // a time follows the name
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

// hunks returns the lines of a diff after the head of its first hunk, or all lines.
func hunks(change []string) []string {
	at := slices.IndexFunc(change, func(l string) bool { return strings.HasPrefix(l, "@@ ") })
	return change[at+1:]
}

// marked returns the lines that a diff removes and adds, each right after its mark.
// space stands between mark and line in the diff.
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

// changeIn removes a text and its replacement from the arguments and returns them as
// a diff.
func changeIn(byName map[string]json.RawMessage) []string {
	for _, keys := range changeKeys {
		before, isBefore := Text(byName[keys[0]])
		after, isAfter := Text(byName[keys[1]])
		if isBefore && isAfter {
			delete(byName, keys[0])
			delete(byName, keys[1])
			return changed(strings.Split(Exposed(before), "\n"), strings.Split(Exposed(after), "\n"))
		}
	}
	return nil
}

// changed returns the lines of both texts as a diff; common lines appear once.
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

// plain returns the arguments in the order of their names: those of one line, and
// those of several.
func plain(byName map[string]json.RawMessage) (short, long []string) {
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		text, isText := Text(byName[name])
		if !isText || text == "" || text != strings.TrimSpace(text) && !strings.Contains(text, "\n") {
			text = Compact(byName[name]) // the quotes show where it begins and ends
		}
		if shown := field(name, text); len(shown) == 1 {
			short = append(short, shown...)
		} else {
			long = append(long, shown...)
		}
	}
	return short, long
}

func field(name, text string) []string {
	name = InLine(name, MaxShown) + ":"
	if !strings.Contains(text, "\n") {
		return []string{name + " " + Exposed(text)}
	}
	return append([]string{name}, Hang("  | ", "  | ", text)...)
}

// Hang returns the lines of a text, with first before the first line and rest before
// the others.
func Hang(first, rest, text string) []string {
	shown := split(text)
	for i := range shown {
		shown[i] = first + shown[i]
		first = rest
	}
	return shown
}

// Lines returns the lines of an exposed text, none for the empty text.
func Lines(text string) []string {
	if text == "" {
		return nil
	}
	return split(text)
}

// split returns the lines of an exposed text, one for the empty text.
func split(text string) []string {
	return strings.Split(strings.TrimSuffix(Exposed(text), "\n"), "\n")
}

// Text returns the text of a JSON string, and reports whether raw is one.
func Text(raw json.RawMessage) (text string, ok bool) {
	return text, len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
}

// Compact returns JSON without insignificant space, or nothing if raw is not JSON.
func Compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

// JSON returns a value as JSON. The value was read from JSON, or is text.
func JSON(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}
