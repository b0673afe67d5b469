package double

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// search finds files by their names.
func (r *room) search(cmd *contracts.UtilityFileSearch) *contracts.Error {
	p := r.directory(cmd.Cwd)
	if !p.inside {
		return p.outside()
	}
	if info, err := os.Stat(p.real); err != nil || !info.IsDir() {
		return noTool(contracts.CodeNotFound, "Working directory not found: "+*cmd.Cwd)
	}
	res := &contracts.UtilityFileSearchResults{SearchID: cmd.SearchID, Query: strings.TrimSpace(cmd.Query), Cwd: p.real, Results: []contracts.FileMatch{}}
	if res.Query != "" {
		for _, name := range filesBelow(p.real, r.s.has(FollowsLinks)) {
			if n := r.s.score(strings.ToLower(res.Query), name); n > 0 {
				res.Results = append(res.Results, contracts.FileMatch{Path: name, Score: n})
			}
		}
	}
	slices.SortFunc(res.Results, func(a, b contracts.FileMatch) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(utf8.RuneCountInString(a.Path), utf8.RuneCountInString(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	if limit := int(orDefault(cmd.Limit, 50, 1, 500)); len(res.Results) > limit {
		res.Results, res.Truncated = res.Results[:limit], !r.s.has(NeverTruncated)
	}
	r.publish(res)
	return nil
}

// score says how well a query fits a path (5.2).
func (s *Server) score(query, name string) int64 {
	whole := strings.ToLower(name)
	base := path.Base(whole)
	size := int64(utf8.RuneCountInString(name))
	step := int64(10)
	if s.has(WrongScores) {
		step = 1
	}
	in := func(text string) int64 {
		i := strings.Index(text, query)
		if i < 0 {
			return -1
		}
		return int64(utf8.RuneCountInString(text[:i]))
	}
	words := strings.Fields(query)
	switch {
	case base == query:
		return 10_000 - size
	case whole == query:
		return 9_500 - size
	case in(base) == 0:
		return 8_000 - size
	case in(base) > 0:
		return 7_000 - step*in(base) - size
	case in(whole) >= 0:
		return 6_000 - step*in(whole) - size
	case len(words) > 1 && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(whole, w) }):
		return 5_000 - size
	case letters(query, base) > 0:
		return 3_000 + letters(query, base) - size
	case letters(query, whole) > 0:
		return 2_000 + letters(query, whole) - size
	}
	return 0
}

// letters says how near to each other the letters of a query are in a text, in
// their order; 0 if they are not there.
func letters(query, text string) int64 {
	left, sum, gap := []rune(query), int64(0), int64(0)
	for _, c := range text {
		if len(left) == 0 {
			break
		}
		if c != left[0] {
			gap++
			continue
		}
		left, sum, gap = left[1:], sum+12-min(10, gap), 0
	}
	if len(left) > 0 {
		return 0
	}
	return max(sum, 1)
}

// An ignoreRule is a line of an ignore file.
type ignoreRule struct {
	pattern         string
	below           string // where its file is
	back, directory bool   // takes back; for directories only
}

// filesBelow lists the files that are not ignored, with slashes.
func filesBelow(root string, links bool) []string {
	var rules []ignoreRule
	var names []string
	_ = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error { // what cannot be read is not there
		relative, _ := filepath.Rel(root, file)
		name := filepath.ToSlash(relative)
		switch {
		case err != nil:
			return nil
		case name == ".":
			rules = append(rules, rulesIn(file, "")...)
		case d.Name() == ".git", ignored(rules, name, d.IsDir()):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
			rules = append(rules, rulesIn(file, name)...)
		default:
			names = append(names, name)
			if links && d.Type()&fs.ModeSymlink != 0 {
				names = append(names, entriesOf(file, name)...)
			}
		}
		return nil
	})
	return names
}

// entriesOf lists what is in a directory behind a link.
func entriesOf(dir, name string) []string {
	var names []string
	entries, _ := os.ReadDir(dir) // it may be none
	for _, e := range entries {
		names = append(names, name+"/"+e.Name())
	}
	return names
}

// rulesIn reads the ignore file of a directory, if it has one.
func rulesIn(dir, name string) []ignoreRule {
	text, _ := os.ReadFile(filepath.Join(dir, ".gitignore")) // without one there are no rules
	var rules []ignoreRule
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n ")
		if line == "" || line[0] == '#' {
			continue
		}
		var rule ignoreRule
		line, rule.back = strings.CutPrefix(line, "!")
		line, rule.directory = strings.CutSuffix(line, "/")
		rule.pattern, rule.below = line, name
		rules = append(rules, rule)
	}
	return rules
}

// ignored reports what the last rule that fits a path says.
func ignored(rules []ignoreRule, name string, isDir bool) bool {
	out := false
	for _, rule := range rules {
		below, inside := name, true
		if rule.below != "" {
			below, inside = strings.CutPrefix(name, rule.below+"/")
		}
		subject := below
		if !strings.Contains(rule.pattern, "/") {
			subject = path.Base(below)
		}
		if fits, _ := path.Match(strings.TrimPrefix(rule.pattern, "/"), subject); fits && inside && (isDir || !rule.directory) {
			out = !rule.back
		}
	}
	return out
}
