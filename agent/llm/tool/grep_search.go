package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/workspace"
)

const (
	// maxSearchers bounds the goroutines of one search.
	maxSearchers = 4

	// maxMatched is how much of a line is looked at.
	maxMatched = 1 << 20

	// linesPerLook is how many lines are looked at until it is seen whether the
	// search is to end.
	linesPerLook = 1024
)

// A search looks for lines in files.
type search struct {
	w             *workspace.Workspace
	re            *regexp.Regexp
	need          literal // of every line that matches
	mode          string
	limit, around int
}

func newSearch(w *workspace.Workspace, a *grepArgs) (*search, error) {
	expr := a.pattern
	if a.ignoreCase {
		expr = "(?i:" + expr + ")"
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, refusal("The pattern is not a regular expression in RE2 syntax, which has no lookahead and no backreferences: " + valid(problemIn(err)) + ".")
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err // not reached: it was compiled
	}
	return &search{w: w, re: re, need: required(parsed.Simplify()), mode: a.mode, limit: a.limit, around: a.context}, nil
}

// problemIn returns what is wrong with an expression, without repeating all of it.
func problemIn(err error) string {
	if e, ok := err.(*syntax.Error); ok {
		return string(e.Code) + " in " + quote(e.Expr)
	}
	return err.Error()
}

// A literal is a text that everything which matches has in it.
type literal struct {
	text   string
	folded bool // text is in small ASCII letters, which stand for both cases
}

// required returns a literal of re, the longest that is easily told; an empty one
// if there is none.
func required(re *syntax.Regexp) literal {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return literal{unambiguous(re.Rune), true}
		} else if text := string(re.Rune); !strings.ContainsRune(text, utf8.RuneError) { // that matches what is not UTF-8
			return literal{text: text}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpConcat:
		var longest literal
		for _, sub := range re.Sub {
			if l := required(sub); len(l.text) > len(longest.text) {
				longest = l
			}
		}
		return longest
	}
	return literal{}
}

// unambiguous returns the longest part of a text that is in ASCII and has no
// letters but those with two cases: of k and s there are three.
func unambiguous(text []rune) string {
	longest, from := []rune(nil), 0
	for i, c := range append(text[:len(text):len(text)], utf8.RuneError) {
		if c < utf8.RuneSelf && !strings.ContainsRune("kKsS", c) {
			continue
		}
		if i-from > len(longest) {
			longest = text[from:i]
		}
		from = i + 1
	}
	return strings.ToLower(string(longest))
}

// lowered returns text with small letters in the place of the capital ones of
// ASCII.
func lowered(text []byte) []byte {
	low := make([]byte, len(text))
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		low[i] = c
	}
	return low
}

// hits are what was found in one file.
type hits struct {
	path  string
	lines []line // with modeContent: those that match, at most limit, and those around
	count int    // lines that match; 1 at most with modeFiles
	large bool   // it was not looked at for its size
}

// A line of a file, or a gap before the next one.
type line struct {
	number int // counted from 1; zero for a gap
	text   string
	match  bool
}

// files looks in files, several at once, until more than enough was found or ctx
// ends. It returns what it found in order, nil for files without, when its
// goroutines have ended.
func (s *search) files(ctx context.Context, paths []string) []*hits {
	all := make([]*hits, len(paths))
	var next, found atomic.Int64
	work := func() {
		for ctx.Err() == nil {
			// What is found before the next file is taken is in those before it.
			enough := found.Load() > int64(s.limit)
			i := int(next.Add(1)) - 1
			if i >= len(paths) || enough {
				return
			}
			if h := s.file(ctx, paths[i]); h != nil {
				all[i] = h
				found.Add(int64(h.told(s.mode)))
			}
		}
	}
	var others sync.WaitGroup
	for range min(len(paths), maxSearchers, runtime.GOMAXPROCS(0)) - 1 {
		others.Go(work) // ends when every file was looked at, or ctx
	}
	work()
	others.Wait()
	return all
}

// told returns how much of the limit the hits take.
func (h *hits) told(mode string) int {
	switch {
	case h.count == 0:
		return 0
	case mode == modeContent:
		return h.count
	}
	return 1
}

// file looks in one file. What is a symbolic link, or cannot be read, has nothing
// in it.
func (s *search) file(ctx context.Context, path string) *hits {
	data, _, err := s.w.ReadFileNoFollow(filepath.FromSlash(path), maxFileBytes)
	h := &hits{path: path}
	switch {
	case errors.Is(err, workspace.ErrTooLarge):
		h.large = true
		return h
	case err != nil || bytes.IndexByte(data, 0) >= 0:
		return nil
	}
	x := scan{search: s, hits: h, data: data, stop: len(data)}
	x.run(ctx)
	x.after(x.stop)
	if h.count == 0 {
		return nil
	}
	return h
}

// A scan is the search of one file.
type scan struct {
	*search
	*hits
	data []byte

	number, counted int // line ends up to counted
	shown           int // where what is in lines ends
	stop            int // where a line begins that is too many, or the end
}

// run looks at every line that may match.
func (x *scan) run(ctx context.Context) {
	need, in := []byte(x.need.text), x.data
	if x.need.folded && len(need) > 0 {
		in = lowered(x.data)
	}
	for at, n := 0, 1; at < len(x.data); n++ {
		if n%linesPerLook == 0 && ctx.Err() != nil {
			return
		}
		if len(need) > 0 {
			i := bytes.Index(in[at:], need)
			if i < 0 {
				return
			}
			at = x.begin(at + i)
		}
		end := x.end(at)
		text := bytes.TrimSuffix(x.data[at:end], []byte("\n"))
		text = bytes.TrimSuffix(text, []byte("\r"))
		if x.re.Match(text[:min(len(text), maxMatched)]) && !x.found(at, end) {
			return
		}
		at = end
	}
}

// begin returns where the line with the byte at a place begins.
func (x *scan) begin(at int) int { return bytes.LastIndexByte(x.data[:at], '\n') + 1 }

// end returns where the line ends that begins at a place, its line end included.
func (x *scan) end(at int) int {
	if n := bytes.IndexByte(x.data[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(x.data)
}

// found takes a line that matches. It reports whether to go on.
func (x *scan) found(at, end int) bool {
	x.count++
	switch {
	case x.mode == modeFiles:
		return false
	case x.mode == modeCount:
		return true
	case x.count > x.limit:
		x.stop = at // that there is more is all that is told
		return false
	}
	x.after(at)
	from := at
	for range x.around {
		if from <= x.shown {
			break
		}
		from = x.begin(from - 1)
	}
	if x.around > 0 && from > x.shown && len(x.lines) > 0 {
		x.lines = append(x.lines, line{})
	}
	for from < at {
		to := x.end(from)
		x.add(from, to, false)
		from = to
	}
	x.add(at, end, true)
	return true
}

// after adds the lines after the last one that matched, if there is one, up to a
// place.
func (x *scan) after(limit int) {
	for n := 0; n < x.around && len(x.lines) > 0 && x.shown < limit; n++ {
		x.add(x.shown, x.end(x.shown), false)
	}
}

// add adds a line.
func (x *scan) add(at, end int, match bool) {
	x.number += bytes.Count(x.data[x.counted:at], []byte("\n"))
	x.counted, x.shown = at, end
	text := bytes.TrimSuffix(bytes.TrimSuffix(x.data[at:end], []byte("\n")), []byte("\r"))
	x.lines = append(x.lines, line{x.number + 1, x.cut(text, match), match})
}

// cut returns a line as it is told: the part around the first match if it is too
// long.
func (x *scan) cut(text []byte, match bool) string {
	if len(text) <= maxMatchLine {
		return valid(string(text))
	}
	from := 0
	if match {
		if where := x.re.FindIndex(text[:min(len(text), maxMatched)]); where != nil {
			from = max(0, where[0]-maxMatchLine/4)
		}
	}
	before := ""
	if from > 0 {
		for from > 0 && !utf8.RuneStart(text[from]) {
			from--
		}
		before = fmt.Sprintf("[%d bytes left out] …", from)
	}
	return before + cutLine(valid(string(text[from:])), maxMatchLine)
}
