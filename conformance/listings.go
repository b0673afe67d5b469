package conformance

import (
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// listings judges which files a search looks at: 5.2, R94.
func listings() []Scenario {
	search := anywhere(contracts.OperationFileSearch)
	return []Scenario{
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
			deadline := time.Now().Add(u.s.config.Patience)
			for {
				seen := false
				for _, r := range listOf(u.search("5.2:listing", "quux-inside", nil), "results") {
					if path := textOf(r, "path"); path != "real/quux-inside" {
						u.s.fail("5.2:listing", "expected no file behind a link, got %s", path)
					}
					seen = true
				}
				if seen {
					return
				}
				if time.Now().After(deadline) {
					u.s.fail("5.2:listing", "expected real/quux-inside to be found, got nothing")
				}
				u.s.pause("5.2:listing", 50*time.Millisecond)
			}
		}),
		search.settled("search/directories", "5.2", "Files are found, directories are not", func(u *user) {
			u.files("quux/readme")
			u.shell("mkdir " + u.rel + "/quux-empty")
			u.finds("5.2:listing", "quux", "5989 quux/readme")
		}),
		search.settled("search/cwd", "R95 5.0", "A search is of the directory given, and paths are relative to it", func(u *user) {
			u.files("sub/quux", "sub/deep/quux", "quux")
			for _, cwd := range []string{u.rel + "/sub", u.home + "/sub"} {
				u.findsBelow(&cwd, "quux", u.home+"/sub", func(got []string) bool {
					return strings.Join(got, ", ") == "9996 quux, 9991 deep/quux"
				})
			}
			u.findsBelow(nil, u.rel+"/sub/deep/quux", u.root, func(got []string) bool {
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

// findsBelow fails unless a search of a directory, which the server calls told,
// has right results. It asks again for a while: files may have been made just now.
func (u *user) findsBelow(cwd *string, query, told string, right func([]string) bool) {
	deadline := time.Now().Add(u.s.config.Patience)
	for {
		id, from := u.id("search"), len(u.log)
		u.do("R95", &contracts.UtilityFileSearch{SearchID: id, Query: query, Cwd: cwd})
		got := found(u.await("R95", from, message("utility_file_search_results").with("search_id", id).with("cwd", told)))
		if right(got) {
			return
		}
		if time.Now().After(deadline) {
			u.s.fail("R95:ranking", "expected %q to find the files below %s, got %q", query, told, got)
		}
		u.s.pause("R95", 50*time.Millisecond)
	}
}
