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

// A word is a word of a command with its quotes removed.
type word struct {
	text  string // without what the shell decides
	fixed bool   // the shell decides nothing of it
	sets  string // the name and = that it begins with, if it sets a variable
}

// A simpleCommand is a program with its arguments. Assignments in front of the
// program and the targets of redirections are words, too.
type simpleCommand []word

// A commandLine is what a line for the shell runs. It is clear if the line runs
// these commands and does nothing else: it writes no files, for example, and
// declares no functions.
type commandLine struct {
	commands []judged
	clear    bool
}

// A judged command is one of a line, with the commands that it may run in turn:
// itself, what it sets variables for, and, if it is sudo or the like, what is in
// its arguments.
type judged struct {
	simple simpleCommand
	fed    bool // a heredoc is its input
	inner  []simpleCommand
}

const (
	// maxNesting bounds how deep lines in the arguments of commands are looked into.
	maxNesting = 8

	// maxCommands bounds the commands of a line that are judged, and those that
	// they may run.
	maxCommands = 256

	// maxLineBytes is as long as lines may be; the rest is not read.
	maxLineBytes = 100_000

	// maxFrames bounds the calls on the stack of the parser. Each bracket takes several,
	// and some 5 KB of the stack, whose end would be that of the process.
	maxFrames = 2000
)

// parseLine returns what a line runs, whichever shell reads it. No line is clear
// on Windows, whose shell has another language.
func parseLine(line string) commandLine {
	r := readLine(line, 0)
	all := commandLine{commands: r.commands, clear: r.clear && runtime.GOOS != "windows"}
	s := search{left: maxCommands}
	for i := range all.commands {
		s.found = nil
		s.look(all.commands[i].simple, 0)
		all.commands[i].inner = s.found
	}
	all.clear = all.clear && s.left > 0
	return all
}

// A reading is what shells of one dialect make of a line.
type reading struct {
	line     string
	commands []judged
	clear    bool
	broken   bool     // the line could not be parsed to its end
	plain    bool     // the line is one command without operators and assignments
	heredocs []string // the texts that are inputs
}

// readLine reads a line as POSIX has it, where the reserved words of other shells
// are programs. What is not clear then is also read as bash does, and split at the
// operators if neither could parse it.
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
	defer func() { // the parser has panicked before
		if recover() != nil {
			r.broken, r.clear = true, false
		}
	}()
	parser := syntax.NewParser(syntax.Variant(dialect), syntax.KeepComments(true))
	f, err := parser.Parse(shallow{strings.NewReader(r.line)}, "")
	if err != nil { // f has what comes before the error, which a shell may run
		r.broken, r.clear = true, false
	}
	syntax.Walk(f, r.visit)
	if len(f.Stmts) == 1 && !f.Stmts[0].Negated && !f.Stmts[0].Background {
		call, ok := f.Stmts[0].Cmd.(*syntax.CallExpr)
		r.plain = ok && len(call.Assigns) == 0
	}
	return r
}

// A shallow reader fails when it is called from too deep a stack.
type shallow struct{ io.Reader }

func (s shallow) Read(p []byte) (int, error) {
	if runtime.Callers(maxFrames, make([]uintptr, 1)) > 0 {
		return 0, errors.New("too deep")
	}
	return s.Reader.Read(p)
}

// add adds a command that the line runs.
func (r *reading) add(c judged) {
	if len(r.commands) == maxCommands {
		r.clear = false
		return
	}
	r.commands = append(r.commands, c)
}

// merge adds the commands of another reading, but for those that both have.
func (r *reading) merge(more []judged) {
	for _, c := range more {
		if !slices.ContainsFunc(r.commands, func(o judged) bool { return o.fed == c.fed && slices.Equal(o.simple, c.simple) }) {
			r.add(c)
		}
	}
}

// split takes what stands between operators for commands.
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

// visit looks at a part of the line. What is not known here makes it unclear.
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

	// A $ that is no ordinary character: in the arithmetic $[1] of bash, and before a
	// line break that shells skip and the parser does not.
	moreOfDollar = lazyregexp.New(`(?:^|[^\\])(?:\\\\)*\$(?:\[|\\\n)`)

	// Names of variables that mean nothing to shells, as PATH does and the path of zsh.
	loopName = lazyregexp.New(`^[a-z0-9_]*[a-gi-z0-9_]$`)

	// Arithmetic without variables. Their values may run commands.
	numbers = lazyregexp.New(`^\$\(\([0-9 \t+*/%()<>=!&|^~?:-]*\)\)$`)

	// The ends of heredocs that all shells read alike, and those that are quoted.
	plainEnd  = lazyregexp.New(`^(?:[\w.-]+|'[\w.-]+'|"[\w.-]+")$`)
	quotedEnd = lazyregexp.New(`^["']`)
)

// source returns the text of a part of the line.
func (r *reading) source(n syntax.Node) string { return r.line[n.Pos().Offset():n.End().Offset()] }

// keepsFiles reports whether a redirection neither reads nor writes a file, and
// shells agree on where it ends.
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

// statement adds the simple command that a statement is.
func (r *reading) statement(s *syntax.Stmt) {
	var c judged
	if call, ok := s.Cmd.(*syntax.CallExpr); ok {
		for _, a := range call.Assigns {
			c.simple = append(c.simple, r.assigned(a))
		}
		for _, w := range call.Args {
			c.simple = append(c.simple, wordOf(w))
			if end := w.Lit(); end == "{" || end == "}" { // which are no words in zsh
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

func (r *reading) assigned(a *syntax.Assign) word {
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
	return w
}

// wordOf returns what a word says once its quotes are removed.
func wordOf(w *syntax.Word) word {
	b := wordBuilder{fixed: true}
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if i == 0 {
				b.sets = assignment().FindString(p.Value)
			}
			b.unquoted(p.Value)
		case *syntax.SglQuoted:
			b.text.WriteString(p.Value)
			b.fixed = b.fixed && !p.Dollar
		case *syntax.DblQuoted:
			b.quoted(p.Parts)
		default:
			b.fixed = false
		}
		b.begun = true
	}
	return word{b.text.String(), b.fixed, b.sets}
}

type wordBuilder struct {
	text   strings.Builder
	sets   string
	fixed  bool
	begun  bool // something of the word was read
	opened bool // a bracket or a brace that is not quoted
}

// unquoted adds a text outside quotes, in which the shell may put other words in
// the place of one: the names of files, {a,b}, homes, and what zsh makes of =program.
func (b *wordBuilder) unquoted(text string) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			i++
		case '*', '?':
			b.fixed = false
		case '~', '=':
			b.fixed = b.fixed && b.begun
		case '{', '[':
			b.opened = true
		case ',', '.', ']':
			b.fixed = b.fixed && !b.opened
		}
		b.text.WriteString(text[min(i, len(text)-1):min(i+1, len(text))])
		b.begun = true
	}
}

// quoted adds what stands in double quotes.
func (b *wordBuilder) quoted(parts []syntax.WordPart) {
	for _, part := range parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			b.fixed = false
			continue
		}
		for i := 0; i < len(lit.Value); i++ {
			if lit.Value[i] == '\\' && i+1 < len(lit.Value) && strings.IndexByte("$`\"\\", lit.Value[i+1]) >= 0 {
				i++
			}
			b.text.WriteByte(lit.Value[i])
		}
	}
}

var (
	assignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

	// Words that a command may begin with and that are no programs, for lines that
	// are split at their operators.
	reserved = []string{"!", "{", "if", "then", "else", "elif", "do", "while", "until", "function"}

	shells = []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "su", "ssh"}

	// Programs and words of shells that run the program named by one of their
	// arguments, or a line that is one.
	runners = append([]string{
		"-", "alias", "arch", "at", "builtin", "bundle", "busybox", "bwrap", "caffeinate", "chpst", "chroot", "chrt", "command", "coproc",
		"dbus-run-session", "direnv", "doas", "entr", "env", "eval", "exec", "fakeroot", "fd", "fdfind", "find", "firejail", "flock", "gosu",
		"hyperfine", "ionice", "linux32", "linux64", "ltrace", "machinectl", "mise", "nice", "nix", "nix-shell", "nocorrect", "noglob", "nohup",
		"nsenter", "numactl", "parallel", "perf", "pipenv", "pkexec", "poetry", "prlimit", "proot", "proxychains", "proxychains4", "repeat",
		"run0", "runuser", "screen", "script", "setarch", "setpriv", "setsid", "sg", "start-stop-daemon", "stdbuf", "strace", "su-exec", "sudo",
		"systemd-inhibit", "systemd-run", "taskset", "time", "timeout", "tini", "tmux", "torsocks", "toybox", "trap", "unbuffer", "unshare",
		"uv", "valgrind", "watch", "watchexec", "xargs", "xvfb-run",
	}, shells...)

	// What may stand before a line in one word, as in -c'git push'.
	beforeLine = lazyregexp.New(`^(?:--[a-z-]+=|-[A-Za-z])`)
)

// A search looks for commands behind commands. It gives up after so many.
type search struct {
	found []simpleCommand
	left  int
}

func (s *search) look(c simpleCommand, depth int) {
	for ; len(c) > 0 && s.left > 0; c = c[1:] {
		s.left--
		s.found = append(s.found, c)
		if !assignment().MatchString(c[0].text) && !slices.Contains(reserved, c[0].text) {
			break
		}
	}
	if len(c) == 0 || s.left <= 0 {
		return
	}
	if depth >= maxNesting {
		s.left = 0
		return
	}
	if !slices.Contains(runners, path.Base(c[0].text)) {
		return
	}
	for i := 1; i < len(c) && s.left > 0; i++ {
		s.look(c[i:], depth+1)
		s.lookInto(c[i], depth+1)
		if _, line, ok := strings.Cut(c[i].text, "="); ok && c[0].text == "alias" {
			s.lookAt(line, depth+1)
		}
	}
}

// lookInto looks for commands in a word that may be a line, or end in one.
func (s *search) lookInto(w word, depth int) {
	if !w.fixed {
		s.found = append(s.found, simpleCommand{{text: w.text}}) // a line that is not known
	}
	if strings.ContainsAny(w.text, blanks+shellSigns) { // else what begins with it has been looked at
		s.lookAt(w.text, depth)
	}
	if line := beforeLine().ReplaceAllString(w.text, ""); line != w.text {
		s.lookAt(line, depth)
	}
}

func (s *search) lookAt(line string, depth int) {
	s.left -= len(line) / 4096 // long ones take their time
	for _, c := range readLine(line, depth).commands {
		s.look(c.simple, depth)
	}
}

// program returns the name of a command's program from its first word, which is
// the word itself where it sets a variable.
func program(first string) string {
	if assignment().MatchString(first) {
		return first
	}
	return path.Base(first)
}
