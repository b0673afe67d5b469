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
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// A subject is what rules look at of a call.
type subject struct {
	tool  string
	texts []text
	more  bool // there are texts that are not judged
}

// A text is an argument that may be a command line or a path.
type text struct {
	line  *string // nil if it cannot be a command line
	paths []place // as written and with links resolved; nil if it cannot be a path
	named bool    // its key says which it is, so a rule that allows the call must match it
}

// A place is a file: relative to the workspace root, "" outside it, and absolute.
type place struct{ rel, abs string }

// Our tools that rules treat specially, and the keys of our tools.
const (
	bashTool   = "bash"
	readTool   = "read"
	grepTool   = "grep"
	globTool   = "glob"
	commandKey = "command"
	pathKey    = "path"
)

// ownSubjects has the key of the command or the path of our tools.
var ownSubjects = map[string]string{
	bashTool: commandKey, readTool: pathKey, "write": pathKey, "edit": pathKey, grepTool: pathKey, globTool: pathKey, askUser.Name: "",
}

// searches reports whether a tool looks at all files below a path.
func searches(tool string) bool { return tool == grepTool || tool == globTool }

// The keys of commands, of the words after them and of paths, in other tools.
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

// subjectOf returns the subject of a call. args is an object whose keys differ in
// more than case, because tools may ignore the case.
func subjectOf(dir *workspace.Workspace, tool string, args json.RawMessage) subject {
	s := subject{tool: tool}
	key, own := ownSubjects[tool]
	if !own {
		s.collect(dir, "", objectOf(args))
		return s
	}
	about, ok := argument(args, key)
	if !ok && searches(tool) {
		about, ok = ".", true
	}
	switch {
	case ok && key == commandKey:
		s.texts = []text{{line: &about, named: true}}
	case ok:
		s.texts = []text{{paths: placesOf(dir, about), named: true}}
	}
	return s
}

// collect adds the texts of a value under a key.
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
		var words []any // that follow a command
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if all, ok := v[k].([]any); ok && wordKeys().MatchString(k) {
				words = append(words, all...)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if strings.ContainsAny(k, blanks+"/"+string(filepath.Separator)) { // the key is a text, not a name
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

// add adds a text under a key. The address of a file is its path.
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
		name := found
		if u, err := url.Parse(found); err == nil && u.Scheme == "file" {
			name = u.Path
		}
		t.paths = placesOf(dir, name)
	}
	s.texts = append(s.texts, t)
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

// placesOf returns the files that a path may mean: the path as written, and where
// its links lead. Our tools take .. as written, others where links lead. If a link
// cannot be resolved the place is empty, which no rule allows.
func placesOf(dir *workspace.Workspace, path string) []place {
	if len(path) > maxPath || strings.ContainsRune(path, 0) {
		return []place{{}}
	}
	written := dir.Abs(path)
	real, err := resolve(written)
	places := []place{placeAt(dir, written, nil), placeAt(dir, real, err)}
	if strings.Contains(path, "..") {
		if !filepath.IsAbs(path) {
			path = dir.Root() + string(filepath.Separator) + path
		}
		real, err := resolve(path)
		places = append(places, placeAt(dir, real, err))
	}
	return places
}

// placeAt returns the place of an absolute path, an empty one if err is not nil.
func placeAt(dir *workspace.Workspace, abs string, err error) place {
	if err != nil {
		return place{}
	}
	p := place{abs: filepath.ToSlash(abs)}
	if rel, err := dir.Rel(abs); err == nil {
		p.rel = filepath.ToSlash(rel)
	}
	return p
}

// resolve returns an absolute path with its symbolic links resolved, also links to
// files that do not exist: a write would make them.
func resolve(path string) (string, error) {
	done, left := rootOf(path)
	for links := 0; len(left) > 0; {
		next := filepath.Join(done, left[0])
		left = left[1:]
		target, err := os.Readlink(next)
		if err != nil {
			done = next // no link, or no file
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
