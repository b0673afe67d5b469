package llm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func parsed(t testing.TB, allowed, asked, denied string) Rules {
	t.Helper()
	rules, err := ParseRules(lines(allowed), lines(asked), lines(denied))
	hosttest.Must(t, err)
	return rules
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, " + ")
}

func TestRulesDecideCommands(t *testing.T) {
	tests := []struct {
		allowed, asked, denied string
		line                   string
		want                   decision
	}{
		{"", "", "", "ls", undecided},
		{"bash", "", "", "ls", allow},
		{"*", "", "", "ls", allow},
		{"bash(*)", "", "", "a > b", allow},
		{"bash(git status:*)", "", "", "git status", allow},
		{"bash(git status:*)", "", "", "git status -s 'a b'", allow},
		{"bash(git status:*)", "", "", "git stat", undecided},
		{"bash(git status:*)", "", "", "git statusx", undecided},
		{"bash(git status:*)", "", "", "git -C x status", undecided},
		{"bash(git status:*)", "", "", "'git' \"status\"", allow},
		{"bash(git status:*)", "", "", "git $X", undecided},
		{"bash(git status:*)", "", "", "git status $X", allow},
		{"bash(git status:*)", "", "", "X=1 git status", undecided},
		{"bash(git status:*)", "", "", "/usr/bin/git status", undecided},
		{"bash(git status:*)", "", "", "sudo git status", undecided},
		{"bash(git status:*)", "", "", "read", undecided},
		{"bash(git status)", "", "", "git status", allow},
		{"bash(git status)", "", "", "  git status\n", allow},
		{"bash(git status)", "", "", "git status -s", undecided},
		{"bash(git status)", "", "", "git status && git  status", allow},

		// A line that is allowed is no other line that has its words once they are quoted.
		{"bash(rm -f # x)", "", "", "rm -f # x", allow},
		{"bash(rm -f # x)", "", "", "rm -f '#' x", undecided},
		{"bash(rm -f\nx)", "", "", "rm -f\nx", allow},
		{"bash(rm -f\nx)", "", "", "rm -f x", undecided},
		{"bash(xargs rm -f < x)", "", "", "xargs rm -f '<' x", undecided},
		{"bash(rm -f 'a b')", "", "", `rm -f "'a" "b'"`, undecided},
		{"bash(rm -f 'a b')", "", "", `rm -f "a b"`, allow},
		{"bash(rm -f 'a b')", "", "", "rm -f a b", undecided},
		{"bash(a; b)", "", "", "a ';' b", undecided},
		{"bash(ls $X)", "", "", "ls '$X'", undecided},
		{"bash(A=1 ls)", "", "", "'A=1' ls", undecided},
		{"bash('!' rm x)", "", "", "! rm x", undecided},
		{"bash(echo X=1)", "", "", "echo X=1 && echo  X=1", allow},
		{"bash", "", "bash(rm -f # x)", "rm -f '#' x", deny},

		// Every command of a line counts.
		{"bash(git status:*)", "", "", "git status && ls", undecided},
		{"bash(git status:*) + bash(ls:*)", "", "", "git status && ls | ls; ls\nls & ls", allow},
		{"bash(git status:*)", "", "", "git status $(rm x)", undecided},
		{"bash(git status:*)", "", "", "git status `rm x`", undecided},
		{"bash(git status:*) + bash(date:*)", "", "", "git status $(date)", allow},
		{"bash(git status:*)", "", "", "git status \"$(rm x)\"", undecided},
		{"bash(git status:*)", "", "", "git status '$(rm x)'", allow},
		{"bash(git status:*)", "", "", "git status > x", ask},
		{"bash(git status:*)", "", "", "git status 2>&1 >/dev/null", allow},
		{"bash(git status:*)", "", "", "(git status)", allow},
		{"bash(git status:*)", "", "", "git status <(rm x)", ask},
		{"bash(git status:*)", "", "", "git status; git() { rm x; }", ask},
		{"bash(git status:*)", "", "", "git status # x", allow},
		{"bash(git status:*)", "", "", "git status 'x", ask},
		{"bash(git status:*)", "", "", "", ask},
		{"bash(git status:*) + bash(git status)", "", "", "git status\r", ask},
		{"bash(git status:*) + bash(git status)", "", "", "git status\u00a0", undecided},
		{"bash(a && b > c)", "", "", "a && b > c", allow}, // to the letter

		// The strictest command decides, and the heaviest rule for each.
		{"bash", "", "bash(rm:*)", "ls", allow},
		{"bash", "", "bash(rm:*)", "rm x", deny},
		{"bash", "", "bash(rm:*)", "ls && rm x", deny},
		{"bash", "", "bash(rm:*)", "ls > x", ask},
		{"bash", "bash(git push:*)", "", "git push -f", ask},
		{"bash(rm -i:*)", "", "bash(rm:*)", "rm -i x", allow},
		{"bash(rm:*)", "", "bash(rm:*)", "rm x", deny},
		{"bash(rm:*)", "bash(rm:*)", "", "rm x", ask},
		{"bash(git status:*)", "", "bash", "git status", allow},
		{"bash(git status:*)", "", "bash", "git status && x", deny},
		{"bash", "", "*", "x", allow},
		{"", "", "read", "x", undecided},

		// What denies looks behind what runs others.
		{"bash", "", "bash(rm:*)", "/bin/rm x", deny},
		{"bash", "", "bash(rm:*)", `\rm x`, deny},
		{"bash", "", "bash(rm:*)", "'r'm x", deny},
		{"bash", "", "bash(rm:*)", "A=1 B=2 rm x", deny},
		{"bash", "", "bash(rm:*)", "sudo -u root rm x", deny},
		{"bash", "", "bash(rm:*)", "env A=1 rm x", deny},
		{"bash", "", "bash(rm:*)", "ls | xargs -n 1 rm", deny},
		{"bash", "", "bash(rm:*)", "find . -exec rm {} +", deny},
		{"bash", "", "bash(rm:*)", "sh -c 'ls; rm x'", deny},
		{"bash", "", "bash(rm:*)", "sudo bash -lc \"ls && rm x\"", deny},
		{"bash", "", "bash(rm:*)", "eval rm x", deny},
		{"bash", "", "bash(rm:*)", "eval 'rm x'", deny},
		{"bash", "", "bash(rm:*)", "if true; then rm x; fi", deny},
		{"bash", "", "bash(rm:*)", "for a in b; do rm $a; done", deny},
		{"bash", "", "bash(rm:*)", "{ rm x; }", deny},
		{"bash", "", "bash(rm:*)", "(rm x)", deny},
		{"bash", "", "bash(rm:*)", "! rm x", deny},
		{"bash", "", "bash(rm:*)", "echo $(rm x)", deny},
		{"bash", "", "bash(rm:*)", "echo \"`rm x`\"", deny},
		{"bash", "", "bash(rm:*)", "cat <(rm x)", deny},
		{"bash", "", "bash(rm:*)", "echo ${A:-$(rm x)}", deny},
		{"bash", "", "bash(rm:*)", "a\nrm x", deny},
		{"bash", "", "bash(rm:*)", "git commit -m 'rm x'", allow},
		{"bash", "", "bash(rm:*)", "echo rm", allow},
		{"bash", "", "bash(rm:*)", "echo 'rm x", ask},

		// And looks before what it skips.
		{"bash", "", "bash(AWS_PROFILE=prod *)", "AWS_PROFILE=prod aws s3 rm x", deny},
		{"bash", "", "bash(AWS_PROFILE=prod aws:*)", "AWS_PROFILE=prod aws s3 rm x", deny},
		{"bash", "", "bash(AWS_PROFILE=prod aws:*)", "time A=1 AWS_PROFILE=prod aws s3", deny},
		{"bash", "", "bash(AWS_PROFILE=prod aws:*)", "AWS_PROFILE=test aws s3", allow},
		{"bash", "", "bash(AWS_PROFILE=prod aws:*)", "AWS_PROFILE=$X aws s3", ask},
		{"bash", "", "bash(AWS_PROFILE=prod *)", "AWS_PROFILE=$X aws s3", ask},
		{"bash", "", "bash(rm:*) + bash(rm*)", "A=$X B=$(pwd) make", allow},
		{"bash", "", "bash(rm:*)", "$(echo 'rm ')A=1 x", ask},
		{"bash", "", "bash(rm:*)", `"$X"=1 x`, ask},
		{"bash", "", "bash(rm:*)", "sh -c A=$X", ask},
		{"bash", "", "bash(gcc:*) + bash(gcc *)", "CC=/usr/bin/gcc make", allow},
		{"bash", "", "bash(gcc:*) + bash(gcc *)", "env CC=gcc make", allow},
		{"bash", "", "bash(time make:*)", "time make all", deny},
		{"bash", "", "bash(time make:*)", "make all", allow},

		// And into the lines that programs are given.
		{"bash", "", "bash(git push:*)", "watch -n1 'git push'", deny},
		{"bash", "", "bash(git push:*)", "su -c 'git push' root", deny},
		{"bash", "", "bash(git push:*)", "su --command='git push'", deny},
		{"bash", "", "bash(git push:*)", "env -S 'git push'", deny},
		{"bash", "", "bash(git push:*)", "env -S'A=1 git push'", deny},
		{"bash", "", "bash(git push:*)", "flock /tmp/l -c 'git push'", deny},
		{"bash", "", "bash(git push:*)", "parallel 'git push' ::: a", deny},
		{"bash", "", "bash(git push:*)", "sudo watch 'ls; git push'", deny},
		{"bash", "", "bash(git push:*)", "watch 'git status'", allow},
		{"bash", "", "bash(rm:*)", "sudo env A=1 nice timeout 5 go test -run 'a b' -count 1 ./a ./b ./c ./d ./e ./f", allow},

		// The line itself comes first.
		{"bash(make)", "", "bash(make:*)", "make", allow},
		{"bash(make)", "", "bash(make:*)", "make all", deny},

		// What the shell decides may be what is denied, and is not more than is allowed.
		{"bash(ls:*)", "", "", "ls *.go", allow},
		{"bash(ls:*)", "", "bash(rm:*)", "ls *.go {a,b} ~ $X", allow},
		{"bash(ls:*)", "", "bash(ls -R:*)", "ls *.go", ask},
		{"bash(git status:*)", "", "", "git {status,push}", undecided},
		{"bash(git status:*)", "", "", "git sta*", undecided},
		{"bash", "", "bash(git push:*)", "git {push,-f}", ask},
		{"bash", "", "bash(git push:*)", "git pus[h]", ask},
		{"bash", "", "bash(git push:*)", "git p?sh", ask},
		{"bash", "", "bash(git push:*)", "git $X", ask},
		{"bash", "", "bash(git push:*)", `git "$X"`, ask},
		{"bash", "", "bash(git push:*)", "git $(echo push)", ask},
		{"bash", "", "bash(git push:*)", "git `echo push`", ask},
		{"bash", "", "bash(git push:*)", "git status *", allow},
		{"bash", "", "bash(git push:*)", "git 'p*' '{a,b}' \\*", allow},
		{"bash", "bash(rm:*)", "", "{rm,-r} x", ask},
		{"bash", "", "bash(rm:*)", "$X -r", ask},
		{"bash", "", "bash(rm:*)", "/bin/r*", ask},
		{"bash", "", "bash(rm:*)", "=rm x", ask},
		{"bash", "", "bash(rm:*)", "do$X x", ask},
		{"bash", "", "bash(rm:*)", "sudo $X", ask},
		{"bash", "", "bash(rm:*)", `sh -c "$X"`, ask},
		{"bash", "", "bash(rm:*)", `sh -c "$X; rm y"`, deny},
		{"bash", "", "bash(rm:*)", "rm $X", deny},
		{"bash", "", "bash(rm:*)", "{ rm x; }", deny},
		{"bash", "", "bash(rm:*)", "[ -f x ] && find . -exec ls {} +", allow},
		{"bash", "", "bash(rm -r *)", "cd x && rm -r *", deny},
		{"bash", "", "bash(rm -r x)", "rm -r $X", ask},
		{"bash", "", "bash(rm -r x)", "rm -r x $Y", ask},
		{"bash(rm -i:*)", "", "bash(rm:*)", "rm -i $X", allow}, // whatever it is
		{"", "", "bash(git push:*)", "git $X", ask},

		// With * a denial has the form of a command.
		{"bash", "", "bash(rm*)", "touch x; rm -f y", deny},
		{"bash", "", "bash(rm*)", "/bin/rmdir x", deny},
		{"bash", "", "bash(rm*)", "sudo sh -c 'ls; rm y'", deny},
		{"bash", "", "bash(rm*)", "r''m y", deny},
		{"bash", "", "bash(rm*)", "ls rm", allow},
		{"bash", "", "bash(rm*)", "ls *.go", allow},
		{"bash", "", "bash(rm*)", "ls $X", allow},
		{"bash", "", "bash(rm*)", "r* x", ask},
		{"bash", "", "bash(rm*)", "$X x", ask},
		{"bash", "", "bash(rm *)", "rm", deny},
		{"bash", "", "bash(rm  *)", "rm x", deny},
		{"bash", "", "bash(rm *)", "rmdir x", allow},
		{"bash", "", "bash(git * --force)", "git push origin --force", deny},
		{"bash", "", "bash(git * --force)", "git push --force origin", allow},
		{"bash", "", "bash(git * --force)", "git push $X", ask},
		{"bash", "", "bash(git * --force)", "ls $X", allow},
		{"bash", "", "bash(*secret*)", "cat a/secret/b", deny},
		{"bash", "", "bash(*secret*)", "cat $X", ask},
		{"bash", "bash(git push*)", "", "git push", ask},
		{"bash(git push:*)", "", "bash(git*)", "git push", allow}, // the longer pattern
		{"bash", "", "bash(rm:*)", "sudo " + strings.Repeat("sh ", 20_000) + "x", ask},

		// Heredocs, subshells, arithmetic, comments, loops and functions have commands like any other.
		{"bash(cat:*)", "", "", "cat <<E\nrm $X\nE\n", allow},
		{"bash(cat:*) + bash(git commit:*)", "", "", "git commit -m \"$(cat <<'EOF'\nit's (done);\nrm x\nEOF\n)\"", allow},
		{"bash(cat:*)", "", "", "cat <<E\n$(rm x)\nE\n", undecided},
		{"bash(cat:*)", "", "", "cat <<'E'\n$(rm x)\nE\n", allow},
		{"bash(cat:*)", "", "", "cat <<E\na\\\nE\nrm x\nE\n", ask},
		{"bash(cat:*)", "", "", "cat <<E\nx", ask},
		{"bash(cat:*)", "", "", "cat <<E > y\nx\nE\n", ask},
		{"bash(sh:*)", "", "", "sh <<E\nrm x\nE\n", undecided},
		{"bash(python)", "", "", "python  <<E\nprint(1)\nE\n", undecided}, // more than the line
		{"bash(python  <<E\n1\nE)", "", "", "python <<E\n2\nE", undecided},
		{"bash(ls:*) + bash(git status:*)", "", "", "(git status; ls) | ls", allow},
		{"bash(ls:*)", "", "", "(ls; rm x)", undecided},
		{"bash(ls:*)", "", "", "ls $((1 + 2 * (3 << 4)))", allow},
		{"bash(ls:*)", "", "", "ls $((x))", ask}, // which may be a[$(rm x)]
		{"bash(ls:*)", "", "", "ls $(($(rm x)))", ask},
		{"bash(ls:*)", "", "", "ls $[x]", ask},
		{"bash(ls:*)", "", "", "ls \"$[x]\"", ask},
		{"bash(ls:*)", "", "", "ls <<E\n$[x]\nE", ask},
		{"bash(ls:*)", "", "", "ls $\\\n[x]", ask},
		{"bash(ls:*)", "", "", "ls \"$\\\n(rm x)\"", ask},
		{"bash(ls:*)", "", "", "ls \\\\$'a' x", ask},
		{"bash(ls:*)", "", "", "ls # x\nls", allow},
		{"bash(ls:*)", "", "", "ls a#b; # rm x", allow},
		{"bash(ls:*)", "", "", "# x", ask},
		{"bash(ls:*)", "", "", "ls # \\\nrm x", ask},
		{"bash(ls:*)", "", "", "ls\n(# \\\nls)", ask},
		{"bash(ls:*)", "", "", "if ls; then ls; elif ls; then ls; else ls; fi", allow},
		{"bash(ls:*)", "", "", "if ls; then ls; else rm x; fi", undecided},
		{"bash(ls:*)", "", "", "for f in *.go 'a b'; do ls $f; done", allow},
		{"bash(ls:*)", "", "", "for PATH in x; do ls; done", ask},
		{"bash(ls:*)", "", "", "for f in $(rm x); do ls $f; done", undecided},
		{"bash(ls:*)", "", "", "while ls; do ls; done; until ls; do ls; done", allow},
		{"bash(ls:*)", "", "", "case $X in a|b) ls;; *) ls;; esac", allow},
		{"bash(ls:*)", "", "", "case $(rm x) in a) ls;; esac", undecided},
		{"bash(ls:*)", "", "", "! ls && { ls; } &", allow},
		{"bash(ls:*)", "", "", "ls ${X} ${X:-a} ${#X} ${X%.go}", allow},
		{"bash(ls:*)", "", "", "ls ${X:-$(rm x)}", undecided},
		{"bash(ls:*)", "", "", "ls ${X:=a} ${X@P} ${!X} ${X[1]} ${X:1}", ask},
		{"bash(ls:*)", "", "", "$X ls", undecided},
		{"bash(ls:*)", "", "", "f() { ls; }", ask},
		{"bash(ls:*)", "", "", "ls $'\\'' ; rm x #'", ask},
		{"bash(ls:*)", "", "", "if ls { rm x }; then ls; fi", ask}, // zsh
		{"bash(ls:*)", "", "", "((ls))", ask},
		{"bash(ls:*)", "", "", "ls $X[i] \"$X[i]\"", ask}, // zsh
		{"bash(ls:*)", "", "", "ls <<< x", allow},
		{"bash(ls:*)", "", "", "ls {fd}>x", ask},
		{"bash(ls:*)", "", "", "ls {PATH}>/dev/null; ls", ask},

		// What denies finds a command wherever it runs.
		{"bash", "", "bash(rm:*)", "taskset 1 rm x", deny},
		{"bash", "", "bash(rm:*)", "script -qc 'rm x'", deny},
		{"bash", "", "bash(rm:*)", "systemd-run rm x", deny},
		{"bash", "", "bash(rm:*)", "nsenter -t 1 rm x", deny},
		{"bash", "", "bash(rm:*)", "setpriv --reuid 1 rm x", deny},
		{"bash", "", "bash(rm:*)", "ssh host rm x", deny},
		{"bash", "", "bash(rm:*)", "time -p rm x", deny},
		{"bash", "", "bash(rm:*)", "coproc rm x", deny},
		{"bash", "", "bash(rm:*)", "repeat 3 rm x", deny},
		{"bash", "", "bash(rm:*)", "fd . -x rm", deny},
		{"bash", "", "bash(rm:*)", "alias ls='rm x'", deny},
		{"bash", "", "bash(rm:*)", "su --command=rm", deny},
		{"bash", "", "bash(rm:*)", "sh <<E\nls; rm x\nE", deny},
		{"bash", "", "bash(rm:*)", "bash <<< 'rm x'", deny},
		{"bash", "", "bash(rm:*)", "cat <<'E' | sudo sh\nrm x\nE", deny},
		{"bash", "", "bash(rm:*)", "cat <<E\n`rm x`\nE", deny},
		{"bash", "", "bash(rm:*)", "rm x <<E\nnot closed", deny},
		{"bash", "", "bash(rm:*)", "f() { rm x; }; f", deny},
		{"bash", "", "bash(rm:*)", "function f { rm x; }", deny},
		{"bash", "", "bash(rm:*)", "case a in a) rm x;; esac", deny},
		{"bash", "", "bash(rm:*)", "for ((;;)); do rm x; done", deny},
		{"bash", "", "bash(rm:*)", "((rm x))", deny}, // in dash
		{"bash", "", "bash(rm:*)", "ls # \\\nrm x", deny},
		{"bash", "", "bash(rm:*)", "ls $'\\'' ; rm x #'", deny},
		{"bash", "", "bash(rm:*)", "[[ -n $(rm x) ]]", deny},
		{"bash", "", "bash(rm:*)", "ls; 'rm' x; echo 'a", deny},
		{"bash", "", "bash(rm:*)", "ls $((a[$(rm x)]))", deny},
		{"bash", "", "bash(rm:*)", "a=(1 $(rm x))", deny},
		{"bash", "", "bash(rm:*)", strings.Repeat("(", 200) + "rm x" + strings.Repeat(")", 200), deny},
		{"bash", "", "bash(rm:*)", "cat <<E\nrm x\nE", allow},
		{"bash", "", "bash(*secret*)", "while ls; do ls; done < a/secret", deny},
	}
	for _, tt := range tests {
		rules := parsed(t, tt.allowed, tt.asked, tt.denied)
		if got, by := rules.decide(subjectOf(nil, "bash", args(t, map[string]string{"command": tt.line}))); got != tt.want {
			line := tt.line[:min(len(tt.line), 80)]
			t.Errorf("%q with allow %q ask %q deny %q: got %q by %q, want %q", line, tt.allowed, tt.asked, tt.denied, got, by.text, tt.want)
		}
	}
}

func TestRulesDecidePaths(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"src/deep", "secret"} {
		hosttest.Must(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	hosttest.Must(t, os.Symlink("../secret", filepath.Join(root, "src/link")))
	hosttest.Must(t, os.Symlink("../secret/new", filepath.Join(root, "src/dangling")))
	hosttest.Must(t, os.Symlink("../secret/no/such", filepath.Join(root, "src/far")))
	hosttest.Must(t, os.Symlink("loop", filepath.Join(root, "src/loop")))
	dir := at(t, root)
	hosttest.Must(t, os.Symlink(dir.At("secret/new"), filepath.Join(root, "src/absolute")))
	tests := []struct {
		allowed, denied string
		path            string
		want            decision
	}{
		{"edit(src/**)", "", "src/a.go", allow},
		{"edit(src/**)", "", "src/deep/a.go", allow},
		{"edit(src/**)", "", "./src/../src/a.go", allow},
		{"edit(src/**)", "", filepath.Join(root, "src/a.go"), allow},
		{"edit(src/)", "", "src/deep/a.go", allow},
		{"edit(src/*)", "", "src/deep/a.go", undecided},
		{"edit(src/*.go)", "", "src/a.go", allow},
		{"edit(**/*.go)", "", "a.go", allow},
		{"edit(**/*.go)", "", "src/deep/a.go", allow},
		{"edit(**/*.go)", "", "src/deep/a.c", undecided},
		{"edit(src/**)", "", "srcs/a.go", undecided},
		{"edit(src/**)", "", "../src/a.go", undecided},
		{"edit(src/**)", "", "src/../../x", undecided},
		{"edit(src/**)", "", "src/link/key", undecided}, // which lies elsewhere
		{"edit(src/**)", "", "src/dangling", undecided},
		{"edit(src/**)", "", "src/new/er/a.go", allow},
		{"edit", "edit(secret/**)", "src/link/key", deny},
		{"edit", "edit(secret/**)", "src/key", allow},
		{"edit", "edit(secret/**)", "src/dangling", deny}, // a write makes what it names
		{"edit", "edit(secret/**)", "src/far/x", deny},
		{"edit", "edit(secret/**)", "src/absolute", deny},
		{"edit", "edit(secret/**)", "src/loop/x", allow},
		{"edit(src/**)", "", "src/loop/x", undecided},
		{"edit(*/**)", "", "src/dangling", allow},
		{"edit", "edit(/etc/**)", "/etc/passwd", deny},
		{"edit", "edit(/etc/**)", "../../../../../../../../etc/passwd", deny},
		{"edit", "edit(secret)", "secret/deep/key", deny}, // and all below it
		{"edit", "edit(./secret)", "src/link/key", deny},
		{"edit", "edit(secret/)", "secret/key", deny},
		{"edit", "edit(secret)", "secrets", allow},
		{"edit", "edit(.)", "src/a.go", deny},
		{"edit", "edit(/etc)", "/etc/passwd", deny},
		{"edit", "edit(secr*)", "secret/key", allow},
		{"edit(src)", "", "src", allow},
		{"edit(src)", "", "src/a.go", undecided},
		{"edit(secret/public)", "edit(secret/**)", "secret/public", allow},
		{"write(src/**)", "", "src/a.go", undecided},
		{"e*t(src/**)", "", "src/a.go", allow},
		{"edit(src/*.{go,md})", "", "src/a.md", allow},
		{"edit(src/*.{go,md})", "", "src/a.c", undecided},
		{"edit", "edit(**/*.{key,pem})", "a/b.pem", deny},
		{"edit", "edit({secret,private})", "secret/key", deny},
		{"edit(src/[a-c]?.go)", "", "src/bx.go", allow},
		{"edit(src/[a-c]?.go)", "", "src/b/.go", undecided},
		{"edit(src/[!a]/x)", "", "src/b/x", allow},
		{"edit", "edit(app/[id])", "app/[id]/page.tsx", deny}, // as it is written
		{"edit", "edit(app/[id])", "app/i/page.tsx", deny},
		{"edit(app/\\[id\\]/x)", "", "app/[id]/x", allow},
		{"edit(app/\\[id\\]/x)", "", "app/i/x", undecided},
		{"edit", "edit(" + strings.Repeat("{a,a}", 100) + "b)", strings.Repeat("a", 100), allow}, // at once
	}
	for _, tt := range tests {
		rules := parsed(t, tt.allowed, "", tt.denied)
		s := subjectOf(dir, "edit", args(t, map[string]string{"path": tt.path}))
		if got, by := rules.decide(s); got != tt.want {
			t.Errorf("%q with allow %q deny %q: got %q by %q, want %q", tt.path, tt.allowed, tt.denied, got, by.text, tt.want)
		}
	}
}

func TestRulesDecideToolsOfServers(t *testing.T) {
	rules := parsed(t, "mcp__files__* + mcp__web__get", "", "mcp__files__delete")
	dir := at(t, t.TempDir())
	hosttest.Must(t, os.MkdirAll(dir.At("src"), 0o700))
	hosttest.Must(t, os.MkdirAll(dir.At("secret/deep"), 0o700))
	hosttest.Must(t, os.Symlink("../secret/deep", dir.At("src/link")))
	many := `{"path":"src/a","tags":["` + strings.Repeat(`x","`, maxTexts) + `"]}`
	for _, tt := range []struct {
		allowed, asked, denied string
		args                   string
		want                   decision
	}{
		// Everything that a call is about is judged, and the strictest verdict counts.
		{"t", "", "t(secret/**)", `{"command":"ls","path":"secret/key"}`, deny},
		{"t", "t(secret/**)", "", `{"command":"ls","path":"secret/key"}`, ask},
		{"t", "", "t(rm:*)", `{"command":"rm x","path":"a"}`, deny},
		{"t", "", "t(rm:*)", `{"command":"ls","path":"a"}`, allow},
		{"t", "", "t(rm:*)", `{"command":"rm","args":["-r","x"]}`, deny},
		{"t", "", "t(git push:*)", `{"cmd":["git","push"]}`, deny},
		{"t", "", "t(git push:*)", `{"command":"git","ARGS":["push"]}`, deny},
		{"t", "", "t(git push:*)", `{"command":"git $X"}`, ask},
		{"t", "", "t(git push:*)", `{"argv":["git","push"]}`, deny},
		{"t", "", "t(rm:*)", `{"commands":["ls","rm x"]}`, deny},
		{"t", "", "t(rm:*)", `{"commands":[{"command":"ls"},{"command":"rm x"}]}`, deny},
		{"t", "", "t(rm:*)", `{"code":"rm x","n":1e400}`, deny},
		{"t", "", "t(rm*)", `{"command":"ls; rm x"}`, deny},
		{"t", "", "t(**/*.key)", `{"path":"a","content":"see a/b.key\nand more"}`, allow},
		{"t", "", "t(rm:*)", `{"text":"a (long) story > 'of"}`, allow},
		{"t", "", "t(secret/**)", `{"files":[{"file_path":"a"},{"file_path":"secret/key"}]}`, deny},
		{"t", "", "t(secret/**)", `{"source":"a","destination":"secret/key"}`, deny},
		{"t", "", "t(secret/**)", `{"uri":"file://` + dir.At("secret/key") + `"}`, deny},
		{"t", "", "t(secret/**)", `{"uri":"FILE://localhost` + dir.At("secret") + `/%6bey"}`, deny},
		{"t", "", "t(secret/key)", `{"uri":"file://localhost` + dir.At("secret") + `/%6bey"}`, deny},
		{"t", "", "t(secret/key)", many, deny}, // it may be in what is not judged
		{"t", "", "t(secret/**)", `{"where":["src/../secret/key"]}`, deny},
		{"t", "", "t(secret/**)", `{"path":"src/link/../key"}`, deny}, // where links lead
		{"t", "", "t(/etc/**)", `{"files":{"/etc/passwd":"x"}}`, deny},
		{"t", "", "t(secret/**)", `{"all":[{"secret/key":1}]}`, deny},
		{"t", "", "t(rm:*)", `{"steps":{"rm x":true}}`, deny},
		{"t", "", "t(text)", `{"text":"x"}`, allow}, // it is a name
		{"t(src/**)", "", "", `{"files":{"src/a":"x"}}`, allow},
		{"t(src/**)", "", "", `{"files":{"src/a":"x","/etc/passwd":"x"}}`, undecided},
		{"t(src/**)", "", "", `{"path":"src/a","text":"any/thing"}`, allow},
		{"t(src/**)", "", "", `{"paths":["src/a","src/b"]}`, allow},
		{"t(src/**)", "", "", `{"paths":["src/a","b"]}`, undecided},
		{"t(src/**)", "", "", `{"path":"src/a","target":"b"}`, undecided},
		{"t(src/**)", "", "", `{"path":"src/a","command":"rm x"}`, undecided},
		{"t(src/**)", "", "", `{"text":"src/a"}`, undecided},
		{"t(src/**)", "", "", many, ask},
		{"t", "", "", many, allow},

		// Only our shell is known to read a prefix as we do.
		{"*(git status:*)", "", "", `{"command":"git status"}`, undecided},
		{"t(make check)", "", "", `{"command":"make check"}`, allow},
		{"t(make check)", "", "", `{"command":"make check","cwd":"/"}`, undecided},
		{"*(git status:*)", "", "", `{"path":"git status"}`, undecided},
	} {
		rules := parsed(t, tt.allowed, tt.asked, tt.denied)
		if got, by := rules.decide(subjectOf(dir, "t", json.RawMessage(tt.args))); got != tt.want {
			t.Errorf("%.200s with allow %q ask %q deny %q: got %q by %q, want %q", tt.args, tt.allowed, tt.asked, tt.denied, got, by.text, tt.want)
		}
	}
	for name, want := range map[string]decision{
		"mcp__files__read": allow, "mcp__files__delete": deny, "mcp__web__get": allow, "mcp__web__put": undecided,
	} {
		if got, _ := rules.decide(subject{tool: name}); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got, _ := parsed(t, "x(y)", "", "").decide(subject{tool: "x"}); got != undecided {
		t.Errorf("a pattern for a call without a path: got %q, want no decision", got)
	}
}

func TestKeysInAnotherSpellingAreJudged(t *testing.T) {
	rules := parsed(t, "", "", "bash(rm:*)")
	s := subjectOf(nil, "bash", json.RawMessage(`{"Command":"rm x"}`)) // tools read it all the same
	if got, _ := rules.decide(s); got != deny {
		t.Errorf("got %q, want deny", got)
	}
	if _, err := plainArgs(json.RawMessage(`{"command":"ls","COMMAND":"rm x"}`)); err == nil {
		t.Error("got no error for keys that differ in case only")
	}
	got, err := plainArgs(json.RawMessage(`{"command":"ls","command":"rm <x>","n":1e400}`))
	if want := `{"command":"rm <x>","n":1e400}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// What is remembered of a path means that path, whatever its characters mean in patterns.
func TestRememberedPathsArePlain(t *testing.T) {
	dir := at(t, t.TempDir())
	for _, name := range []string{"app/[id]/page.tsx", "a*b", "{a,b}", `a\b`, "a?", "a[b", "{a"} {
		c := &call{Call: model.Call{Tool: "edit", Args: args(t, map[string]string{"path": name})}}
		for _, d := range []decision{allow, deny} {
			r, err := parseRule(ruleFor(c), d)
			hosttest.Must(t, err)
			for path, want := range map[string]decision{name: d, "app/i/page.tsx": undecided, "axb": undecided, "a": undecided} {
				if got, _ := (Rules{[]rule{r}}).decide(subjectOf(dir, "edit", args(t, map[string]string{"path": path}))); got != want {
					t.Errorf("%s: got %q for %s, want %q", r.text, got, path, want)
				}
			}
		}
	}
}

func TestBadRulesAreErrors(t *testing.T) {
	for _, text := range []string{"", "(x)", "bash(", "bash(x", "bash()", "a b", "bash)", "x\ny", strings.Repeat("x", maxRuleBytes+1)} {
		if _, err := ParseRules([]string{text}, nil, nil); err == nil {
			t.Errorf("%q: got no error", text[:min(len(text), 20)])
		}
	}
}

func TestRulesThatCanNeverMatchAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"Bash(touch:*)":      "its name is bash",
		"Write":              "its name is write",
		"WRIT*":              "its name is write",
		"git:*":              "bash(git status:*)",
		"MCP__files__*":      "begin with mcp__",
		"bash(git:* push)":   ":* belongs at the end",
		"bash(rm*:*)":        ":* belongs at the end",
		"bash(curl * | sh)":  "one command",
		"bash(cd x && rm:*)": "one command",
		"bash(rm '*')":       "one command",
		"read(src:*)":        "read(src/**)",
		"read(~/.ssh/**)":    "absolute",
		"read(../secret)":    "absolute",
		"read(src/../../x)":  "absolute",
		"ask_user(anything)": "name the tool alone",

		"mcp__everything":   "write mcp__everything__*",
		"mcp__everything__": "write mcp__everything__*",

		"read(**/*.{key,pem)":       "brackets",
		"read([z-a])":               "brackets",
		"read(README.md, go.mod)":   "one for each",
		"edit(**/*.go|**/*.md)":     "one for each",
		"edit(!src/**)":             "has no !",
		"read($HOME/x)":             "no variables",
		"read(/home/${USER}/x)":     "no variables",
		"write(file:///x)":          "write /x",
		"bash(git push: *)":         "without a blank",
		"mcp__sh__run(git push: *)": "without a blank",
	} {
		if _, err := ParseRules(nil, nil, []string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error that says %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"bash(ls *)":                 "bash(git status:*)",
		"mcp__sh__run(git status:*)": "allows only commands of bash",
		"deploy(git status:*)":       "allows only commands of bash",
	} {
		if _, err := ParseRules([]string{text}, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("allow %q: got %v, want an error that says %q", text, err, want)
		}
	}
	for _, text := range []string{"*", "b*", "mcp__a__B", "m*", "Deploy", "bash(ls)", "bash(a && b)", "bash(rm *)", "bash(*)", "mcp__sh__run(rm:*)", "mcp__f__x(~/x)", "read(/etc/**)", "read(~x/../y)", "*(src/**)",
		"mcp__*", "mcp__every*", "read(app/[id]/page.tsx)", "read(routes/$id.tsx)", "read({id}/x)", "read(a,v)", "mcp__sh__run(a | b)", "bash(echo {a,b})", "bash(echo a: b)"} {
		if _, err := ParseRules(nil, nil, []string{text}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRulesThatMayMatchNothingAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"deploy": "only a client", "nosuchtool(a)": "only a client", "mpc__files__*": "only a client",
		"mcp__everythng__*": "no server", "mcp__everythng__echo": "no server", "mcp__everythingy*": "no server",
		"mcp__everything__read(*.a|*.b)": "", "read(/no-such-place/**)": "without a slash", "read(/no-such-place)": "without a slash",

		"mcp__everything__*": "", "mcp__everything__echo": "", "mcp__my_own__x": "", "mcp__every*": "", "mcp__*": "", "m*": "", "*echo": "",
		"bash(ls:*)": "", "ask_user": "", "e*t": "", "bash(ls *.[ch])": "", "mcp__everything__sh(a | b ?)": "", "read(/)": "", "read(/*/x)": "",
		"read(src/**)": "", "read(/etc/**)": "", "read(**/*.[ch])": "", "read(a?)": "", "read(a,v)": "", "mcp__everything__read(*.{a,b})": "",
	} {
		got := parsed(t, "", "", text).Doubts([]string{"everything", "my own"})
		switch {
		case want == "" && len(got) > 0:
			t.Errorf("%q: got %+v, want no doubt", text, got)
		case want != "" && (len(got) != 1 || got[0].Rule != text || !strings.Contains(got[0].Why, want)):
			t.Errorf("%q: got %+v, want a doubt that says %q", text, got, want)
		}
	}
}
