package llm

import (
	"errors"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// A word is a word of a command without its quotes.
type word struct {
	text  string // without the parts that the shell decides
	fixed bool   // the shell decides nothing of it
	sets  string // the name and = at its beginning, if it sets a variable
}

// is reports whether the word is want. If anywhere, both are programs that may lie in
// any directory.
func (w word) is(want string, anywhere bool) bool {
	if anywhere {
		return program(w.text) == program(want)
	}
	return w.text == want
}

// program returns the name of a program from the first word of a command, or the
// word itself if it sets a variable.
func program(first string) string {
	if assignment().MatchString(first) {
		return first
	}
	return path.Base(first)
}

// A simpleCommand is a program with its arguments. Its words include assignments
// before the program and the targets of redirections.
type simpleCommand []word

// fixed reports whether the shell decides nothing of the command.
func (c simpleCommand) fixed() bool {
	return !slices.ContainsFunc(c, func(w word) bool { return !w.fixed })
}

// lines returns the command as text, also with the bare name of its program.
func (c simpleCommand) lines() []string {
	if len(c) == 0 {
		return []string{""}
	}
	var rest strings.Builder
	for _, w := range c[1:] {
		rest.WriteString(" " + w.text)
	}
	return []string{c[0].text + rest.String(), program(c[0].text) + rest.String()}
}

// A judged command is one command of a line.
type judged struct {
	simple simpleCommand
	fed    bool // a heredoc is its input

	// inner are the commands that it may run: itself, itself without assignments,
	// and, if it is sudo or the like, the commands in its arguments.
	inner []simpleCommand
}

const (
	// maxNesting bounds the nesting of lines in the arguments of commands.
	maxNesting = 8

	// maxCommands bounds the judged commands of a line, and those that they may run.
	maxCommands = 256

	// maxLineBytes bounds a line; the rest is not read.
	maxLineBytes = 100_000

	// maxFrames bounds the stack of the parser. Each bracket takes several frames and
	// about 5 KB. A stack overflow would end the process.
	maxFrames = 2000
)

// parseLine returns the commands of a line, whichever shell reads it. No line is
// clear on Windows, whose shell has another language.
func parseLine(line string) *reading {
	r := readLine(line, 0)
	s := search{left: maxCommands}
	for i := range r.commands {
		s.found = nil
		s.look(r.commands[i].simple, 0)
		r.commands[i].inner = s.found
	}
	r.clear = r.clear && s.left > 0 && runtime.GOOS != "windows"
	return r
}

// A reading is a line as shells of one dialect read it. It is clear if the line runs
// these commands and does nothing else, such as write files or declare functions.
type reading struct {
	line     string
	commands []judged
	clear    bool
	broken   bool     // the parser did not reach the end of the line
	plain    bool     // the line is one command without operators and assignments
	heredocs []string // texts that are inputs of commands
}

// readLine reads a line as POSIX defines it, where the reserved words of other
// shells are programs. If the line is not clear then, readLine adds the commands
// that bash reads. If neither parses it, it splits the line at operators.
func readLine(line string, depth int) *reading {
	r := read(line, syntax.LangPOSIX)
	if !r.clear {
		other := read(line, syntax.LangBash)
		if r.broken && !other.broken {
			r, other = other, r
		} else {
			r.clear = false
		}
		r.heredocs = append(r.heredocs, other.heredocs...)
		r.merge(other.commands)
		if r.broken {
			r.split()
		}
	}
	runsShell := slices.ContainsFunc(r.commands, func(c judged) bool {
		return slices.ContainsFunc(c.simple, func(w word) bool { return slices.Contains(shells, path.Base(w.text)) })
	})
	for i := 0; runsShell && depth < maxNesting && i < len(r.heredocs); i++ {
		r.merge(readLine(r.heredocs[i], depth+1).commands)
	}
	return r
}

func read(line string, dialect syntax.LangVariant) (r *reading) {
	r = &reading{line: line[:min(len(line), maxLineBytes)]}
	r.clear = len(line) <= maxLineBytes && utf8.ValidString(line) && !unusual().MatchString(line)
	defer func() { // the parser may panic
		if recover() != nil {
			r.broken, r.clear = true, false
		}
	}()
	parser := syntax.NewParser(syntax.Variant(dialect), syntax.KeepComments(true))
	f, err := parser.Parse(shallow{strings.NewReader(r.line)}, "")
	if err != nil { // f has the commands before the error, which a shell may run
		r.broken, r.clear = true, false
	}
	syntax.Walk(f, r.visit)
	if len(f.Stmts) == 1 && !f.Stmts[0].Negated && !f.Stmts[0].Background {
		call, ok := f.Stmts[0].Cmd.(*syntax.CallExpr)
		r.plain = ok && len(call.Assigns) == 0
	}
	return r
}

// A shallow reader fails if the stack of its caller is too deep.
type shallow struct{ io.Reader }

func (s shallow) Read(p []byte) (int, error) {
	if runtime.Callers(maxFrames, make([]uintptr, 1)) > 0 {
		return 0, errors.New("too deep")
	}
	return s.Reader.Read(p)
}

func (r *reading) add(c judged) {
	if r.clear = r.clear && len(r.commands) < maxCommands; len(r.commands) < maxCommands {
		r.commands = append(r.commands, c)
	}
}

// merge adds the commands of another reading that this one lacks.
func (r *reading) merge(more []judged) {
	for _, c := range more {
		if !slices.ContainsFunc(r.commands, func(o judged) bool { return o.fed == c.fed && slices.Equal(o.simple, c.simple) }) {
			r.add(c)
		}
	}
}

// split adds the texts between operators as commands.
func (r *reading) split() {
	for text := range strings.FieldsFuncSeq(r.line, func(c rune) bool { return strings.ContainsRune("\n;&|()`", c) }) {
		var c simpleCommand
		for field := range strings.FieldsSeq(text) {
			c = append(c, word{text: strings.Trim(field, `"'\`), fixed: true})
		}
		if len(c) > 0 {
			r.add(judged{simple: c})
		}
	}
}

// visit reads a part of the line. An unlisted kind of part makes the line unclear.
func (r *reading) visit(n syntax.Node) bool {
	clear := true
	switch n := n.(type) {
	case nil, *syntax.File, *syntax.Assign, *syntax.BinaryCmd, *syntax.Block, *syntax.CallExpr, *syntax.CaseClause, *syntax.CaseItem, *syntax.IfClause,
		*syntax.WhileClause, *syntax.Word, *syntax.BinaryArithm, *syntax.UnaryArithm, *syntax.ParenArithm:
	case *syntax.Subshell:
		clear = !strings.HasPrefix(r.source(n), "((") // which is arithmetic to bash
	case *syntax.Stmt:
		r.statement(n)
	case *syntax.Redirect:
		clear = r.keepsFiles(n)
	case *syntax.ForClause:
		clear = !n.Select
	case *syntax.WordIter:
		clear = loopName().MatchString(n.Name.Value)
	case *syntax.CmdSubst:
		text := r.source(n)
		clear = !n.TempFile && !n.ReplyVar && !(n.Backquotes && (strings.Contains(text, `\`) || strings.Contains(text, "<<")))
	case *syntax.Comment:
		text, _, more := strings.Cut(r.line[n.Pos().Offset():], "\n")
		clear = !more || !strings.HasSuffix(text, `\`) // which for the parser goes on, and for shells does not
		r.broken = r.broken || !clear
	case *syntax.ArithmExp:
		clear = numbers().MatchString(r.source(n))
	case *syntax.ParamExp:
		next := r.line[n.End().Offset():]
		clear = !(n.Short && strings.HasPrefix(next, "[")) && // which is arithmetic to zsh
			!n.Excl && !n.Width && n.Index == nil && n.Slice == nil && n.Repl == nil && n.Names == 0 &&
			(n.Exp == nil || n.Exp.Op <= syntax.ErrorUnsetOrNull || n.Exp.Op >= syntax.RemSmallSuffix && n.Exp.Op <= syntax.RemLargePrefix)
	case *syntax.SglQuoted, *syntax.DblQuoted: // $'' and $"" are two things to POSIX
		before, dollar := strings.CutSuffix(r.line[:n.Pos().Offset()], "$")
		escaped := (len(before)-len(strings.TrimRight(before, `\`)))%2 == 1
		clear = !strings.HasPrefix(r.source(n), "$") && (!dollar || escaped)
	case *syntax.Lit:
		clear = !moreOfDollar().MatchString(r.source(n) + r.line[n.End().Offset():][:min(1, len(r.line)-int(n.End().Offset()))])
	default:
		clear = false
	}
	r.clear = r.clear && clear
	return len(r.commands) < maxCommands || r.clear
}

var (
	// Control characters, and a backslash before nothing.
	unusual = lazyregexp.New(`[\x00-\x08\x0b-\x1f\x7f]|\\$`)

	// A $ that the shell reads and the parser does not: in the arithmetic $[1] of bash,
	// and before a line break that shells skip.
	moreOfDollar = lazyregexp.New(`(?:^|[^\\])(?:\\\\)*\$(?:\[|\\\n)`)

	// Names of variables without a meaning to shells, unlike PATH, or path in zsh.
	loopName = lazyregexp.New(`^[a-z0-9_]*[a-gi-z0-9_]$`)

	// Arithmetic without variables, whose values may run commands.
	numbers = lazyregexp.New(`^\$\(\([0-9 \t+*/%()<>=!&|^~?:-]*\)\)$`)

	// The ends of heredocs that all shells read alike, and quoted ends.
	plainEnd  = lazyregexp.New(`^(?:[\w.-]+|'[\w.-]+'|"[\w.-]+")$`)
	quotedEnd = lazyregexp.New(`^["']`)
)

func (r *reading) source(n syntax.Node) string { return r.line[n.Pos().Offset():n.End().Offset()] }

// keepsFiles reports whether a redirection neither reads nor writes a file, and all
// shells agree where it ends.
func (r *reading) keepsFiles(d *syntax.Redirect) bool {
	target := d.Word.Lit()
	if d.N != nil && strings.HasPrefix(d.N.Value, "{") {
		return false // it sets a variable
	}
	switch d.Op {
	case syntax.RdrIn, syntax.RdrOut, syntax.AppOut:
		return target == "/dev/null"
	case syntax.DplOut:
		return target == "1" || target == "2"
	case syntax.WordHdoc:
		return true
	case syntax.Hdoc, syntax.DashHdoc:
		end := r.source(d.Word)
		return plainEnd().MatchString(end) && (d.Hdoc == nil || quotedEnd().MatchString(end) || !strings.Contains(r.source(d.Hdoc), "\\\n"))
	}
	return false
}

func (r *reading) statement(s *syntax.Stmt) {
	var c judged
	if call, ok := s.Cmd.(*syntax.CallExpr); ok {
		for _, a := range call.Assigns {
			r.clear = r.clear && a.Index == nil && a.Array == nil
			w := word{fixed: a.Array == nil}
			if a.Value != nil {
				w = wordOf(a.Value)
			}
			w.sets = a.Name.Value + "="
			if a.Append {
				w.sets = a.Name.Value + "+="
			}
			w.text = w.sets + w.text
			c.simple = append(c.simple, w)
		}
		for _, w := range call.Args {
			c.simple = append(c.simple, wordOf(w))
			if lit := w.Lit(); lit == "{" || lit == "}" { // operators in zsh
				r.clear = false
			}
		}
	}
	for _, d := range s.Redirs {
		switch {
		case d.Op == syntax.WordHdoc:
			c.fed = true
			r.heredocs = append(r.heredocs, wordOf(d.Word).text)
		case d.Hdoc != nil:
			c.fed = true
			r.heredocs = append(r.heredocs, r.source(d.Hdoc))
		case !r.keepsFiles(d):
			c.simple = append(c.simple, wordOf(d.Word))
		}
	}
	if len(c.simple) > 0 {
		r.add(c)
	}
}

// wordOf returns a word without its quotes.
func wordOf(w *syntax.Word) word {
	out := word{fixed: true}
	opened := false // a bracket or a brace outside quotes
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if i == 0 {
				out.sets = assignment().FindString(p.Value)
			}
			out.unquoted(p.Value, i == 0, &opened)
		case *syntax.SglQuoted:
			out.text += p.Value
			out.fixed = out.fixed && !p.Dollar
		case *syntax.DblQuoted:
			for _, part := range p.Parts {
				lit, ok := part.(*syntax.Lit)
				if ok {
					out.text += escaped().ReplaceAllString(lit.Value, "$1")
				}
				out.fixed = out.fixed && ok
			}
		default:
			out.fixed = false
		}
	}
	return out
}

// unquoted adds a text outside quotes. The shell may replace a word there by other
// words: names of files, {a,b}, home directories, and =program in zsh.
func (w *word) unquoted(text string, begins bool, opened *bool) {
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			i++
		case '*', '?':
			w.fixed = false
		case '~', '=':
			w.fixed = w.fixed && !(begins && i == 0)
		case '{', '[':
			*opened = true
		case ',', '.', ']':
			w.fixed = w.fixed && !*opened
		}
		plain.WriteString(text[min(i, len(text)-1):min(i+1, len(text))])
	}
	w.text += plain.String()
}

var (
	assignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

	// A character that a backslash escapes in double quotes.
	escaped = lazyregexp.New("\\\\([$`\"\\\\])")

	// Words before the program of a command, in lines that are split at operators.
	reserved = []string{"!", "{", "if", "then", "else", "elif", "do", "while", "until", "function"}

	shells = []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "su", "ssh"}

	// Programs and words of shells that run a program or a line in their arguments.
	runners = append([]string{
		"-", "alias", "arch", "at", "builtin", "bundle", "busybox", "bwrap", "caffeinate", "chpst", "chroot", "chrt", "command", "coproc",
		"dbus-run-session", "direnv", "doas", "entr", "env", "eval", "exec", "fakeroot", "fd", "fdfind", "find", "firejail", "flock", "gosu",
		"hyperfine", "ionice", "linux32", "linux64", "ltrace", "machinectl", "mise", "nice", "nix", "nix-shell", "nocorrect", "noglob", "nohup",
		"nsenter", "numactl", "parallel", "perf", "pipenv", "pkexec", "poetry", "prlimit", "proot", "proxychains", "proxychains4", "repeat",
		"run0", "runuser", "screen", "script", "setarch", "setpriv", "setsid", "sg", "start-stop-daemon", "stdbuf", "strace", "su-exec", "sudo",
		"systemd-inhibit", "systemd-run", "taskset", "time", "timeout", "tini", "tmux", "torsocks", "toybox", "trap", "unbuffer", "unshare",
		"uv", "valgrind", "watch", "watchexec", "xargs", "xvfb-run",
	}, shells...)

	// The option in one word with a line, as in -c'git push'.
	beforeLine = lazyregexp.New(`^(?:--[a-z-]+=|-[A-Za-z])`)
)

// A search looks for commands in the arguments of commands.
type search struct {
	found []simpleCommand
	left  int // commands until it gives up
}

// look adds a command and the commands that it may run.
func (s *search) look(c simpleCommand, depth int) {
	for ; len(c) > 0 && s.left > 0; c = c[1:] {
		s.left--
		s.found = append(s.found, c)
		if !assignment().MatchString(c[0].text) && !slices.Contains(reserved, c[0].text) {
			break
		}
	}
	switch {
	case len(c) == 0 || s.left <= 0:
		return
	case depth >= maxNesting:
		s.left = 0
		return
	case !slices.Contains(runners, path.Base(c[0].text)):
		return
	}
	for i := 1; i < len(c) && s.left > 0; i++ {
		s.look(c[i:], depth+1)
		w := c[i] // it may be a line, or end in one
		if !w.fixed {
			s.found = append(s.found, simpleCommand{{text: w.text}}) // an unknown line
		}
		if strings.ContainsAny(w.text, blanks+shellSigns) { // else look has seen it as a program
			s.lookInto(w.text, depth+1)
		}
		if line := beforeLine().ReplaceAllString(w.text, ""); line != w.text {
			s.lookInto(line, depth+1)
		}
		if _, line, ok := strings.Cut(w.text, "="); ok && c[0].text == "alias" {
			s.lookInto(line, depth+1)
		}
	}
}

func (s *search) lookInto(line string, depth int) {
	s.left -= len(line) / 4096 // long ones take their time
	for _, c := range readLine(line, depth).commands {
		s.look(c.simple, depth)
	}
}
