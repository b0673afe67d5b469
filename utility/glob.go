package utility

import (
	"path"
	"runtime"
	"slices"
	"strings"
)

// A glob is a pattern for slash-separated relative paths. *, ? and classes
// match within a component; the component ** matches any number of components.
// All else is literal, including a leading dot.
type glob []string // its components

func newGlob(pattern string) glob {
	g := strings.Split(foldCase(pattern), "/")
	for i, c := range g {
		g[i] = strings.ReplaceAll(c, "[!", "[^")
	}
	return g
}

// foldCase returns text in the form in which patterns and paths are compared:
// in lower case on Windows.
func foldCase(text string) string {
	if runtime.GOOS == "windows" {
		return strings.ToLower(text)
	}
	return text
}

// match reports whether the pattern matches the path with these components.
func (g glob) match(names []string) bool {
	// Only the last ** needs backtracking: a different match for an earlier one
	// cannot help.
	star, tried := -1, 0
	at := 0
	for i := 0; i < len(names); {
		switch {
		case at < len(g) && g[at] == "**":
			star, tried = at, i
			at++
			continue
		case at < len(g) && matchName(g[at], names[i]):
			at++
			i++
			continue
		case star < 0:
			return false
		}
		tried++
		i, at = tried, star+1
	}
	for at < len(g) && g[at] == "**" {
		at++
	}
	return at == len(g)
}

// matchName matches one component. An invalid pattern is literal.
func matchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok || err != nil && pattern == name
}

// around reports whether the pattern matches everything below the path, as a/**
// does for a and for a/b.
func (g glob) around(names []string) bool {
	n := len(g) - 1
	return g[n] == "**" && (g[:n].match(names) || g.match(names))
}

// A filter decides which paths a watch reports.
type filter struct {
	include []glob // everything if empty
	exclude []glob
}

// builtinExcludes are the patterns of paths that are never reported.
var builtinExcludes = []string{
	"**/node_modules/**", "**/.git/**", "**/dist/**", "**/build/**", "**/.next/**", "**/.nuxt/**", "**/coverage/**",
	"**/*.log", "**/.DS_Store", "**/thumbs.db",
	".maestro/**", // the server's own files; for journals elsewhere see Options.Journals
}

func newFilter(include, exclude []string) filter {
	var f filter
	for _, p := range include {
		f.include = append(f.include, newGlob(p))
	}
	for _, p := range slices.Concat(builtinExcludes, exclude) {
		f.exclude = append(f.exclude, newGlob(p))
	}
	return f
}

// prunes reports whether nothing at or below the path is reported, so that its
// directory need not be watched.
func (f filter) prunes(rel string) bool { return f.prunesNames(strings.Split(foldCase(rel), "/")) }

func (f filter) prunesNames(names []string) bool {
	return slices.ContainsFunc(f.exclude, func(g glob) bool { return g.around(names) })
}

// admits reports whether changes of the path are reported.
func (f filter) admits(rel string) bool {
	names := strings.Split(foldCase(rel), "/")
	matches := func(g glob) bool { return g.match(names) }
	if f.prunesNames(names) || slices.ContainsFunc(f.exclude, matches) {
		return false
	}
	return len(f.include) == 0 || slices.ContainsFunc(f.include, matches)
}
