package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// searches judges how found files are ranked, and which files a search looks at: 5.2,
// R94, R95.
func searches() []Scenario {
	search := anywhere(contracts.OperationFileSearch)
	return []Scenario{
		search.settled("search/scores", "R95", "Each rule gives its score, and the best comes first", func(u *user) {
			u.files("quux", "a/quux", "quuxes.txt", "my-quux.txt", "old-quux/readme", "q-u-u-x", "qu/ux", "unrelated.txt", "b/other")
			u.finds("R95:ranking", "quux", "9996 quux", "9994 a/quux", "7990 quuxes.txt", "6959 my-quux.txt", "5945 old-quux/readme", "3038 q-u-u-x", "2042 qu/ux")
			u.finds("R95:ranking", "nothing-is-called-so")
		}),
		search.settled("search/whole-path", "R95", "A query that is a path finds that file first", func(u *user) {
			u.files("docs/quux.md", "old/docs/quux.md", "docs/quux.md.bak", "docs/other.md")
			u.finds("R95:ranking", "docs/quux.md", "9488 docs/quux.md", "5984 docs/quux.md.bak", "5944 old/docs/quux.md")
		}),
		search.settled("search/words", "R95", "Words of a query are found in any order", func(u *user) {
			u.files("second/first.txt", "first second.md", "second only.md", "x/first-and-second", "seconds/the-firsts/file")
			u.finds("R95:ranking", "first second", "7985 first second.md", "4984 second/first.txt", "4982 x/first-and-second", "4977 seconds/the-firsts/file")
			u.finds("R95:ranking", "second   first", "4985 first second.md", "4984 second/first.txt", "4982 x/first-and-second", "4977 seconds/the-firsts/file")
		}),
		search.settled("search/letters", "R95", "Letters in their order are found, the nearer the better", func(u *user) {
			u.files("zawb", "z123456789012w", "w-before-z", "z/w")
			// 12-min(10, gap) for each letter: 12+11 for zawb, 12+2 for the long gap.
			u.finds("R95:ranking", "zw", "3019 zawb", "3000 z123456789012w", "2020 z/w")
		}),
		search.settled("search/ties", "R95", "Of equal scores the shorter path is first, then the lesser one", func(u *user) {
			u.files("yyqqa", "zqqaaaaaaaaaaaa", "c/qx1", "a/qx1", "B/qx1", "a-/qx1", "aa/qx1")
			u.finds("R95:ranking", "qq", "6975 yyqqa", "6975 zqqaaaaaaaaaaaa")
			u.finds("R95:ranking", "qx", "7995 B/qx1", "7995 a/qx1", "7995 c/qx1", "7994 a-/qx1", "7994 aa/qx1")
		}),
		search.settled("search/case", "R95", "Case does not matter, and lengths are in characters", func(u *user) {
			u.files("Quux.TXT", "éé/QUUXÉ", "unrelated")
			u.finds("R95:ranking", "qUUx", "7992 Quux.TXT", "7992 éé/QUUXÉ")
			u.finds("R95:ranking", "quux.txt", "9992 Quux.TXT")
			u.finds("R95:ranking", "quuxé", "9992 éé/QUUXÉ")
		}),
		search.settled("search/limit", "R95", "The limit is 50, at least 1, at most 500, and what is left is said", func(u *user) {
			u.shell("cd " + u.rel + " && i=100; while [ $i -lt 620 ]; do : > quux$i; i=$((i+1)); done && for i in 0 1 2 3 4; do : > zed$i; done")
			u.eventually("R95", "files", "test -e "+u.rel+"/quux619")
			u.counts("quux", nil, 50, true)
			u.counts("quux", new(int64(0)), 1, true)
			u.counts("quux", new(int64(-7)), 1, true)
			u.counts("quux", new(int64(3)), 3, true)
			u.counts("quux", new(int64(500)), 500, true)
			u.counts("quux", new(int64(100_000)), 500, true)
			u.counts("zed", new(int64(5)), 5, false)
			u.counts("zed", new(int64(4)), 4, true)
			u.counts("zed", nil, 5, false)
		}),
		search.settled("search/blank", "R95", "A query is trimmed, and finds nothing if nothing is left", func(u *user) {
			u.files("quux")
			for _, query := range []string{"", "  ", "\t\n"} {
				if f := u.search("R95", query, nil); len(listOf(f, "results")) != 0 || f.at("truncated") != false {
					u.s.fail("R95", "expected nothing for a blank query, got %s", abridge(f.Raw, maxTraceText))
				}
			}
			u.finds("R95:ranking", "  quux\t", "9996 quux")
		}),
		search.settled("search/hidden", "5.2", "Hidden files are found, those of version control are not", func(u *user) {
			u.files(".quux", ".dir/quux", ".git/quux", "sub/.git/quux")
			u.finds("5.2:listing", "quux", "9991 .dir/quux", "6985 .quux")
		}),
		search.settled("search/ignored", "5.2", "What ignore files name is not found, unless a later rule takes it back", func(u *user) {
			u.files("quux.out", "quux.keep.out", "sub/quux.tmp", "sub/deep/quux.tmp", "quux-dir/file", "sub/quux.txt", "node_modules/quux")
			u.shell("cd " + u.rel + ` && printf '%s\n' '*.out' '!*.keep.out' 'quux-dir/' 'node_modules/' '# quux.txt' > .gitignore && printf '%s\n' '/quux.tmp' > sub/.gitignore`)
			u.finds("5.2:listing", "quux", "7988 sub/quux.txt", "7987 quux.keep.out", "7983 sub/deep/quux.tmp")
		}),
		search.settled("search/links", "5.2", "Links to directories are not followed", func(u *user) {
			u.files("real/quux-inside")
			u.shell("cd " + u.rel + " && ln -s real quux-link && ln -s / quux-all && ln -s . quux-loop")
			u.s.until("5.2:listing", "real/quux-inside to be found", func() (bool, string) {
				list := listOf(u.search("5.2:listing", "quux-inside", nil), "results")
				for _, r := range list {
					path := textOf(r, "path")
					u.s.require(path == "real/quux-inside", "5.2:listing", "expected no file behind a link, got %s", path)
				}
				return len(list) > 0, "nothing"
			})
		}),
		search.settled("search/directories", "5.2", "Files are found, directories are not", func(u *user) {
			u.files("quux/readme")
			u.shell("mkdir " + u.rel + "/quux-empty")
			u.finds("5.2:listing", "quux", "5989 quux/readme")
		}),
		search.settled("search/cwd", "R95 5.0", "A search is of the directory given, and paths are relative to it", func(u *user) {
			u.files("sub/quux", "sub/deep/quux", "quux")
			for _, cwd := range []string{u.rel + "/sub", u.home + "/sub"} {
				u.findsBelow("R95:ranking", &cwd, "quux", u.home+"/sub", func(got []string) bool {
					return strings.Join(got, ", ") == "9996 quux, 9991 deep/quux"
				})
			}
			u.findsBelow("R95:ranking", nil, u.rel+"/sub/deep/quux", u.root, func(got []string) bool {
				return len(got) > 0 && strings.HasSuffix(got[0], " "+u.rel+"/sub/deep/quux")
			})
			u.denied(&contracts.UtilityFileSearch{SearchID: "none", Query: "quux", Cwd: new(u.rel + "/none")}, refusal{rule: "5.2", id: "none"})
		}),
		search.settled("search/outside", "R94 5.2", "A search outside the workspace is refused and names its request", func(u *user) {
			for _, cwd := range u.ways() {
				id := u.id("out")
				u.denied(&contracts.UtilityFileSearch{SearchID: id, Query: "x", Cwd: &cwd}, outsideRefusal("R94", id))
			}
			u.none("R94", 0, message("utility_file_search_results"))
		}),
		search.settled("search/changes", "5.2", "New files are found soon, removed ones no more", func(u *user) {
			u.files("quux-1")
			u.finds("5.2:listing", "quux", "7994 quux-1")
			u.files("sub/quux-2")
			u.finds("5.2:listing", "quux", "7994 quux-1", "7990 sub/quux-2")
			u.shell("cd " + u.rel + " && mv quux-1 other && rm sub/quux-2")
			u.finds("5.2:listing", "quux")
			u.files("again/quux-3")
			u.finds("5.2:listing", "quux", "7988 again/quux-3")
		}),
		search.settled("search/odd-names", "5.2", "Names with blanks, quotes and characters of any kind are found", func(u *user) {
			u.files("quux a.txt", `quux"b"`, "quux-ü-€", `quux\c`, "quux[d]")
			u.finds("5.2:listing", "quux", `7994 quux\c`, `7993 quux"b"`, "7993 quux[d]", "7992 quux-ü-€", "7990 quux a.txt")
		}),
	}
}

// search searches the user's directory and returns the result, held against what
// is true of any.
func (u *user) search(rule, query string, limit *int64) *Frame {
	id := u.id("search")
	from := len(u.log)
	u.do(rule, &contracts.UtilityFileSearch{SearchID: id, Query: query, Cwd: new(u.rel), Limit: limit})
	f := u.await(rule, from, message("utility_file_search_results").with("search_id", id))
	u.s.require(f.str("query") == strings.TrimSpace(query) && f.str("cwd") == u.home,
		rule, "expected results for %q in %s, got %s", strings.TrimSpace(query), u.home, abridge(f.Raw, maxTraceText))
	return f
}

// found renders results as lines of a score and a path.
func found(f *Frame) []string {
	var list []string
	for _, r := range listOf(f, "results") {
		list = append(list, show(r["score"])+" "+textOf(r, "path"))
	}
	return list
}

// finds fails unless a query finds exactly the files given, with their scores and
// in their order. It asks again for a while: files may have been made just now.
func (u *user) finds(rule, query string, want ...string) {
	u.s.until(rule, fmt.Sprintf("%q to find %q", query, want), func() (bool, string) {
		f := u.search(rule, query, nil)
		return slices.Equal(found(f), want) && f.at("truncated") == false, fmt.Sprintf("%q", found(f))
	})
}

// files has a command make files in the user's directory.
func (u *user) files(names ...string) {
	var script strings.Builder
	script.WriteString("cd " + u.rel)
	for _, name := range names {
		if at := strings.LastIndexByte(name, '/'); at > 0 {
			script.WriteString(" && mkdir -p '" + name[:at] + "'")
		}
		script.WriteString(" && echo " + "text > '" + name + "'")
	}
	u.shell(script.String())
}

// counts fails unless a query finds so many files, and says whether there are
// more. Of equals the first by name are shown.
func (u *user) counts(query string, limit *int64, want int, truncated bool) {
	u.s.until("R95", fmt.Sprintf("%d results in order for %q with limit %s, truncated %t", want, query, show(limit), truncated), func() (bool, string) {
		f := u.search("R95", query, limit)
		list := listOf(f, "results")
		ordered := slices.IsSortedFunc(list, func(a, b map[string]any) int { return strings.Compare(textOf(a, "path"), textOf(b, "path")) })
		return len(list) == want && ordered && f.at("truncated") == truncated, fmt.Sprintf("%d, truncated %s", len(list), show(f.at("truncated")))
	})
}

// findsBelow fails unless a search of a directory, which the server calls told,
// has right results. It asks again for a while: files may have been made just now.
func (u *user) findsBelow(rule string, cwd *string, query, told string, right func([]string) bool) {
	u.s.until(rule, fmt.Sprintf("%q to find the files below %s", query, told), func() (bool, string) {
		id, from := u.id("search"), len(u.log)
		u.do("R95", &contracts.UtilityFileSearch{SearchID: id, Query: query, Cwd: cwd})
		got := found(u.await("R95", from, message("utility_file_search_results").with("search_id", id).with("cwd", told)))
		return right(got), fmt.Sprintf("%q", got)
	})
}
