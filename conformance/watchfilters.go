package conformance

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// watchFilters judges which changes a watch leaves out: 5.4, R99.
func watchFilters() []Scenario {
	watch := anywhere(contracts.OperationFileWatch)
	return []Scenario{
		watch.settled("watch/built-in-excludes", "R99", "Dependencies, version control, build output and logs are never reported", func(u *user) {
			l := u.watch("R99", contracts.UtilityFileWatchStart{})
			u.files("node_modules/f", "sub/node_modules/pkg/f", ".git/f", "dist/f", "sub/build/f", ".next/f", ".nuxt/f", "coverage/f", "f.log", "sub/f.log", ".DS_Store", "sub/thumbs.db")
			u.files("distant/f", "build.txt", "f.logs", "sub/dist.go", ".github/f")
			for _, name := range []string{"distant/f", "build.txt", "f.logs", "sub/dist.go", ".github/f"} {
				l.reports("R99", contracts.FileCreated, name)
			}
			u.shell("cd " + u.rel + " && echo more >> node_modules/f && rm f.log")
			l.mark("R99", "mark")
			silent := []string{"node_modules/f", "sub/node_modules/pkg/f", ".git/f", "dist/f", "sub/build/f", ".next/f", ".nuxt/f", "coverage/f", "f.log", "sub/f.log", ".DS_Store", "sub/thumbs.db"}
			for _, told := range l.told(func(name string) bool { return slices.Contains(silent, name) }) {
				u.s.fail("R99", "expected nothing about what is always excluded, got %s", told)
			}
		}),
		watch.settled("watch/includes", "5.4", "With include patterns only what they fit is reported", func(u *user) {
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"**/*.go", "docs/*.md"}},
				[]string{"f.go", "sub/deep/f.go", "docs/f.md"}, []string{"f.txt", "docs/sub/f.md", "f.md", "f.gob", "sub/f.log"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"*.txt"}},
				[]string{"f.txt"}, []string{"sub/f.txt", "f.TXT"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"sub/**"}},
				[]string{"sub/f", "sub/deep/f"}, []string{"f", "subs/f", "x/sub/f"})
		}),
		watch.settled("watch/excludes", "5.4", "What exclude patterns fit is not reported, whatever includes say", func(u *user) {
			u.admits("5.4", contracts.UtilityFileWatchStart{ExcludePatterns: []string{"**/secret/**", "*.tmp"}},
				[]string{"f", "sub/f.tmp", "secrets/f"}, []string{"secret/f", "sub/secret/deep/f", "f.tmp", "f.log"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"**/*.go"}, ExcludePatterns: []string{"**/*_test.go"}},
				[]string{"f.go", "sub/g.go"}, []string{"f_test.go", "sub/g_test.go", "f.txt"})
		}),
		watch.settled("watch/globs", "5.4", "Patterns have stars, question marks and classes, and nothing else", func(u *user) {
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"?.x", "[a-c]1", "a*z", "#f", "{y,z}", "*/m", "p/**/q", ".*"}},
				[]string{"a.x", "é.x", "b1", "az", "a--z", "#f", "{y,z}", "d/m", ".hidden/m", "p/q", "p/1/2/q", ".dot"},
				[]string{"ab.x", "sub/a.x", "d1", "B1", "a/z", "f", "y", "m", "d/e/m", "p/1/q2", "sub/.dot"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"**"}}, []string{"f", ".f", "sub/.f"}, nil)
		}),
	}
}

// admits makes files and fails unless a watch with the patterns reports exactly
// some of them.
func (u *user) admits(rule string, cmd contracts.UtilityFileWatchStart, reported, silent []string) {
	cmd.RootDir = new(u.rel)
	l := u.watch(rule, cmd)
	names := append(slices.Clone(silent), reported...)
	u.files(names...)
	for _, name := range reported {
		l.reports(rule, contracts.FileCreated, name)
	}
	for _, told := range l.told(func(name string) bool { return slices.Contains(silent, name) }) {
		u.s.fail(rule, "expected nothing about this file with includes %q and excludes %q, got %s", cmd.IncludePatterns, cmd.ExcludePatterns, told)
	}
	l.stop()
	for _, name := range names {
		u.shell("rm '" + u.rel + "/" + name + "'")
	}
}
