package workspace

import (
	"bufio"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Repository reports whether dir, which is relative to the root, lies in the
// git repository around the root and in none below it.
func (w *Workspace) Repository(dir string) bool {
	if gitDir(w.path) == "" {
		return false
	}
	at := ""
	for name := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(dir)), "/") {
		if name == "." {
			continue
		}
		at = filepath.Join(at, name)
		if _, err := w.Lstat(filepath.Join(at, ".git")); err == nil {
			return false
		}
	}
	return true
}

// top returns the folder for the root with the rules of the repository around
// it. Those count for nothing if they ignore the root itself, as a repository in
// the user's home may: then the root is taken for a tree of its own.
func (wk *walk) top() folder {
	alone := folder{path: ".", rules: wk.globalRules()}
	dir := gitDir(wk.w.path)
	if dir == "" {
		return alone
	}
	wk.marks.addOutside(filepath.Join(dir, "index")) // what is tracked
	wk.marks.addOutside(filepath.Join(commonDir(dir), "config"))
	rules := alone.rules.under(wk.ctx, "", wk.textOutside(filepath.Join(commonDir(dir), "info", "exclude")))
	outer := repositoryTop(wk.w.path)
	rel, err := filepath.Rel(outer, wk.w.path)
	if err != nil || rel == "." {
		alone.rules = rules
		return alone
	}
	f := folder{path: ".", rules: rules}
	for name := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		own := f.rules.under(wk.ctx, f.tree, wk.textOutside(filepath.Join(outer, filepath.FromSlash(f.tree), ".gitignore")))
		f = folder{path: ".", tree: path.Join(f.tree, name), rules: own}
		if own.ignored(f.tree, true) {
			return alone
		}
	}
	return f
}

// repositoryTop returns the directory with the .git that [gitDir] finds.
func repositoryTop(path string) string {
	for {
		if _, err := os.Stat(filepath.Join(path, ".git")); err == nil {
			return path
		}
		parent := filepath.Dir(path)
		if parent == path {
			return path
		}
		path = parent
	}
}

// commonDir returns the git directory that linked worktrees share.
func commonDir(gitDir string) string {
	common := firstLine(filepath.Join(gitDir, "commondir"))
	switch {
	case common == "":
		return gitDir
	case filepath.IsAbs(common):
		return common
	}
	return filepath.Join(gitDir, common)
}

// globalRules returns the rules of the user's own ignore file, which hold in
// every repository.
func (wk *walk) globalRules() *level {
	if !wk.asked {
		wk.asked = true
		wk.global = wk.global.under(wk.ctx, "", wk.textOutside(wk.excludesFile()))
	}
	return wk.global
}

// excludesFile returns the path of the user's ignore file: core.excludesFile of
// the user's configuration, else git/ignore in the configuration directory.
func (wk *walk) excludesFile() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	for _, file := range []string{filepath.Join(home, ".gitconfig"), filepath.Join(config, "git", "config")} {
		path := configured(wk.textOutside(file), "core", "excludesfile")
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			return filepath.Join(home, rest)
		}
		if path != "" {
			return path
		}
	}
	return filepath.Join(config, "git", "ignore")
}

// configured returns the last value of a key in the text of a git configuration
// file, or "". Both names are in lower case. Files that the text includes are
// not read.
func configured(text, section, key string) string {
	value, here := "", false
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if rest, ok := strings.CutPrefix(line, "["); ok {
			name, after, _ := strings.Cut(rest, "]")
			here = strings.EqualFold(strings.TrimSpace(name), section)
			line = strings.TrimSpace(after)
		}
		name, v, ok := strings.Cut(line, "=")
		if here && ok && strings.EqualFold(strings.TrimSpace(name), key) {
			value = strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return value
}

// maxIgnoreFile bounds what is read of one ignore file.
const maxIgnoreFile = 1 << 20

// text returns what is in an ignore file below the root, or "" if there is none.
// As in git, one that is a symbolic link does not count.
func (wk *walk) text(name string) string {
	name = filepath.FromSlash(name)
	info, err := wk.w.Lstat(name)
	if err != nil {
		return ""
	}
	wk.marks.add(name, info)
	if !info.Mode().IsRegular() {
		return ""
	}
	f, err := wk.w.OpenFile(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	return textFrom(f, maxIgnoreFile)
}

// textOutside returns what is in an ignore or configuration file that the
// operator chose, not a client.
func (wk *walk) textOutside(path string) string {
	wk.marks.addOutside(path)
	return textOf(path, maxIgnoreFile)
}

// textOf returns the first limit bytes of a regular file, or "" if it cannot be
// read.
func textOf(path string, limit int64) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	return textFrom(f, limit)
}

func textFrom(f io.Reader, limit int64) string {
	text, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return ""
	}
	return string(text)
}
