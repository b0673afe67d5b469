package conformance

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// reads judges what is shown of a file, and which files are not read: 5.3, R94, R96,
// R97, R98.
func reads() []Scenario {
	read := anywhere(contracts.OperationFileRead)
	return []Scenario{
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
			u.shell("cd " + u.rel + ` && printf 'a\r\nb\r\n' > crlf && printf 'a\nb' > open && printf 'a\n\n\n' > blank && printf 'a\rb\r\n' > cr && printf '\r\nx' > first && printf '\n' > one`)
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
			u.shell("cd " + u.rel + ` && printf '\357\273\277bom\357\273\277\n' > bom && printf 'a\377b\300\257\nc\303' > bad && printf 'é€\360\237\232\200' > good`)
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
				u.s.require(f.str("path") == u.home+"/"+c.file && f.str("relative_path") == c.relative && f.str("cwd") == c.base,
					"5.3", "%s in %q: expected path %s, relative_path %s and cwd %s, got %s", c.path, c.cwd, u.home+"/"+c.file, c.relative, c.base, abridge(f.Raw, maxTraceText))
			}
		}),
		read.settled("read/links", "R94 5.3", "A link inside the workspace is read, one that leads out is not", func(u *user) {
			u.files("real/f")
			u.shell("cd " + u.rel + " && ln -s real dir && ln -s real/f file && ln -s / all && ln -s /etc/hostname secret && ln -s nowhere broken && ln -s /conformance/nowhere gone")
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
			u.shell("cd " + u.rel + " && { echo before; head -c 100000 /dev/zero | tr '\\0' x; echo; head -c 1500000 /dev/zero | tr '\\0' y; echo; echo after; } > f")
			u.reads("5.3", u.lines("f", 1, 2), window{"before\n" + strings.Repeat("x", 100_000), 1, 2, 4, true})
			u.reads("5.3", u.lines("f", 4, 2), window{"after", 4, 4, 4, false})
			f := u.read("5.3:long", u.lines("f", 3, 1))
			if got := f.str("content"); !strings.HasPrefix(got, "yyyy") || strings.Trim(got, "y") == "" || len(got) > 1<<20+1000 {
				u.s.fail("5.3:long", "expected a line of 1500000 bytes to be cut with a marker, got %d bytes that end in %s", len(got), show(got[max(0, len(got)-40):]))
			}
		}),
		read.settled("read/beyond", "R97 5.3", "An offset beyond the last line is refused", func(u *user) {
			u.shell("cd " + u.rel + " && printf 'a\\nb\\nc\\n' > f && : > empty")
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
			u.shell("cd " + u.rel + " && zeros() { head -c $1 /dev/zero | tr '\\0' x; } && { zeros 2047; printf '\\000y'; } > early && { zeros 2048; printf '\\000y'; } > late && printf '\\000' > nul")
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
			u.shell("cd " + u.rel + " && mkdir dir && mkfifo pipe && ln -s dir link && ln -s pipe tube")
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

// A window is what a result shows of a file.
type window struct {
	content            string
	first, last, lines int
	truncated          bool
}

// read reads a file and returns the result.
func (u *user) read(rule string, cmd contracts.UtilityFileRead) *Frame {
	cmd.ReadID = u.id("read")
	from := len(u.log)
	u.do(rule, &cmd)
	return u.await(rule, from, message("utility_file_read_result").with("read_id", cmd.ReadID))
}

// reads fails unless a read shows what it should.
func (u *user) reads(rule string, cmd contracts.UtilityFileRead, w window) {
	u.s.holds(rule, u.read(rule, cmd), fields{"start_line": w.first, "end_line": w.last, "total_lines": w.lines, "truncated": w.truncated, "content": w.content})
}

// lines asks for lines of a file of the user's.
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

// unread expects a read to be refused.
func (u *user) unread(rule, text string, cmd contracts.UtilityFileRead) {
	cmd.ReadID = u.id("read")
	from := len(u.log)
	u.denied(&cmd, refusal{rule: rule, text: text, id: cmd.ReadID})
	u.none(rule, from, message("utility_file_read_result"))
}
