package tool

import (
	"context"
	"encoding/json"
	"path"
	"path/filepath"
	"regexp"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// What grep may tell.
const (
	modeFiles   = "files"
	modeContent = "content"
	modeCount   = "count"
)

const (
	// Bounds on what is told: files or lines that match, lines around each, and
	// bytes of a line and in all.
	defaultMatches = 100
	maxMatches     = 1000
	maxContext     = 20
	maxMatchLine   = 500
	maxMatchText   = 50_000
)

type grepArgs struct {
	pattern, path, glob, mode string
	context, limit            int
	ignoreCase                bool
}

func (a *grepArgs) list() []arg {
	return []arg{
		{name: "pattern", to: &a.pattern, required: true, min: 1, max: maxPattern, about: "A regular expression in RE2 syntax (no lookahead, no backreferences) for what is within a line"},
		{name: "path", to: &a.path, about: "The file or directory to look in; the workspace if not given"},
		{name: "glob", to: &a.glob, max: maxPattern, about: "Only files of this pattern, such as *.go or src/**/*.{ts,tsx}; with a ! before it only others"},
		{name: "output_mode", to: &a.mode, oneOf: []string{modeFiles, modeContent, modeCount}, about: "files: the paths of the files that match (if not given); content: the lines that match, with numbers; count: how many lines match in each file"},
		{name: "context", to: &a.context, max: maxContext, about: "How many lines to show before and after each, with content; 0 if not given"},
		{name: "ignore_case", to: &a.ignoreCase, about: "Let letters stand for both cases; false if not given"},
		{name: "limit", to: &a.limit, min: 1, max: maxMatches, about: "How many files, or with content lines, to tell; 100 if not given"},
	}
}

func (a *grepArgs) decode(raw json.RawMessage) error {
	a.path, a.mode, a.limit = ".", modeFiles, defaultMatches
	return decode(raw, a.list()...)
}

// grep finds text in files.
func (k *Kit) grep() Tool {
	return Tool{
		Tool: model.Tool{
			Name: "grep",
			Description: "Finds lines that match a regular expression in the files of the workspace. " +
				"Binary files and those that git ignores are not looked at, unless path names one.",
			Schema: schemaOf(new(grepArgs).list()),
		},
		Title: "Grep",
		Brief: func(raw json.RawMessage) (label, action string) {
			var a grepArgs
			if a.decode(raw) != nil {
				return "Searched files", "Searching files"
			}
			return "Searched for " + brief(a.pattern), "Searching for " + brief(a.pattern)
		},
		Run: told(k.runGrep),
	}
}

func (k *Kit) runGrep(ctx context.Context, raw json.RawMessage, _ func(string) error) (Result, error) {
	var a grepArgs
	if err := a.decode(raw); err != nil {
		return Result{}, err
	}
	s, err := newSearch(k.Workspace, &a)
	if err != nil {
		return Result{}, err
	}
	f, err := k.locate(a.path)
	if err != nil {
		return Result{}, err
	}
	files, remark, err := k.searched(ctx, f, a.glob)
	if err != nil {
		return Result{}, err
	}
	files, left := kept(ctx, files)
	hits := s.files(ctx, files)
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	t := telling{mode: a.mode, limit: a.limit, around: a.context}
	t.all(hits)
	return Result{Text: t.text() + left + remark}, nil
}

// searched returns the files to look in, relative to the workspace, and what there
// is to remark about them.
func (k *Kit) searched(ctx context.Context, f file, glob string) ([]string, string, error) {
	info, err := k.Workspace.Stat(f.rel)
	switch {
	case err != nil:
		return nil, "", f.refuse(err)
	case info.Mode().IsRegular():
		return []string{filepath.ToSlash(k.key(f))}, "", nil
	case !info.IsDir():
		return nil, "", refusal(f.name + " is neither a file nor a directory.")
	}
	l, err := k.list(ctx, f)
	if err != nil {
		return nil, "", err
	}
	pattern := pathPattern{Regexp: regexp.MustCompile("")}
	if glob != "" {
		if pattern, err = newPathPattern(k.relative(glob, f)); err != nil {
			return nil, "", err
		}
	}
	var files []string
	for _, name := range l.files {
		if pattern.matches(name) {
			files = append(files, path.Join(f.name, name))
		}
	}
	return files, l.remark(), nil
}
