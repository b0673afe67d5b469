package tool

import (
	"bytes"
	"cmp"
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

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// The output modes of grep.
const (
	modeFiles   = "files"
	modeContent = "content"
	modeCount   = "count"
)

const (
	// Bounds on a result: bytes of a line and in all.
	maxMatchLine = 500
	maxMatchText = 50_000

	// maxSearchers bounds the goroutines of one search.
	maxSearchers = 4

	// maxMatched is how many bytes of a line are matched.
	maxMatched = 1 << 20

	// linesPerLook is how many lines are matched between two looks at the context.
	linesPerLook = 1024
)

type grepArgs struct {
	Pattern    string `json:"pattern" min:"1" max:"1000" about:"A regular expression in RE2 syntax (no lookahead, no backreferences) for what is within a line"`
	Path       string `json:"path,omitempty" default:"." about:"The file or directory to look in; the workspace if not given"`
	Glob       string `json:"glob,omitempty" max:"1000" about:"Only files of this pattern, such as *.go or src/**/*.{ts,tsx}; with a ! before it only others"`
	Mode       string `json:"output_mode,omitempty" default:"files" enum:"files,content,count" about:"files: the paths of the files that match (if not given); content: the lines that match, with numbers; count: how many lines match in each file"`
	Context    int    `json:"context,omitempty" max:"20" about:"How many lines to show before and after each, with content; 0 if not given"`
	IgnoreCase bool   `json:"ignore_case,omitempty" about:"Let letters stand for both cases; false if not given"`
	Limit      int    `json:"limit,omitempty" default:"100" min:"1" max:"1000" about:"How many files, or with content lines, to tell; 100 if not given"`
}

func (k *Kit) grep() Tool {
	return define(Tool{
		Tool: model.Tool{
			Name: "grep",
			Description: "Finds lines that match a regular expression in the files of the workspace. " +
				"Binary files and those that git ignores are not looked at, unless path names one.",
		},
		Title: "Grep",
	}, "Searched for", "Searching for", "text", func(a *grepArgs) string { return a.Pattern }, k.runGrep)
}

func (k *Kit) runGrep(ctx context.Context, a *grepArgs, _ func(string) error) (Result, error) {
	s, err := newSearch(k.Workspace, a)
	if err != nil {
		return Result{}, err
	}
	f, err := k.locate(a.Path)
	if err != nil {
		return Result{}, err
	}
	var files []string
	var remark string
	info, err := k.Workspace.Stat(f.rel)
	switch {
	case err != nil:
		err = f.refuse(err)
	case info.Mode().IsRegular():
		files, remark = permitted(ctx, []string{filepath.ToSlash(k.key(f))})
	case info.IsDir():
		files, remark, err = k.list(ctx, f, cmp.Or(a.Glob, "**"))
	default:
		err = refusal(f.name + " is neither a file nor a directory.")
	}
	if err != nil {
		return Result{}, err
	}
	all := s.files(ctx, files)
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	return Result{Text: s.text(all) + remark}, nil
}

// A search looks for lines in files.
type search struct {
	*grepArgs
	w    *workspace.Workspace
	re   *regexp.Regexp
	need literal // of every line that matches
}

func newSearch(w *workspace.Workspace, a *grepArgs) (*search, error) {
	expr := a.Pattern
	if a.IgnoreCase {
		expr = "(?i:" + expr + ")"
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		problem := err.Error()
		if e, ok := errors.AsType[*syntax.Error](err); ok { // without all of the expression
			problem = string(e.Code) + " in " + quote(e.Expr)
		}
		return nil, refusal("The pattern is not a regular expression in RE2 syntax, which has no lookahead and no backreferences: " + valid(problem) + ".")
	}
	re, err := regexp.Compile(expr)
	return &search{grepArgs: a, w: w, re: re, need: required(parsed.Simplify())}, err
}

// A literal is a text that every match contains.
type literal struct {
	text   string
	folded bool // text is in small ASCII letters, which stand for both cases
}

// required returns the longest literal of re that is easily told, or an empty one.
func required(re *syntax.Regexp) literal {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return literal{unambiguous(re.Rune), true}
		} else if text := string(re.Rune); !strings.ContainsRune(text, utf8.RuneError) { // RuneError matches bytes that are not UTF-8
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

// unambiguous returns the longest part of a text that is ASCII, in small letters.
// It leaves out k and s, which fold to a third letter each.
func unambiguous(text []rune) string {
	longest := ""
	for part := range strings.FieldsFuncSeq(string(text), func(c rune) bool { return c >= utf8.RuneSelf || strings.ContainsRune("kKsS", c) }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return strings.ToLower(longest)
}

// lowered returns text with small letters for the capital ones of ASCII.
func lowered(text []byte) []byte {
	low := bytes.Clone(text)
	for i, c := range low {
		if 'A' <= c && c <= 'Z' {
			low[i] = c + 'a' - 'A'
		}
	}
	return low
}

// hits are what was found in one file.
type hits struct {
	path   string
	chunks []string // with modeContent: the text of each match, at most the limit
	count  int      // lines that match; 1 at most with modeFiles, one beyond the limit with modeContent
	large  bool     // the file was not searched because of its size
}

// files searches several files at once until it has found more than the limit or
// ctx ends. It returns what it found in order, nil for files without a match, when
// its goroutines have ended.
func (s *search) files(ctx context.Context, paths []string) []*hits {
	all := make([]*hits, len(paths))
	var next, found atomic.Int64
	work := func() {
		for ctx.Err() == nil {
			// Matches that count here are in files before the next one.
			enough := found.Load() > int64(s.Limit)
			i := int(next.Add(1)) - 1
			if i >= len(paths) || enough {
				return
			}
			h := s.file(ctx, paths[i])
			switch all[i] = h; {
			case h == nil:
			case s.Mode == modeContent:
				found.Add(int64(h.count))
			case h.count > 0:
				found.Add(1)
			}
		}
	}
	var others sync.WaitGroup
	for range min(len(paths), maxSearchers, runtime.GOMAXPROCS(0)) - 1 {
		others.Go(work) // ends when every file was searched, or with ctx
	}
	work()
	others.Wait()
	return all
}

// file searches one file. Links and unreadable files have no matches.
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
	var matches []int
	if matches, h.count = s.matches(ctx, data); h.count == 0 {
		return nil
	}
	h.chunks = s.chunks(valid(path), data, matches)
	return h
}

// matches returns how many lines match and, with modeContent, where they begin. It
// stops at the first match with modeFiles, and after the limit with modeContent.
func (s *search) matches(ctx context.Context, data []byte) (begins []int, count int) {
	need, in := []byte(s.need.text), data
	if s.need.folded && len(need) > 0 {
		in = lowered(data)
	}
	for at, n := 0, 1; at < len(data); n++ {
		if n%linesPerLook == 0 && ctx.Err() != nil {
			break
		}
		if len(need) > 0 {
			i := bytes.Index(in[at:], need)
			if i < 0 {
				break
			}
			at = lineBegin(data, at+i)
		}
		end := lineEnd(data, at)
		if text := lineText(data[at:end]); s.re.Match(text[:min(len(text), maxMatched)]) {
			count++
			if s.Mode == modeContent {
				begins = append(begins, at)
			}
			if s.Mode == modeFiles || len(begins) > s.Limit {
				break
			}
		}
		at = end
	}
	return begins, count
}

// lineBegin returns where the line of a byte begins.
func lineBegin(data []byte, at int) int { return bytes.LastIndexByte(data[:at], '\n') + 1 }

// lineEnd returns the end of the line that begins at at, after its line end.
func lineEnd(data []byte, at int) int {
	if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(data)
}

// lineText returns a line without its line end.
func lineText(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// chunks returns the text of each match, at most the limit: the line with the lines
// around it that the chunk before it lacks. A colon follows the number of a line that
// matches, a hyphen the number of a line around it.
func (s *search) chunks(path string, data []byte, matches []int) (chunks []string) {
	number, counted, shown := 1, 0, 0
	for i, at := range matches[:min(len(matches), s.Limit)] {
		var b strings.Builder
		add := func(at int, sign string) {
			number += bytes.Count(data[counted:at], []byte("\n"))
			counted, shown = at, lineEnd(data, at)
			fmt.Fprintf(&b, "%s%s%d%s%s\n", path, sign, number, sign, s.cut(lineText(data[at:shown])))
		}
		from := at
		for n := 0; n < s.Context && from > shown; n++ {
			from = lineBegin(data, from-1)
		}
		if s.Context > 0 && from > shown && i > 0 {
			b.WriteString("--\n")
		}
		for ; from < at; from = shown {
			add(from, "-")
		}
		add(at, ":")
		next := len(data)
		if i+1 < len(matches) {
			next = matches[i+1]
		}
		for n := 0; n < s.Context && shown < next; n++ {
			add(shown, "-")
		}
		chunks = append(chunks, b.String())
	}
	return chunks
}

// cut returns a line as shown: of a long one the part around the first match.
func (s *search) cut(text []byte) string {
	if len(text) <= maxMatchLine {
		return valid(string(text))
	}
	from, before := 0, ""
	if where := s.re.FindIndex(text[:min(len(text), maxMatched)]); where != nil {
		from = max(0, where[0]-maxMatchLine/4)
	}
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	if from > 0 {
		before = fmt.Sprintf("[%d bytes left out] …", from)
	}
	return before + cutLine(valid(string(text[from:])), maxMatchLine)
}

func (s *search) text(found []*hits) string {
	var b strings.Builder
	told, large, more := 0, 0, false
	add := func(text string) { // nothing once there was no room
		if more = more || b.Len()+len(text) > maxMatchText; !more {
			b.WriteString(text)
		}
	}
	for _, h := range found {
		switch {
		case h == nil:
		case h.large:
			large++
		case told >= s.Limit:
			more = true
		case s.Mode == modeContent:
			if s.Context > 0 && told > 0 {
				add("--\n")
			}
			fit := min(len(h.chunks), s.Limit-told)
			for _, chunk := range h.chunks[:fit] {
				add(chunk)
			}
			told += fit
			more = more || h.count > fit
		case s.Mode == modeCount:
			told++
			add(fmt.Sprintf("%s: %d\n", valid(h.path), h.count))
		default:
			told++
			add(valid(h.path) + "\n")
		}
	}
	if told == 0 {
		b.WriteString("No matches.\n")
	}
	if more {
		b.WriteString("[There are more matches. Look for something narrower, or set limit.]\n")
	}
	if large > 0 {
		fmt.Fprintf(&b, "[%s of more than %d MiB not looked at]\n", count(large, "file"), maxFileBytes>>20)
	}
	return b.String()
}
