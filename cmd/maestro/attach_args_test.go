package main

import (
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/show"
)

// put returns what is shown of an approval with these arguments, without the
// first and the last line.
func put(args string, all bool) string {
	q := question{id: "q", kind: contracts.RequestApproval, tool: "tool", args: raw(args)}
	text := q.text("last", all)
	return strings.TrimSuffix(text[strings.Index(text, "\n")+1:], "  last")
}

func TestWhatIsApprovedIsShownWhole(t *testing.T) {
	long := "echo " + strings.Repeat("a", 1500) + " && rm -rf /important"
	for _, test := range []struct{ name, args, want string }{
		{"a long command", `{"command":"` + long + `"}`, "  $ " + long + "\n"},
		{"lines and spaces", `{"command":"echo 1\necho 'a   b'\n"}`, "  $ echo 1\n    echo 'a   b'\n"},
		{"beside a command", `{"command":"make","cwd":"/","env":{"A":"1"}}`, "  $ make\n  cwd: /\n  env: {\"A\":\"1\"}\n"},
		{"another spelling", `{"command":"ls","Command":"rm -rf /"}`, "  $ ls\n  Command: rm -rf /\n"},
		{"a command that is no text", `{"command":["sh","-c","ls"]}`, "  command: [\"sh\",\"-c\",\"ls\"]\n"},
		{"a write", `{"content":"one\n  two\n","path":"a/b.txt"}`, "  path: a/b.txt\n  content:\n    | one\n    |   two\n"},
		{"an edit", `{"new_string":"a\nB\nc","old_string":"a\nb\nc","path":"x.go","replace_all":true}`,
			"  path: x.go\n  replace_all: true\n    a\n  - b\n  + B\n    c\n"},
		{"an edit that makes a file", `{"new_string":"a","old_string":"","path":"x"}`, "  path: x\n  + a\n"},
		{"an edit with half of it", `{"new_string":"a","path":"x"}`, "  path: x\n  new_string: a\n"},
		{"spaces at the ends", `{"a":" x","b":""}`, "  a: \" x\"\n  b: \"\"\n"},
		{"no object", `"text"`, "  \"text\"\n"},
		{"nothing", ``, ""},
		{"an empty command", `{"command":""}`, "  $ \n"},
		{"what cannot be seen", `{"command":"a\u001b[2Kb\u0008\u202ec\u200bd\u009b\re"}`, "  $ a\\x1b[2Kb\\b\\u202ec\\u200bd\\u009b\\re\n"},
		{"a name with lines", `{"a\n  $ ls":"x"}`, "  a⏎  $ ls: x\n"},
		{"of an agent that tells more", `{"host":"h","_acp":{"title":"Change it","kind":"edit","locations":[{"path":"/c.json","line":3}],"diff":"-a\n+b\n","omitted_bytes":7}}`,
			"  Change it\n  at /c.json:3\n  (7 bytes are too much to be shown)\n  host: h\n  -a\n  +b\n"},
		{"a difference that is not what is written", `{"content":"evil","path":"a","_acp":{"title":"Edit a","diff":"+good\n"}}`,
			"  Edit a\n  path: a\n  content: evil\n  +good\n"},
		{"a difference told twice", `{"diff":"Index: c.json\n====\n--- c.json\tOld\n+++ c.json\tNew\n@@ -1,1 +1,1 @@\n-a\n+b\n","path":"/srv/c.json","_acp":{"locations":[{"path":"/srv/c.json"}],"diff":"--- a/srv/c.json\n+++ b/srv/c.json\n@@ -1 +1 @@\n-a\n+b\n"}}`,
			"  at /srv/c.json\n  --- a/srv/c.json\n  +++ b/srv/c.json\n  @@ -1 +1 @@\n  -a\n  +b\n"},
		{"a difference of another file", `{"diff":"+++ d.json\n@@ -1 +1 @@\n+b\n","path":"c.json","_acp":{"diff":"@@ -1 +1 @@\n+b\n"}}`,
			"  path: c.json\n  @@ -1 +1 @@\n  +b\n  diff:\n    | +++ d.json\n    | @@ -1 +1 @@\n    | +b\n"},
		{"a difference with more in it", `{"diff":"+b\n+c","path":"c","_acp":{"diff":"+b\n"}}`,
			"  path: c\n  +b\n  diff:\n    | +b\n    | +c\n"},
		{"an edit told twice", `{"old_string":"a","new_string":"b","path":"c","_acp":{"diff":"@@ -1 +1 @@\n-a\n+b\n"}}`,
			"  path: c\n  @@ -1 +1 @@\n  -a\n  +b\n"},
		{"an edit told otherwise", `{"old_string":"a","new_string":"evil","path":"c","_acp":{"diff":"@@ -1 +1 @@\n-a\n+b\n"}}`,
			"  path: c\n  @@ -1 +1 @@\n  -a\n  +b\n  - a\n  + evil\n"},
		{"options", `{"_acp":{"title":"Do it","options":[{"id":"o","name":"Once","kind":"allow_once"},{"id":"n\u001b","name":"No","kind":"reject_once"}]}}`,
			"  Do it\n    1. Once (allow once, o)\n    2. No (reject once, n\\x1b)\n"},
		{"an odd extra", `{"_acp":7}`, "  _acp: 7\n"},
	} {
		if got := put(test.args, false); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

func TestOfVeryLongArgumentsBothEndsAreShown(t *testing.T) {
	for _, command := range []string{
		"begin" + strings.Repeat("x", 6000) + "end",
		"begin\\n" + strings.Repeat("x\\n", 100) + "end",
		"begin\\n" + strings.Repeat(strings.Repeat("x", 90)+"\\n", 100) + "end",
	} {
		args := `{"command":"` + command + `","_acp":{"options":[{"id":"o","name":"Once","kind":"allow_once"}]}}`
		got, all := put(args, false), put(args, true)
		if !strings.HasPrefix(got, "  $ begin") || !strings.Contains(got, "end\n    1. Once") || !strings.Contains(got, " characters more: /show shows all …\n") {
			t.Errorf("got\n%s\nwant both ends, how much is between, and the options", got)
		}
		if lines := strings.Count(got, "\n"); len(got) > show.MaxShown+500 || lines > show.MaxLines+3 {
			t.Errorf("got %d bytes and %d lines, want at most about %d and %d", len(got), lines, show.MaxShown, show.MaxLines)
		}
		if want := strings.Count(command, "x"); strings.Count(all, "x") != want {
			t.Errorf("all: got %d of %d", strings.Count(all, "x"), want)
		}
	}
}
