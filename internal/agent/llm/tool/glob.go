package tool

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

const (
	// maxListed bounds the files that a search looks at.
	maxListed = 100_000

	// maxFound bounds the files in a result.
	maxFound = 200
)

type globArgs struct {
	Pattern string `json:"pattern" min:"1" max:"1000" about:"Such as **/*.go, src/*.{ts,tsx} or *_test.go; without a slash it means file names in any directory"`
	Path    string `json:"path,omitempty" default:"." about:"The directory to look in, to which the pattern is relative; the workspace if not given"`
}

func (k *Kit) glob() Tool {
	return define(Tool{
		Tool: model.Tool{
			Name: "glob",
			Description: "Finds files by their paths, those that changed last first. Knows *, ?, [a-z], {a,b} and ** for any number of directories. " +
				fmt.Sprintf("Files that git ignores are not looked at, and at most %d are told.", maxFound),
		},
		Title: "Glob",
	}, "Found", "Finding", "files", func(a *globArgs) string { return a.Pattern }, k.runGlob)
}

func (k *Kit) runGlob(ctx context.Context, a *globArgs, _ func(string) error) (Result, error) {
	dir, err := k.locate(a.Path)
	if err != nil {
		return Result{}, err
	}
	names, remark, err := k.list(ctx, dir, a.Pattern)
	if err != nil {
		return Result{}, err
	}
	changed := make(map[string]time.Time, len(names))
	for _, name := range names {
		if info, err := k.Workspace.Lstat(filepath.FromSlash(name)); err == nil && ctx.Err() == nil {
			changed[name] = info.ModTime()
		}
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	slices.SortStableFunc(names, func(a, b string) int { return changed[b].Compare(changed[a]) })
	var text strings.Builder
	for _, name := range names[:min(len(names), maxFound)] {
		text.WriteString(valid(name) + "\n")
	}
	switch {
	case len(names) == 0:
		text.WriteString("No files found.\n")
	case len(names) > maxFound:
		fmt.Fprintf(&text, "[%s left out]\n", count(len(names)-maxFound, "older file"))
	}
	return Result{Text: text.String() + remark}, nil
}

// list returns the files below a directory that match a pattern, as paths from the
// workspace root, with a remark about files that were not looked at. Files that
// git ignores are left out.
func (k *Kit) list(ctx context.Context, dir file, pattern string) (names []string, remark string, err error) {
	under := filepath.ToSlash(k.Workspace.At(dir.rel)) + "/"
	if rest, ok := strings.CutPrefix(pattern, under); ok && strings.HasPrefix(pattern, "/") {
		pattern = "/" + rest // the pattern was absolute
	}
	match, err := compileNames(pattern)
	if err != nil {
		return nil, "", err
	}
	var found workspace.Listing
	info, err := k.Workspace.Stat(dir.rel)
	if err == nil && !info.IsDir() {
		return nil, "", refusal(dir.name + " is not a directory.")
	} else if err == nil {
		found, err = k.Workspace.List(ctx, dir.rel, maxListed)
	}
	switch {
	case ctx.Err() != nil:
		return nil, "", context.Cause(ctx)
	case err != nil:
		return nil, "", dir.refuse(err)
	case !found.Complete:
		remark = fmt.Sprintf("[Only the first %d files were looked at. Give a path to look in.]\n", maxListed)
	case len(found.Files) == 0:
		remark = "[There are no files there but those that git ignores. Bash can look at them.]\n"
	}
	for _, name := range found.Files {
		if match(name) {
			names = append(names, path.Join(dir.name, name))
		}
	}
	names, left := permitted(ctx, names)
	return names, left + remark, nil
}

// leftOut is the key in a context of the function of LeaveOut.
type leftOut struct{}

// LeaveOut returns a context for a search that leaves out the files for which f
// reports true, and says how many they were. f gets slash-separated paths
// relative to the workspace; nil leaves out none.
func LeaveOut(ctx context.Context, f func(path string) bool) context.Context {
	if f == nil {
		return ctx
	}
	return context.WithValue(ctx, leftOut{}, f)
}

// permitted returns the files that a search may show, and a remark on the others.
func permitted(ctx context.Context, files []string) (in []string, remark string) {
	out, ok := ctx.Value(leftOut{}).(func(path string) bool)
	if !ok {
		return files, ""
	}
	for _, name := range files {
		if ctx.Err() == nil && !out(name) {
			in = append(in, name)
		}
	}
	if len(in) < len(files) {
		remark = fmt.Sprintf("[%s left out, which a rule denies or asks about. What is asked about can be looked at by its own path.]\n", count(len(files)-len(in), "file"))
	}
	return in, remark
}
