package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

const (
	// maxListed bounds the files that are looked at to find some.
	maxListed = 100_000

	// maxFound bounds the files that are told.
	maxFound = 200
)

type globArgs struct{ pattern, path string }

func (a *globArgs) list() []arg {
	return []arg{
		{name: "pattern", to: &a.pattern, required: true, min: 1, max: maxPattern, about: "Such as **/*.go, src/*.{ts,tsx} or *_test.go; without a slash it means file names in any directory"},
		{name: "path", to: &a.path, about: "The directory to look in, to which the pattern is relative; the workspace if not given"},
	}
}

func (a *globArgs) decode(raw json.RawMessage) error {
	a.path = "."
	return decode(raw, a.list()...)
}

// glob finds files by name.
func (k *Kit) glob() Tool {
	return Tool{
		Tool: model.Tool{
			Name: "glob",
			Description: "Finds files by their paths, those that changed last first. Knows *, ?, [a-z], {a,b} and ** for any number of directories. " +
				fmt.Sprintf("Files that git ignores are not looked at, and at most %d are told.", maxFound),
			Schema: schemaOf(new(globArgs).list()),
		},
		Title: "Glob",
		Brief: func(raw json.RawMessage) (label, action string) {
			var a globArgs
			if a.decode(raw) != nil {
				return "Found files", "Finding files"
			}
			return "Found " + brief(a.pattern), "Finding " + brief(a.pattern)
		},
		Run: told(k.runGlob),
	}
}

// A found file, and when it changed.
type found struct {
	path string // relative to the workspace
	at   time.Time
}

func (k *Kit) runGlob(ctx context.Context, raw json.RawMessage, _ func(string) error) (Result, error) {
	var a globArgs
	if err := a.decode(raw); err != nil {
		return Result{}, err
	}
	dir, err := k.locate(a.path)
	if err != nil {
		return Result{}, err
	}
	pattern, err := newPathPattern(k.relative(a.pattern, dir))
	if err != nil {
		return Result{}, err
	}
	listing, err := k.list(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	var names []string
	for _, name := range listing.files {
		if pattern.matches(name) {
			names = append(names, path.Join(dir.name, name))
		}
	}
	names, left := kept(ctx, names)
	all := make([]found, 0, len(names))
	for _, name := range names {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		f := found{path: name}
		if info, err := k.Workspace.Lstat(filepath.FromSlash(name)); err == nil {
			f.at = info.ModTime()
		}
		all = append(all, f)
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	slices.SortStableFunc(all, func(a, b found) int { return b.at.Compare(a.at) })
	return Result{Text: tellFound(all) + left + listing.remark()}, nil
}

// relative returns a pattern that was given as an absolute path below dir without
// that.
func (k *Kit) relative(pattern string, dir file) string {
	rest, ok := strings.CutPrefix(pattern, filepath.ToSlash(k.Workspace.At(dir.rel))+"/")
	if ok && strings.HasPrefix(pattern, "/") {
		return "/" + rest
	}
	return pattern
}

func tellFound(all []found) string {
	var b strings.Builder
	for _, f := range all[:min(len(all), maxFound)] {
		b.WriteString(valid(f.path) + "\n")
	}
	switch {
	case len(all) == 0:
		b.WriteString("No files found.\n")
	case len(all) > maxFound:
		fmt.Fprintf(&b, "[%s left out]\n", count(len(all)-maxFound, "older file"))
	}
	return b.String()
}

// A listing is the files that are looked at.
type listing struct {
	files    []string // slash-separated, relative to the directory
	complete bool
}

// list returns the files below a directory, but for those that git ignores.
func (k *Kit) list(ctx context.Context, dir file) (listing, error) {
	info, err := k.Workspace.Stat(dir.rel)
	switch {
	case err != nil:
		return listing{}, dir.refuse(err)
	case !info.IsDir():
		return listing{}, refusal(dir.name + " is not a directory.")
	}
	l, err := k.Workspace.List(ctx, dir.rel, maxListed)
	switch {
	case ctx.Err() != nil:
		return listing{}, context.Cause(ctx)
	case err != nil:
		return listing{}, dir.refuse(err)
	}
	return listing{l.Files, l.Complete}, nil
}

// remark says what was not looked at, or nothing.
func (l listing) remark() string {
	switch {
	case !l.complete:
		return fmt.Sprintf("[Only the first %d files were looked at. Give a path to look in.]\n", maxListed)
	case len(l.files) == 0:
		return "[There are no files there but those that git ignores. Bash can look at them.]\n"
	}
	return ""
}
