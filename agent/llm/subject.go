package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
	"github.com/seed-028515a8/maestro/workspace"
)

// A subject is what a call would do, as far as rules look at it.
type subject struct {
	tool  string
	texts []text
	more  bool // than are judged
}

// A text is an argument that may say what a call is about.
type text struct {
	line  *string // for a shell; nil if it cannot be one
	paths []place // as written and with links resolved; nil if it cannot be one
	named bool    // its key says which it is, so what allows the call must match it
}

// A place is a file: relative to the workspace root, "" outside it, and absolute.
type place struct{ rel, abs string }

// The tools of ours that are treated in ways of their own.
const (
	bashTool = "bash"
	readTool = "read"
	grepTool = "grep"
	globTool = "glob"
)

const (
	commandKey = "command"
	pathKey    = "path"
)

// ownSubjects says under which key tools of ours have what they are about.
var ownSubjects = map[string]string{
	bashTool: commandKey, readTool: pathKey, "write": pathKey, "edit": pathKey, grepTool: pathKey, globTool: pathKey, askUser.Name: "",
}

// searches reports whether a tool looks at all that is below a path.
func searches(tool string) bool { return tool == grepTool || tool == globTool }

// What the tools of others call their commands, the words after them, and paths.
var (
	commandKeys = lazyregexp.New(`(?i)^(commands?|cmd|command_?line|script)$`)
	wordKeys    = lazyregexp.New(`(?i)^(args|argv|arguments)$`)
	pathKeys    = lazyregexp.New(`(?i)(path|file|file_?name|dir|directory|folder)s?$|directories$|^(cwd|root|src|dst|dest|source|destination|target|from|to|uri)s?$`)
)

const (
	// maxTexts bounds the texts of a call that are judged.
	maxTexts = 256

	// maxPath is more than systems take as a path.
	maxPath = 4096

	// maxLinks bounds the symbolic links in one path, as systems do.
	maxLinks = 40
)

// subjectOf returns what a call is about. args is an object whose keys differ
// in more than case, which is how tools read them.
func subjectOf(dir *workspace.Workspace, tool string, args json.RawMessage) subject {
	s := subject{tool: tool}
	key, own := ownSubjects[tool]
	if !own {
		s.collect(dir, "", objectOf(args))
		return s
	}
	about, ok := argument(args, key)
	switch {
	case ok && key == commandKey:
		s.texts = []text{{line: &about, named: true}}
	case ok:
		s.texts = []text{{paths: placesOf(dir, about), named: true}}
	case searches(tool):
		s.texts = []text{{paths: placesOf(dir, "."), named: true}}
	}
	return s
}

// collect takes the texts of a value that was found under a key.
func (s *subject) collect(dir *workspace.Workspace, key string, value any) {
	switch v := value.(type) {
	case string:
		s.add(dir, key, v)
	case []any:
		if len(v) > 1 && (commandKeys().MatchString(key) || wordKeys().MatchString(key)) {
			s.add(dir, key, joined(v))
		}
		for _, e := range v {
			s.collect(dir, key, e)
		}
	case map[string]any:
		var words []any // of a command that has them apart
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if all, ok := v[k].([]any); ok && wordKeys().MatchString(k) {
				words = append(words, all...)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if strings.ContainsAny(k, blanks+"/"+string(filepath.Separator)) { // no name, but what others have as a text
				s.add(dir, key, k)
			}
			if name, ok := v[k].(string); ok && commandKeys().MatchString(k) {
				s.add(dir, k, joined(append([]any{name}, words...)))
				continue
			}
			s.collect(dir, k, v[k])
		}
	}
}

// leads returns where a path of the call leads if it has links in it, "" if none has.
func (s subject) leads() string {
	for _, t := range s.texts {
		for _, p := range t.paths {
			if p != t.paths[0] && p != (place{}) {
				return cmp.Or(p.rel, p.abs)
			}
		}
	}
	return ""
}

// joined returns the texts of a list as one line.
func joined(list []any) string {
	var words []string
	for _, e := range list {
		if word, ok := e.(string); ok {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// add takes a text that was found under a key.
func (s *subject) add(dir *workspace.Workspace, key, found string) {
	if s.more = s.more || len(s.texts) == maxTexts; s.more {
		return
	}
	command, path := commandKeys().MatchString(key), pathKeys().MatchString(key)
	t := text{named: command || path}
	if !path {
		t.line = &found
	}
	if !command {
		t.paths = placesOf(dir, pathIn(found))
	}
	s.texts = append(s.texts, t)
}

// pathIn returns the path that a text means: that of a file's address, or the text.
func pathIn(text string) string {
	if u, err := url.Parse(text); err == nil && u.Scheme == "file" {
		return u.Path
	}
	return text
}

// placesOf returns which file a path means: as it is written, and where it leads.
// The latter is no place if that is not known, which no rule allows. Some take .. as
// it is written, as ours do, and some where links lead.
func placesOf(dir *workspace.Workspace, path string) []place {
	if len(path) > maxPath || strings.ContainsRune(path, 0) {
		return []place{{}}
	}
	written := dir.Abs(path)
	places := []place{placeAt(dir, written), resolved(dir, written)}
	if strings.Contains(path, "..") {
		if !filepath.IsAbs(path) {
			path = dir.Root() + string(filepath.Separator) + path
		}
		places = append(places, resolved(dir, path))
	}
	return places
}

func resolved(dir *workspace.Workspace, path string) place {
	real, err := resolve(path)
	if err != nil {
		return place{}
	}
	return placeAt(dir, real)
}

func placeAt(dir *workspace.Workspace, abs string) place {
	p := place{abs: filepath.ToSlash(abs)}
	if rel, err := dir.Rel(abs); err == nil {
		p.rel = filepath.ToSlash(rel)
	}
	return p
}

// resolve returns an absolute path with its symbolic links resolved, also those
// that lead to what does not exist: who writes to it makes that.
func resolve(path string) (string, error) {
	done, left := rootOf(path)
	for links := 0; len(left) > 0; {
		next := filepath.Join(done, left[0])
		left = left[1:]
		target, err := os.Readlink(next)
		if err != nil {
			done = next // no link, or nothing at all
			continue
		}
		if links++; links > maxLinks {
			return "", errors.New("too many symbolic links")
		}
		if !filepath.IsAbs(target) {
			target = done + string(filepath.Separator) + target
		}
		above, more := rootOf(target)
		done, left = above, append(more, left...)
	}
	return done, nil
}

// rootOf splits an absolute path into its root and the names below that.
func rootOf(path string) (root string, names []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), strings.FieldsFunc(path[len(volume):], func(c rune) bool { return c < utf8.RuneSelf && os.IsPathSeparator(byte(c)) })
}

// argument returns the text under a key, spelled in any case.
func argument(args json.RawMessage, key string) (string, bool) {
	for k, v := range objectOf(args) {
		if strings.EqualFold(k, key) {
			text, ok := v.(string)
			return text, ok
		}
	}
	return "", false
}
