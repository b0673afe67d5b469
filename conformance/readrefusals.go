package conformance

import (
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// readRefusals judges which files are not read: 5.3, R94, R97, R98.
func readRefusals() []Scenario {
	read := anywhere(contracts.OperationFileRead)
	return []Scenario{
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

// unread expects a read to be refused.
func (u *user) unread(rule, text string, cmd contracts.UtilityFileRead) {
	cmd.ReadID = u.id("read")
	from := len(u.log)
	u.denied(&cmd, refusal{rule: rule, text: text, id: cmd.ReadID})
	u.none(rule, from, message("utility_file_read_result"))
}
