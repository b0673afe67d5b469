package workspace

import (
	"cmp"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// Limits for one configuration.
const (
	maxIncludes    = 10      // depth of includes, as in git
	maxConfigFiles = 200     // files read; a file counts each time it is included
	maxConfigBytes = 4 << 20 // bytes of all files
)

// A gitConfig is the part of git's configuration that concerns ignoring.
type gitConfig struct {
	excludes   string // core.excludesFile: an absolute path, or "" without a file
	ignoreCase bool   // core.ignoreCase
	sha256     bool   // extensions.objectFormat

	v           *visit
	top, dir    string // of the repository, absolute; "" without a repository
	perWorktree bool   // extensions.worktreeConfig

	files, bytes int // read so far
}

// configure reads the configuration of a repository, or the one outside
// repositories if dir is "". The system's file comes first, then the user's,
// then the repository's; the last value counts, as in git. At the limits of a
// configuration, where git fails or never ends, configure stops reading.
func (v *visit) configure(top, dir string) gitConfig {
	c := gitConfig{v: v, top: top, dir: dir}
	if _, own := userConfig(); own != "" {
		c.excludes = filepath.Join(own, "ignore")
	}
	for _, file := range configFiles() {
		c.include(file, 0)
	}
	if dir != "" {
		c.include(filepath.Join(v.w.commonDir(dir), "config"), 0)
		if c.perWorktree {
			c.include(filepath.Join(dir, "config.worktree"), 0)
		}
	}
	return c
}

// configFiles returns the configuration files outside repositories, the one that
// counts least first. They need not exist.
func configFiles() (files []string) {
	if without, _ := truth(os.Getenv("GIT_CONFIG_NOSYSTEM")); !without {
		system, set := os.LookupEnv("GIT_CONFIG_SYSTEM")
		if !set {
			system = "/etc/gitconfig"
		}
		files = append(files, system)
	}
	if global, set := os.LookupEnv("GIT_CONFIG_GLOBAL"); set {
		return append(files, global)
	}
	home, own := userConfig()
	if own != "" {
		files = append(files, filepath.Join(own, "config"))
	}
	if home != "" {
		files = append(files, filepath.Join(home, ".gitconfig"))
	}
	return files
}

// userConfig returns the user's home directory and the directory of git's
// configuration in it. Each is "" if there is none.
func userConfig() (home, own string) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		if home == "" {
			return "", ""
		}
		config = filepath.Join(home, ".config")
	}
	return home, filepath.Join(config, "git")
}

// more reports whether the limits allow more reading.
func (c *gitConfig) more() bool {
	return c.files <= maxConfigFiles && c.bytes <= maxConfigBytes && c.v.ctx.Err() == nil
}

// include reads one file and the files that it includes. It ignores an empty
// path.
func (c *gitConfig) include(path string, depth int) {
	if path == "" || depth > maxIncludes || !c.more() {
		return
	}
	text := c.v.text(path, true)
	c.files, c.bytes = c.files+1, c.bytes+len(text)
	parseGitConfig(text, func(e configEntry) bool {
		c.store(e, path, depth)
		return c.more()
	})
}

// store records one value of the file at path.
func (c *gitConfig) store(e configEntry, path string, depth int) {
	if e.subsection == "" || e.key == "includeif.path" {
		switch e.key {
		case "core.excludesfile":
			c.excludes = c.path(e.value, c.top)
		case "core.ignorecase":
			c.setTruth(&c.ignoreCase, e)
		case "extensions.objectformat":
			c.sha256 = e.value == "sha256"
		case "extensions.worktreeconfig":
			c.setTruth(&c.perWorktree, e)
		case "include.path":
			c.include(c.path(e.value, filepath.Dir(path)), depth+1)
		case "includeif.path":
			if c.conditionHolds(e.subsection, filepath.Dir(path)) {
				c.include(c.path(e.value, filepath.Dir(path)), depth+1)
			}
		}
	}
}

func (c *gitConfig) setTruth(to *bool, e configEntry) {
	if value, ok := truth(e.value); ok || e.bare {
		*to = value || e.bare
	}
}

// truth reads a boolean as git does. ok is false if value is not a boolean.
func truth(value string) (truth, ok bool) {
	switch strings.ToLower(value) {
	case "true", "yes", "on":
		return true, true
	case "", "false", "no", "off":
		return false, true
	}
	digits := strings.TrimRight(strings.TrimLeft(value, "+-"), "kmgKMG")
	return strings.Trim(digits, "0") != "", strings.Trim(digits, "0123456789") == ""
}

// path returns the absolute form of a path in a configuration file. A relative
// path counts from dir.
func (c *gitConfig) path(path, dir string) string {
	if name, rest, _ := strings.Cut(path, "/"); strings.HasPrefix(name, "~") {
		home, _ := userConfig()
		if name != "~" {
			home = ""
			if u, err := user.Lookup(name[1:]); err == nil {
				home = u.HomeDir
			}
		}
		if home == "" {
			return ""
		}
		return filepath.Join(home, rest)
	}
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(cmp.Or(dir, c.v.w.path), path)
}

// conditionHolds reports whether an includeIf condition in a file of dir is
// true. A condition on a remote is false here.
func (c *gitConfig) conditionHolds(condition, dir string) bool {
	kind, pattern, _ := strings.Cut(condition, ":")
	if c.dir == "" {
		return false
	}
	switch kind {
	case "gitdir", "gitdir/i":
		if rest, ok := strings.CutPrefix(pattern, "./"); ok {
			pattern = dir + "/" + rest
		} else if rest, ok := strings.CutPrefix(pattern, "~/"); ok {
			home, _ := userConfig()
			pattern = home + "/" + rest
		}
		if !filepath.IsAbs(pattern) {
			pattern = "**/" + pattern
		}
		return c.v.matchesPath(pattern, filepath.ToSlash(c.dir), kind == "gitdir/i")
	case "onbranch":
		branch := c.v.w.branch(c.dir)
		return branch != "" && c.v.matchesPath(pattern, branch, false)
	}
	return false
}

// matchesPath reports whether path matches the pattern of a condition. A
// pattern that ends in a slash matches everything below the directory.
func (v *visit) matchesPath(pattern, path string, fold bool) bool {
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	path = folded(strings.TrimPrefix(path, "/"), fold)
	if r, ok := parseRule("/"+strings.TrimPrefix(pattern, "/"), fold); ok {
		return r.matches(&v.budget, path[strings.LastIndexByte(path, '/')+1:], path, true)
	}
	return false
}
