package workspace

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where the rules of a user and of a repository come from is decided as git
// decides it.
func TestSettingsMeanWhatTheyMeanToGit(t *testing.T) {
	type files = map[string]string
	for name, c := range map[string]struct {
		home   files // in the home directory
		repo   files // in the repository
		env    map[string]string
		listed string // what is left of "a b c D"
	}{
		"nothing":                   {listed: "a b c D"},
		"default":                   {home: files{".config/git/ignore": "a\n"}, listed: "b c D"},
		"XDG_CONFIG_HOME":           {home: files{".config/git/ignore": "a\n", "xdg/git/ignore": "b\n"}, env: files{"XDG_CONFIG_HOME": "~/xdg"}, listed: "a c D"},
		"excludesFile":              {home: files{".gitconfig": "[core]\nexcludesFile=~/x\n", "x": "a", ".config/git/ignore": "b\n"}, listed: "b c D"},
		"in the XDG configuration":  {home: files{".config/git/config": "[core]\nexcludesFile=~/x\n", "x": "a"}, listed: "b c D"},
		".gitconfig comes later":    {home: files{".config/git/config": "[core]\nexcludesFile=~/x\n", ".gitconfig": "[core]\nexcludesFile=~/y\n", "x": "a", "y": "b"}, listed: "a c D"},
		"the last one counts":       {home: files{".gitconfig": "[core]\nexcludesFile=~/x\n[user]\nname = n\n[core]\n\texcludesfile = ~/y", "x": "a", "y": "b"}, listed: "a c D"},
		"none":                      {home: files{".gitconfig": "[core]\nexcludesFile=\n", ".config/git/ignore": "b\n"}, listed: "a b c D"},
		"missing":                   {home: files{".gitconfig": "[core]\nexcludesFile=~/gone\n", ".config/git/ignore": "b\n"}, listed: "a b c D"},
		"quotes, escapes, comments": {home: files{".gitconfig": "# c\n; d\n[CORE] excludesFile = \"~/x y\"\\\n#z # c\n", "x y#z": "a", "x y": "b"}, listed: "a c D"},
		"quoted":                    {home: files{".gitconfig": "[CORE] excludesFile = \"~/x \"y;z # c\n", "x y": "a"}, listed: "b c D"},
		"continued":                 {home: files{".gitconfig": "[core]\nexcludesFile = ~/x\\\ny\n", "xy": "a"}, listed: "b c D"},
		"subsection":                {home: files{".gitconfig": "[core \"x\"]\nexcludesFile=~/x\n", "x": "a"}, listed: "a b c D"},
		"carriage returns, mark":    {home: files{".gitconfig": byteOrderMark + "[core]\r\nexcludesFile=~/x\r\n", "x": "a\r\nb\r\n"}, listed: "c D"},
		"GIT_CONFIG_GLOBAL":         {home: files{".gitconfig": "[core]\nexcludesFile=~/x\n", "g": "[core]\nexcludesFile=~/y\n", "x": "a", "y": "b"}, env: files{"GIT_CONFIG_GLOBAL": "~/g"}, listed: "a c D"},
		"GIT_CONFIG_SYSTEM":         {home: files{"s": "[core]\nexcludesFile=~/x\n", "x": "a"}, env: files{"GIT_CONFIG_SYSTEM": "~/s", "GIT_CONFIG_NOSYSTEM": "0"}, listed: "b c D"},
		"GIT_CONFIG_NOSYSTEM":       {home: files{"s": "[core]\nexcludesFile=~/x\n", "x": "a"}, env: files{"GIT_CONFIG_SYSTEM": "~/s", "GIT_CONFIG_NOSYSTEM": "yes"}, listed: "a b c D"},
		"no GIT_CONFIG_GLOBAL":      {home: files{".gitconfig": "[core]\nexcludesFile=~/x\n", "x": "a"}, env: files{"GIT_CONFIG_GLOBAL": ""}, listed: "a b c D"},
		"no GIT_CONFIG_SYSTEM":      {home: files{".gitconfig": "[core]\nexcludesFile=~/x\n", "x": "a"}, env: files{"GIT_CONFIG_SYSTEM": "", "GIT_CONFIG_NOSYSTEM": "0"}, listed: "b c D"},
		"of the repository":         {home: files{".gitconfig": "[core]\nexcludesFile=~/x\n", "x": "a"}, repo: files{".git/config": "[core]\nexcludesFile=.git/x\n", ".git/x": "b\n"}, listed: "a c D"},
		"of the worktree":           {repo: files{".git/config": "[core]\nrepositoryFormatVersion = 0\n[extensions]\nworktreeConfig\n", ".git/config.worktree": "[core]\nexcludesFile=.git/x\n", ".git/x": "b\n"}, listed: "a c D"},
		"info/exclude counts more":  {home: files{".config/git/ignore": "a\n!b\n"}, repo: files{".git/info/exclude": "!a\nb\n"}, listed: "a c D"},
		".gitignore counts most":    {home: files{".config/git/ignore": "a\n"}, repo: files{".git/info/exclude": "b\n", ".git/x": "", "d/.gitignore": "!*\n", "d/a": "", "d/b": ""}, listed: "c D d/.gitignore d/a d/b"},
		"ignoreCase":                {repo: files{".git/config": "[core]\nignorecase\n", ".git/info/exclude": "d\nA\n", "e/.GIT": "", "f/.Git/x": "", "f/x": ""}, listed: "b c f/x"},
		"not ignoreCase":            {repo: files{".git/config": "[core]\nignorecase = off\n", ".git/info/exclude": "d\nA\n"}, listed: "a b c D"},
		"include":                   {home: files{".gitconfig": "[include]\npath = sub/more\n[core]\n", "sub/more": "[include]\npath=../x", "x": "[core]\nexcludesFile=~/y", "y": "a"}, listed: "b c D"},
		"includes on conditions":    {home: files{".gitconfig": "[includeIf \"gitdir:~/\"]\npath=no\n[includeIf \"gitdir:top/\"]\npath = x\n[includeIf \"gitdir:*/nothing\"]\npath=no\n", "x": "[core]\nexcludesFile=~/y", "no": "[core]\nexcludesFile=~/z", "y": "a", "z": "b"}, listed: "b c D"},
		"includes in either case":   {home: files{".gitconfig": "[includeIf \"gitdir/i:**/TOP/.git\"]\npath = x\n", "x": "[core]\nexcludesFile=~/y", "y": "a"}, listed: "b c D"},
		"includes on branches":      {home: files{".gitconfig": "[includeIf \"onbranch:ma*\"]\npath = x\n[includeIf \"onbranch:ma/\"]\npath = no\n", "x": "[core]\nexcludesFile=~/y", "no": "[core]\nexcludesFile=~/z", "y": "a", "z": "b"}, listed: "b c D"},
		"linked exclude files":      {home: files{".gitconfig": "[core]\nexcludesFile=~/link\n", "link->": "x", "x": "a"}, listed: "b c D"},
	} {
		t.Run(name, func(t *testing.T) {
			quietGit(t)
			home, err := os.UserHomeDir()
			must(t, err)
			for key, value := range c.env {
				t.Setenv(key, strings.Replace(value, "~", home, 1))
			}
			root := filepath.Join(t.TempDir(), "top")
			newRepository(t, root, "")
			for _, name := range strings.Fields("a b c D") {
				write(t, filepath.Join(root, name), "")
			}
			for dir, files := range map[string]files{home: c.home, root: c.repo} {
				for name, text := range files {
					if name, link := strings.CutSuffix(name, "->"); link {
						must(t, os.Symlink(text, filepath.Join(dir, name)))
					} else {
						write(t, filepath.Join(dir, name), text)
					}
				}
			}
			compare(t, root, ".")
			wantFiles(t, openDir(t, root), ".", strings.Fields(c.listed)...)
		})
	}
}

// Random rules of the user and the repository, around the root, in it and in the
// repositories below mean what they mean to git.
func TestRandomRepositoriesAreListedAsGitListsThem(t *testing.T) {
	quietGit(t)
	home, err := os.UserHomeDir()
	must(t, err)
	const trials = 150
	for n := range trials {
		g := grammars()[n%len(grammars())]
		r := rand.New(rand.NewPCG(*seed, uint64(n+1)<<32))
		top := t.TempDir()
		newRepository(t, top, fmt.Sprintf("[core]\nignoreCase = %v\n", r.IntN(4) == 0))
		text := func() string {
			return strings.ReplaceAll(several(r, 3, func(r *rand.Rand) string { return strings.ReplaceAll(g.line(r), "\n", "") + "\n" }, ""), "*\n", "*a\n")
		}
		dirs := []string{".", g.part(r)}
		for range 5 {
			dirs = append(dirs, filepath.Join(dirs[r.IntN(len(dirs))], g.part(r)))
		}
		rules := map[string]string{filepath.Join(home, ".config/git/ignore"): text(), filepath.Join(top, ".git/info/exclude"): text()}
		for _, dir := range dirs[:r.IntN(4)] {
			rules[filepath.Join(top, dir, ".gitignore")] = text()
		}
		for _, dir := range dirs {
			for range 5 {
				write(t, filepath.Join(top, dir, g.part(r)+"_"), "")
				write(t, filepath.Join(top, dir, "_"+plainName(g.line(r))[:1]), "")
			}
		}
		for name, text := range rules {
			write(t, name, text)
		}
		root, sub := ".", "."
		if r.IntN(2) == 0 {
			root = dirs[r.IntN(len(dirs))]
		} else {
			sub = dirs[r.IntN(len(dirs))]
		}
		if rootIgnored(t, top, root) {
			continue // that is a tree of its own, as git would not have it
		}
		if !compare(t, filepath.Join(top, root), sub) {
			t.Fatalf("-seed %d, trial %d (%s), root %q, %q: not git's listing; with %q", *seed, n, g.name, root, sub, rules)
		}
	}
}

func rootIgnored(t *testing.T, top, root string) bool {
	if root == "." {
		return false
	}
	root = "./" + root // it may begin like a special path
	line := checkIgnore(t, top, []string{root})[root]
	return line != "" && line[0] != '!'
}
