package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// files judges how found files are ranked, which files a search looks at, what is shown
// of a file, and which files are not read: 5.2, 5.3, R94 to R98.
func files() []Scenario {
	search := anywhere(contracts.OperationFileSearch)
	read := anywhere(contracts.OperationFileRead)
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
			u.in("i=100; while [ $i -lt 620 ]; do : > quux$i; i=$((i+1)); done && for i in 0 1 2 3 4; do : > zed$i; done")
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
				f := u.search("R95", query, nil)
				u.s.failIf(len(listOf(f, "results")) != 0 || f.at("truncated") != false,
					"R95", "expected nothing for a blank query, got %s", abridge(f.Raw, maxTraceText))
			}
			u.finds("R95:ranking", "  quux\t", "9996 quux")
		}),
		search.settled("search/hidden", "5.2", "Hidden files are found, those of version control are not", func(u *user) {
			u.files(".quux", ".dir/quux", ".git/quux", "sub/.git/quux")
			u.finds("5.2:listing", "quux", "9991 .dir/quux", "6985 .quux")
		}),
		search.settled("search/ignored", "5.2", "What ignore files name is not found, unless a later rule takes it back", func(u *user) {
			u.files("quux.out", "quux.keep.out", "sub/quux.tmp", "sub/deep/quux.tmp", "quux-dir/file", "sub/quux.txt", "node_modules/quux")
			u.in(`printf '%s\n' '*.out' '!*.keep.out' 'quux-dir/' 'node_modules/' '# quux.txt' > .gitignore && printf '%s\n' '/quux.tmp' > sub/.gitignore`)
			u.finds("5.2:listing", "quux", "7988 sub/quux.txt", "7987 quux.keep.out", "7983 sub/deep/quux.tmp")
		}),
		search.settled("search/links", "5.2", "Links to directories are not followed", func(u *user) {
			u.files("real/quux-inside")
			u.in("ln -s real quux-link && ln -s / quux-all && ln -s . quux-loop")
			u.s.until("5.2:listing", "real/quux-inside to be found", func() (bool, string) {
				list := listOf(u.search("5.2:listing", "quux-inside", nil), "results")
				for _, r := range list {
					path := textOf(r, "path")
					u.s.failIf(path != "real/quux-inside", "5.2:listing", "expected no file behind a link, got %s", path)
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
			u.in("mv quux-1 other && rm sub/quux-2")
			u.finds("5.2:listing", "quux")
			u.files("again/quux-3")
			u.finds("5.2:listing", "quux", "7988 again/quux-3")
		}),
		search.settled("search/odd-names", "5.2", "Names with blanks, quotes and characters of any kind are found", func(u *user) {
			u.files("quux a.txt", `quux"b"`, "quux-ü-€", `quux\c`, "quux[d]")
			u.finds("5.2:listing", "quux", `7994 quux\c`, `7993 quux"b"`, "7993 quux[d]", "7992 quux-ü-€", "7990 quux a.txt")
		}),
		read.settled("read/window", "R96", "A read shows the lines asked for, and says what is left", func(u *user) {
			u.shell("printf 'one\\ntwo\\nthree\\nfour\\n' > " + u.rel + "/f")
			u.reads("R96", u.lines("f", 2, 2), window{"two\nthree", 2, 3, 4, true})
			u.reads("R96", u.lines("f", 1, 1), window{"one", 1, 1, 4, true})
			u.reads("R96", u.lines("f", 3, 2), window{"three\nfour", 3, 4, 4, false})
			u.reads("R96", u.lines("f", 4, 100), window{"four", 4, 4, 4, false})
			u.reads("R96", u.all("f"), window{"one\ntwo\nthree\nfour", 1, 4, 4, false})
		}),
		read.settled("read/limit", "R96", "400 lines by default, at least 1, at most 2,000; the first line is 1", func(u *user) {
			u.shell("seq 1 2500 > " + u.rel + "/f")
			u.reads("R96", u.all("f"), window{numbers(1, 400), 1, 400, 2500, true})
			u.reads("R96", u.lines("f", 1, 100_000), window{numbers(1, 2000), 1, 2000, 2500, true})
			u.reads("R96", u.lines("f", 1, 2000), window{numbers(1, 2000), 1, 2000, 2500, true})
			u.reads("R96", u.lines("f", 501, 2001), window{numbers(501, 2500), 501, 2500, 2500, false})
			for _, limit := range []int64{0, -3} {
				u.reads("R96", u.lines("f", 7, limit), window{"7", 7, 7, 2500, true})
			}
			for _, offset := range []int64{0, -9} {
				u.reads("R96", u.lines("f", offset, 2), window{"1\n2", 1, 2, 2500, true})
			}
			u.reads("R96", contracts.UtilityFileRead{Path: u.rel + "/f", Offset: new(int64(2300))}, window{numbers(2300, 2500), 2300, 2500, 2500, false})
		}),
		read.settled("read/line-ends", "R96", "CRLF becomes LF, and a last line end begins no line", func(u *user) {
			u.in(`printf 'a\r\nb\r\n' > crlf && printf 'a\nb' > open && printf 'a\n\n\n' > blank && printf 'a\rb\r\n' > cr && printf '\r\nx' > first && printf '\n' > one`)
			u.reads("R96", u.all("crlf"), window{"a\nb", 1, 2, 2, false})
			u.reads("R96", u.all("open"), window{"a\nb", 1, 2, 2, false})
			u.reads("R96", u.all("blank"), window{"a\n\n", 1, 3, 3, false})
			u.reads("R96", u.all("cr"), window{"a\rb", 1, 1, 1, false})
			u.reads("R96", u.all("first"), window{"\nx", 1, 2, 2, false})
			u.reads("R96", u.lines("blank", 2, 1), window{"", 2, 2, 3, true})
			u.reads("R96", u.all("one"), window{"", 0, 0, 0, false})
		}),
		read.settled("read/empty", "5.3", "An empty file has no lines", func(u *user) {
			u.shell(": > " + u.rel + "/f")
			u.reads("5.3", u.all("f"), window{})
			u.reads("5.3", u.lines("f", 1, 10), window{})
		}),
		read.settled("read/characters", "5.3", "A byte-order mark is taken away, and bytes that are not UTF-8 are replaced", func(u *user) {
			u.in(`printf '\357\273\277bom\357\273\277\n' > bom && printf 'a\377b\300\257\nc\303' > bad && printf 'é€\360\237\232\200' > good`)
			u.reads("5.3", u.all("bad"), window{"a\ufffdb\ufffd\ufffd\nc\ufffd", 1, 2, 2, false})
			u.reads("5.3", u.all("good"), window{"é€🚀", 1, 1, 1, false})
			u.reads("5.3:mark", u.all("bom"), window{"bom\ufeff", 1, 1, 1, false})
		}),
		read.settled("read/paths", "5.3", "A result names the file absolutely and relative to the directory given", func(u *user) {
			u.files("sub/deep/f", "..odd/..name")
			for _, c := range []struct {
				path, cwd, relative, base, file string
			}{
				{u.rel + "/sub/deep/f", "", u.rel + "/sub/deep/f", u.root, "sub/deep/f"},
				{u.home + "/sub/deep/f", "", u.rel + "/sub/deep/f", u.root, "sub/deep/f"},
				{"deep/f", u.rel + "/sub", "deep/f", u.home + "/sub", "sub/deep/f"},
				{"./deep/../deep/f", u.home + "/sub", "deep/f", u.home + "/sub", "sub/deep/f"},
				{u.home + "/sub/deep/f", u.rel + "/sub", "deep/f", u.home + "/sub", "sub/deep/f"},
				{"..odd/..name", u.rel, "..odd/..name", u.home, "..odd/..name"},
			} {
				cmd := contracts.UtilityFileRead{Path: c.path}
				if c.cwd != "" {
					cmd.Cwd = &c.cwd
				}
				f := u.read("5.3", cmd)
				u.s.failIf(f.str("path") != u.home+"/"+c.file || f.str("relative_path") != c.relative || f.str("cwd") != c.base,
					"5.3", "%s in %q: expected path %s, relative_path %s and cwd %s, got %s", c.path, c.cwd, u.home+"/"+c.file, c.relative, c.base, abridge(f.Raw, maxTraceText))
			}
		}),
		read.settled("read/links", "R94 5.3", "A link inside the workspace is read, one that leads out is not", func(u *user) {
			u.files("real/f")
			u.in("ln -s real dir && ln -s real/f file && ln -s / all && ln -s /etc/hostname secret && ln -s nowhere broken && ln -s /conformance/nowhere gone")
			for _, name := range []string{"dir/f", "file", "real/f"} {
				u.reads("5.3", u.all(name), window{"text", 1, 1, 1, false})
			}
			for _, name := range []string{"all/etc/hostname", "all/no/such/file", "secret", "gone"} {
				id := u.id("out")
				u.denied(&contracts.UtilityFileRead{ReadID: id, Path: u.rel + "/" + name}, outsideRefusal("R94", id))
			}
			u.denied(&contracts.UtilityFileRead{ReadID: "broken", Path: u.rel + "/broken"}, refusal{rule: "5.3", id: "broken"})
		}),
		read.settled("read/fresh", "R96", "A read shows the file as it is now", func(u *user) {
			u.files("f")
			u.reads("R96", u.all("f"), window{"text", 1, 1, 1, false})
			u.shell("printf 'new\\nlines' > " + u.rel + "/f")
			u.reads("R96", u.all("f"), window{"new\nlines", 1, 2, 2, false})
		}),
		read.settled("read/long-line", "5.3", "A long line does not keep the others from being read", func(u *user) {
			u.in("{ echo before; head -c 100000 /dev/zero | tr '\\0' x; echo; head -c 1500000 /dev/zero | tr '\\0' y; echo; echo after; } > f")
			u.reads("5.3", u.lines("f", 1, 2), window{"before\n" + strings.Repeat("x", 100_000), 1, 2, 4, true})
			u.reads("5.3", u.lines("f", 4, 2), window{"after", 4, 4, 4, false})
			f := u.read("5.3:long", u.lines("f", 3, 1))
			if got := f.str("content"); !strings.HasPrefix(got, "yyyy") || strings.Trim(got, "y") == "" || len(got) > 1<<20+1000 {
				u.s.fail("5.3:long", "expected a line of 1500000 bytes to be cut with a marker, got %d bytes that end in %s", len(got), show(got[max(0, len(got)-40):]))
			}
		}),
		read.settled("read/beyond", "R97 5.3", "An offset beyond the last line is refused", func(u *user) {
			u.in("printf 'a\\nb\\nc\\n' > f && : > empty")
			u.unread("5.3", "Offset 4 is beyond end of file (3 lines total)", u.lines("f", 4, 10))
			u.unread("5.3", "Offset 100000 is beyond end of file (3 lines total)", u.lines("f", 100_000, 10))
			u.unread("5.3", "Offset 2 is beyond end of file (0 lines total)", u.lines("empty", 2, 10))
			u.reads("5.3", u.lines("f", 3, 10), window{"c", 3, 3, 3, false})
		}),
		read.settled("read/missing", "R97", "A file that is not there is not found, and the refusal names the request", func(u *user) {
			u.files("f")
			u.unread("R97", "File not found: "+u.home+"/none", u.all("none"))
			u.unread("R97", "File not found: "+u.home+"/no/such/dir", contracts.UtilityFileRead{Path: "no/such/dir", Cwd: &u.rel})
			u.denied(&contracts.UtilityFileRead{ReadID: "once", Path: u.rel + "/none"}, refusal{rule: "R97", id: "once"})
			u.still("R97", len(u.log), toolError)
		}),
		read.settled("read/binary", "R98", "A file with NUL in its first 2,048 bytes is refused", func(u *user) {
			u.in("zeros() { head -c $1 /dev/zero | tr '\\0' x; } && { zeros 2047; printf '\\000y'; } > early && { zeros 2048; printf '\\000y'; } > late && printf '\\000' > nul")
			for _, name := range []string{"early", "nul"} {
				u.unread("R98", "utility_file_read only supports text files: "+u.rel+"/"+name, u.all(name))
			}
			u.reads("R98", u.all("late"), window{strings.Repeat("x", 2048) + "\x00y", 1, 1, 1, false})
		}),
		read.settled("read/too-large", "R98", "A file of more than 2,097,152 bytes is refused, one of as many is not", func(u *user) {
			const limit = 2_097_152
			u.shell(fmt.Sprintf("cd %s && yes 1234567890abcde | head -c %d > fits && { cat fits; echo; } > large", u.rel, limit))
			u.unread("R98", fmt.Sprintf("File size exceeds maximum allowed limit: %s/large (%d bytes, max: %d bytes)", u.home, limit+1, limit), u.all("large"))
			u.reads("R98", u.lines("fits", limit/16, 5), window{"1234567890abcde", limit / 16, limit / 16, limit / 16, false})
		}),
		read.settled("read/regular", "5.3", "Directories and pipes are refused, at once", func(u *user) {
			u.in("mkdir dir && mkfifo pipe && ln -s dir link && ln -s pipe tube")
			const text = "utility_file_read only supports regular files: "
			for _, name := range []string{"dir", "pipe"} {
				u.unread("5.3:regular", text+u.home+"/"+name, u.all(name))
			}
			for _, name := range []string{"link", "tube"} {
				id := u.id("read")
				u.denied(&contracts.UtilityFileRead{ReadID: id, Path: u.rel + "/" + name}, refusal{rule: "5.3:regular", prefix: text, id: id})
			}
		}),
		read.settled("read/traversal", "R94 R97", "A path that leaves the directory given is refused, inside the workspace too", func(u *user) {
			u.files("sub/f", "secret")
			u.unread("R94", "Path traversal detected: "+u.home+"/secret", contracts.UtilityFileRead{Path: "../secret", Cwd: new(u.rel + "/sub")})
			u.unread("R94", "Path traversal detected: "+u.home+"/secret", contracts.UtilityFileRead{Path: u.home + "/secret", Cwd: new(u.rel + "/sub")})
			u.unread("R94", "Path traversal detected: "+u.home+"/none", contracts.UtilityFileRead{Path: "../none", Cwd: new(u.rel + "/sub")})
			for _, path := range []string{"../../../../../../../../../../etc/hostname", "/etc/hostname", u.root + "x/f", u.rel + "/../../" + u.rel} {
				id := u.id("read")
				u.denied(&contracts.UtilityFileRead{ReadID: id, Path: path}, refusal{rule: "R94", prefix: "Path traversal detected: ", names: "outside workspace root", id: id, code: contracts.CodeWorkspaceViolation})
			}
			u.reads("R94", contracts.UtilityFileRead{Path: "../sub/f", Cwd: new(u.rel + "/sub")}, window{"text", 1, 1, 1, false})
		}),
		read.settled("read/outside", "R94 R97", "A directory outside the workspace is refused", func(u *user) {
			for _, cwd := range u.ways() {
				id := u.id("out")
				u.denied(&contracts.UtilityFileRead{ReadID: id, Path: "f", Cwd: &cwd}, outsideRefusal("R94", id))
			}
			u.none("R94", 0, message("utility_file_read_result"))
		}),
		// readNotReadable says nothing about a server that may read everything.
		read.settled("read/not-readable", "R97", "A file that the server may not read is refused", func(u *user) {
			u.files("f")
			u.shell("chmod 000 " + u.rel + "/f")
			if u.shell("test -r "+u.rel+"/f && echo all || echo some") == "some\n" {
				u.unread("R97", "File not readable: "+u.home+"/f", u.all("f"))
			}
			u.shell("chmod 600 " + u.rel + "/f")
			u.reads("R97", u.all("f"), window{"text", 1, 1, 1, false})
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
	u.s.failIf(f.str("query") != strings.TrimSpace(query) || f.str("cwd") != u.home,
		rule, "expected results for %q in %s, got %s", strings.TrimSpace(query), u.home, abridge(f.Raw, maxTraceText))
	return f
}

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
		ordered := true
		for i := 1; i < len(list); i++ {
			ordered = ordered && textOf(list[i-1], "path") < textOf(list[i], "path")
		}
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

// A window is what a result shows of a file.
type window struct {
	content            string
	first, last, lines int
	truncated          bool
}

func (u *user) read(rule string, cmd contracts.UtilityFileRead) *Frame {
	cmd.ReadID = u.id("read")
	from := len(u.log)
	u.do(rule, &cmd)
	return u.await(rule, from, message("utility_file_read_result").with("read_id", cmd.ReadID))
}

func (u *user) reads(rule string, cmd contracts.UtilityFileRead, w window) {
	u.s.shows(rule, u.read(rule, cmd), fields{"start_line": w.first, "end_line": w.last, "total_lines": w.lines, "truncated": w.truncated, "content": w.content})
}

func (u *user) lines(name string, offset, limit int64) contracts.UtilityFileRead {
	return contracts.UtilityFileRead{Path: u.rel + "/" + name, Offset: &offset, Limit: &limit}
}

func (u *user) all(name string) contracts.UtilityFileRead {
	return contracts.UtilityFileRead{Path: u.rel + "/" + name}
}

// numbers are the lines from first to last, as a result has them.
func numbers(first, last int) string {
	var list []string
	for i := first; i <= last; i++ {
		list = append(list, strconv.Itoa(i))
	}
	return strings.Join(list, "\n")
}

func (u *user) unread(rule, text string, cmd contracts.UtilityFileRead) {
	cmd.ReadID = u.id("read")
	from := len(u.log)
	u.denied(&cmd, refusal{rule: rule, text: text, id: cmd.ReadID})
	u.none(rule, from, message("utility_file_read_result"))
}
