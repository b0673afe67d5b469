package workspace

import (
	"path/filepath"
	"strings"
)

// top returns the folder of the root, with the rules of the repository around
// it. If those rules ignore the root itself, as a repository in the user's home
// may, they do not count: then the root is listed as a tree without a
// repository.
func (v *visit) top() folder {
	outer, dir := v.w.repositoryAround()
	if dir == "" {
		return folder{rules: v.rulesOf("", "", 0)}
	}
	f := folder{rules: v.rulesOf(outer, dir, 0), top: true}
	rel, err := filepath.Rel(outer, v.w.path)
	if err != nil || rel == "." {
		return f
	}
	for name := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		rules := f.rules.under(v.ctx, f.below(), v.text(filepath.Join(outer, filepath.FromSlash(f.path), ".gitignore"), false))
		if f = f.child(name, rules); rules.ignored(f.path, len(f.path)-len(name), true) {
			return folder{rules: v.rulesOf("", "", 0)}
		}
	}
	f.top = true
	return f
}

// repository returns f as the top of a repository, if f is one. The rules from
// outside do not apply in it.
func (v *visit) repository(f folder) folder {
	top := v.w.At(v.name(f))
	dir, _ := v.w.gitDir(top)
	if f.top || dir == "" {
		return f
	}
	f.top, f.rules = true, v.rulesOf(top, dir, f.below())
	return f
}

// rulesOf returns the rules that apply to a whole repository, or outside
// repositories if dir is "". Paths in the repository begin at offset at of a
// path.
func (v *visit) rulesOf(top, dir string, at int) *level {
	c := v.configure(top, dir)
	rules := &level{at: at, fold: c.ignoreCase, budget: &v.budget}
	if c.excludes != "" {
		rules = rules.under(v.ctx, at, v.text(c.excludes, true))
	}
	if dir != "" {
		rules = rules.under(v.ctx, at, v.text(filepath.Join(v.w.commonDir(dir), "info", "exclude"), true))
	}
	return rules
}

// ownRules returns the rules in f: those from above and those of its own file.
func (v *visit) ownRules(f folder) *level {
	return f.rules.under(v.ctx, f.below(), v.text(v.w.At(filepath.Join(v.name(f), ".gitignore")), false))
}

// maxIgnoreFile is how much of one ignore or configuration file is read.
const maxIgnoreFile = 1 << 20

// text returns the text of the ignore or configuration file at an absolute path, or
// "" without one. As in git, an ignore file of a directory is not read through a
// symbolic link.
func (v *visit) text(path string, links bool) string { return v.w.textAt(path, maxIgnoreFile, links) }
