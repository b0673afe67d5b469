package llm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// spell writes a parsed line down: commands in order, words that vary with a $
// before them, and a ? at the end of what is not clear.
func spell(line *reading) string {
	var all []string
	for _, c := range line.commands {
		var words []string
		for _, w := range c.simple {
			if w.fixed {
				words = append(words, fmt.Sprintf("%q", w.text))
			} else {
				words = append(words, fmt.Sprintf("$%q", w.text))
			}
		}
		all = append(all, strings.Join(words, " "))
	}
	text := strings.Join(all, " | ")
	if !line.clear {
		text += " ?"
	}
	return text
}

func TestLinesAreTakenApart(t *testing.T) {
	tests := []struct{ line, want string }{
		{``, ``},
		{`git status`, `"git" "status"`},
		{`  git	status  `, `"git" "status"`},
		{`a && b || c; d & e | f |& g`, `"a" | "b" | "c" | "d" | "e" | "f" | "g"`},
		{"a\nb", `"a" | "b"`},
		{"a \\\n b", `"a" "b"`},
		{`a 'b c' "d e" f\ g`, `"a" "b c" "d e" "f g"`},
		{`a ''`, `"a" ""`},
		{`'a'"b"\c`, `"abc"`},
		{`a "b\"c\d"`, `"a" "b\"c\\d"`},
		{`a $B`, `"a" $""`},
		{`a "x${B}y"`, `"a" $"xy"`},
		{`a $(b c) d`, `"a" $"" "d" | "b" "c"`},
		{`a "$(b)"`, `"a" $"" | "b"`},
		{"a `b c`", `"a" $"" | "b" "c"`},
		{`a $(b $(c))`, `"a" $"" | "b" $"" | "c"`},
		{`$(a) b`, `$"" "b" | "a"`},
		{`a 2>&1`, `"a"`},
		{`a >/dev/null 2>&1 && b`, `"a" | "b"`},
		{`a 2> /dev/null`, `"a"`},
		{`a </dev/null|b`, `"a" | "b"`},
		{`a > b`, `"a" "b" ?`},
		{`a >> b`, `"a" "b" ?`},
		{`a >/dev/null/x`, `"a" "/dev/null/x" ?`},
		{`a >&1x`, `"a" "1x" ?`},
		{`a &> b`, `"a" "b" ?`},
		{`a <(b c)`, `"a" $"" | "b" "c" ?`},
		{"a <<E\nb\nE", `"a"`},
		{`(a)`, `"a"`},
		{`a() { b; }`, `"b" ?`},
		{`a 'b`, `"a" "b" ?`},
		{`a "b`, `"a" "b" ?`},
		{`a \`, `"a" "\\" ?`},
		{`a $(b`, `"a" "$" | "b" ?`},
		{"a `b", `"a" | "b" ?`},
		{`a $((1+1))`, `"a" $""`},
		{`a $'\x72m'`, `"a" "$\\x72m" | "a" $"\\x72m" ?`},
		{`a # b`, `"a"`},
		{`a b#c`, `"a" "b#c"`},
		{"a \x01", "\"a\" \"\\x01\" ?"},
		{"a \xff", "\"a\" \"\\xff\" ?"},
		{`a $`, `"a" "$"`},
		{`A=1 b`, `"A=1" "b"`},
		{`a *.go b?c [d-f]`, `"a" $"*.go" $"b?c" $"[d-f]"`},
		{`a {b,c} d{1..3} {} +`, `"a" $"{b,c}" $"d{1..3}" "{}" "+"`},
		{`a '{b,c}' "*" \? b.c,d]`, `"a" "{b,c}" "*" "?" "b.c,d]"`},
		{`~/a b~ =c d=e`, `$"~/a" "b~" $"=c" "d=e"`},
		{`[ -f a ]`, `"[" "-f" "a" "]"`},
	}
	for _, tt := range tests {
		if got := spell(parseLine(tt.line)); got != strings.TrimSpace(tt.want) && got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.line, got, tt.want)
		}
	}
}

// quoted spells a word in one of the ways of the shell.
func quoted(t *rapid.T, text string) string {
	var out strings.Builder
	for rest := text; rest != "" || out.Len() == 0; {
		n := rapid.IntRange(min(1, len(rest)), len(rest)).Draw(t, "piece")
		piece := rest[:n]
		rest = rest[n:]
		switch rapid.IntRange(0, 2).Draw(t, "quotes") {
		case 0:
			out.WriteString("'" + strings.ReplaceAll(piece, "'", `'\''`) + "'")
		case 1:
			out.WriteString(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(piece) + `"`)
		default:
			if piece == "" {
				out.WriteString("''")
			}
			for i := range len(piece) {
				if piece[i] == '\n' {
					out.WriteString("'\n'")
				} else {
					out.WriteString(`\` + piece[i:i+1])
				}
			}
		}
	}
	return out.String()
}

func TestQuotedWordsAreReadAsMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.RuneFrom([]rune("ab -;&|()<>$`\"'\\#*?~{}[]!=\n")))
		commands := rapid.SliceOfN(rapid.SliceOfN(word, 1, 4), 1, 4).Draw(t, "commands")
		var line strings.Builder
		for i, words := range commands {
			if i > 0 {
				line.WriteString(rapid.SampledFrom([]string{";", " && ", "||", " | ", "\n", "&", "|&"}).Draw(t, "operator"))
			}
			for _, w := range words {
				line.WriteString(quoted(t, w) + rapid.SampledFrom([]string{" ", "\t", " \\\n"}).Draw(t, "space"))
			}
		}
		got := parseLine(line.String())
		if !got.clear || len(got.commands) != len(commands) {
			t.Fatalf("%q: got %s, want %q", line.String(), spell(got), commands)
		}
		for i, words := range commands {
			var texts []string
			for _, w := range got.commands[i].simple {
				texts = append(texts, w.text)
				if !w.fixed {
					t.Fatalf("%q: got a word that varies, %q", line.String(), w.text)
				}
			}
			if !slices.Equal(texts, words) {
				t.Fatalf("%q: got %q, want %q", line.String(), texts, words)
			}
		}
	})
}

// What is allowed runs what rules allow and nothing else, in the shells that there
// are. PATH leads nowhere, so that anything else is not found, and says so.
func TestAllowedLinesRunNothingElse(t *testing.T) {
	var shells []string
	for _, name := range []string{"sh", "bash", "dash", "zsh", "ksh"} {
		if path, err := exec.LookPath(name); err == nil {
			shells = append(shells, path)
		}
	}
	rules, err := ParseRules([]string{"bash(echo:*)"}, nil, nil)
	hosttest.Must(t, err)
	dir := t.TempDir()
	pieces := []string{
		"echo", "echo ", "echo a", "rm", "rm x", "x", " ", "\t", "\n", ";", "&&", "||", "|", "&", "'", "\"", "\\", "$(", ")", "`", "(", "{", "}",
		">", "<", ">>", ">&2", "2>&1", ">/dev/null", "</dev/null", "<<", "$X", "${X", "$", "#", "=", "!", "[", "*", "~", "\r", "if ", "then ", "$'", "é", "1",
		"<<E\n", "<<'E'\n", "<<-E\n", "\nE\n", "\tE\n", "E", "\\\n", "\"$(", "((", "))", "$((", "$[", "${X:-", "; fi", "; then echo", "for i in ", "; do ", "; done",
		"case x in ", "x) ", ";; esac", "echo x; ", "echo() ", "echo 'rm x'", "<<<", "<(", "&>", "|&", "time ", "[[ ", " ]]",
	}
	const maxRuns = 100 // processes take their time
	ran := 0
	rapid.Check(t, func(t *rapid.T) {
		line := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(t, "line"), "")
		for _, try := range []string{line, "echo " + line, "echo $(" + line + ")", `echo "` + line + `"`} {
			if got, _ := decideCommand(rules.rules, try); got != allow || ran == maxRuns {
				continue
			}
			ran++
			for _, shell := range shells {
				cmd := exec.Command(shell, "-c", try)
				cmd.Dir, cmd.Env = dir, []string{"PATH=/nonexistent"}
				var said bytes.Buffer
				cmd.Stderr = &said
				_ = cmd.Run() // echo may say that its output is closed
				if text := said.String(); strings.Contains(text, "not found") || strings.Contains(text, "o such file") {
					t.Fatalf("%q in %s: %s", try, shell, text)
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Fatalf("%q in %s left %v, %v", try, shell, left, err)
				}
			}
		}
	})
	if ran == 0 {
		t.Error("nothing was allowed")
	}
}

// FuzzLine holds what rules rely on: a line is allowed only if it is clear and each of
// its commands is allowed, what follows a clear line is read as if it stood alone,
// and nothing makes the parser panic.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		"git status && rm -rf x", "a $(b `c`) \"d $(e)\"", "sudo env A=1 sh -c 'rm x'", "a > b", "a 2>&1", "(((((", "`a`b`", "a <<E\nE", "\\", "'", "sh sh sh sh sh",
		"b <<-'E'\n$(rm x)\n\tE\n(b # c\n)", "b $((1+2)) ${X:-$(b)} $'\\'' $[x]", "for i in a; do b; done; case $X in a) b;; esac", "f() { rm x; }", "if ! b; then b <<<x; fi |& b",
	} {
		f.Add(seed)
	}
	rules, err := ParseRules([]string{"bash(git status:*)", "bash(b:*)"}, nil, []string{"bash(rm:*)"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		parsed := parseLine(line)
		if len(parsed.commands) > maxCommands {
			t.Errorf("got %d commands, want at most %d", len(parsed.commands), maxCommands)
		}
		if parsed.clear {
			more := parseLine(line + "\nnext 'one'")
			if n := len(parsed.commands) + 1; n <= maxCommands && (len(more.commands) != n || !more.clear) && !strings.HasSuffix(line, "\\") {
				t.Errorf("%q: got %s after it, want one command more than %s", line, spell(more), spell(parsed))
			}
		}
		verdict, _ := decideCommand(rules.rules, line)
		if verdict == allow {
			for _, c := range parsed.commands {
				if first := c.simple[0].text; first != "git" && first != "b" || !parsed.clear {
					t.Errorf("%q is allowed, and runs %s", line, spell(parsed))
				}
			}
		}
		if denied, _ := decideCommand(rules.rules, line+"\nrm x"); parsed.clear && denied != deny && !strings.HasSuffix(line, "\\") && len(parsed.commands) < maxCommands {
			t.Errorf("%q: got %q with a denied command after it, want it denied", line, denied)
		}
	})
}
