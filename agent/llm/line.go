package llm

import (
	"path"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// A word is a word of a command with its quotes removed. What it says is decided
// by the shell unless it is fixed. It begins with what it sets, a name and =,
// whatever the shell decides.
type word struct {
	text  string
	fixed bool
	sets  string // may be empty
}

// A simpleCommand is a program with its arguments.
type simpleCommand []word

// A commandLine is what a line for the shell runs: the simple commands in it,
// those in substitutions included. Unless it is clear there may be more to it
// than them: files that are written, functions, loops, or what could not be read.
type commandLine struct {
	commands []judged
	clear    bool
}

// A judged command is one with the commands that it may run in turn, itself the
// first: what stands behind assignments, reserved words, sudo and the like, and
// in the lines that these and shells are given.
type judged struct {
	simple simpleCommand
	inner  []simpleCommand
}

const (
	// maxNesting bounds how deep substitutions and shells in shells are looked
	// into.
	maxNesting = 8

	// maxCommands bounds the simple commands of a line that are judged, and
	// those that they may run.
	maxCommands = 256
)

// parseLine takes a line for a POSIX shell apart. What is not understood makes
// it unclear and is read on as ordinary text. No line is clear on Windows, whose
// shell reads it in another way.
func parseLine(line string) commandLine {
	p := parseNested(line, 0)
	p.clear = p.clear && runtime.GOOS != "windows"
	all := commandLine{clear: p.clear}
	s := search{left: maxCommands}
	for _, command := range p.commands {
		s.found = nil
		s.look(command, 0)
		all.commands = append(all.commands, judged{command, s.found})
	}
	all.clear = all.clear && s.left > 0
	return all
}

func parseNested(line string, depth int) *lineParser {
	p := &lineParser{text: line, clear: utf8.ValidString(line), depth: depth}
	p.parse(0)
	return p
}

// harmless are redirections that neither read nor write a file.
var harmless = lazyregexp.New(`^(?:>>?[ \t]*/dev/null|<[ \t]*/dev/null|>&[ \t]*[12])(?:$|[ \t\n;&|)])`)

// A lineParser reads a line once, from left to right.
type lineParser struct {
	text     string
	at       int
	depth    int
	commands []simpleCommand
	clear    bool

	// The command and the word that are being read.
	words   simpleCommand
	word    []byte
	started bool // there is a word, if only an empty one
	fixed   bool
	sets    string
	quoted  bool // something in the word is
	opened  bool // a brace or a bracket in it is, which is not quoted
}

// parse reads commands up to an unquoted end, which it takes too, or the end of
// the text if end is 0.
func (p *lineParser) parse(end byte) {
	for p.at < len(p.text) {
		c := p.text[p.at]
		if end != 0 && c == end {
			p.at++
			p.endCommand()
			return
		}
		p.step(c)
	}
	p.endCommand()
	if end != 0 {
		p.clear = false // it is not closed
	}
}

// step reads what begins with c.
func (p *lineParser) step(c byte) {
	switch {
	case c == ' ' || c == '\t':
		p.at++
		p.endWord()
	case strings.IndexByte("\n;&|()", c) >= 0:
		p.operator(c)
	case c == '<' || c == '>':
		p.redirect()
	case c == '\'':
		p.single()
	case c == '"':
		p.double()
	case c == '\\':
		p.escape()
	case c == '$':
		p.dollar(false)
	case c == '`':
		p.backquote()
	default:
		if c == '#' && !p.started || c < ' ' || c == 0x7f {
			p.clear = false
		}
		p.expand(c)
		p.put(c)
		p.at++
	}
}

// expand looks for what makes the shell put other words in the place of one: names
// of files, {a,b}, homes, and =program, of which zsh makes its path.
func (p *lineParser) expand(c byte) {
	first := !p.started
	p.begin()
	if c == '=' && p.fixed && !p.quoted && p.sets == "" {
		p.sets = assignment().FindString(string(p.word) + "=")
	}
	switch c {
	case '*', '?':
		p.fixed = false
	case '~', '=':
		p.fixed = p.fixed && !first
	case '{', '[':
		p.opened = true
	case ',', '.', ']':
		p.fixed = p.fixed && !p.opened
	}
}

// put adds a character to the word.
func (p *lineParser) put(c byte) {
	p.begin()
	p.word = append(p.word, c)
}

// begin makes sure that there is a word.
func (p *lineParser) begin() {
	if !p.started {
		p.started, p.fixed, p.sets, p.quoted, p.opened = true, true, "", false, false
	}
}

// vary says that the shell decides a part of the word.
func (p *lineParser) vary() {
	p.begin()
	p.fixed = false
}

func (p *lineParser) endWord() {
	if p.started {
		p.words = append(p.words, word{string(p.word), p.fixed, p.sets})
	}
	p.word, p.started = p.word[:0], false
}

func (p *lineParser) endCommand() {
	p.endWord()
	if len(p.words) > 0 {
		p.add(p.words)
	}
	p.words = nil
}

func (p *lineParser) add(commands ...simpleCommand) {
	p.commands = append(p.commands, commands...)
	if len(p.commands) > maxCommands {
		p.commands, p.clear = p.commands[:maxCommands], false
	}
}

// operator reads what stands between commands.
func (p *lineParser) operator(c byte) {
	if c == '(' || c == ')' || c == '&' && strings.HasPrefix(p.text[p.at:], "&>") {
		p.clear = false
	}
	p.endCommand()
	p.at++
}

// redirect reads a redirection. Its target is left as a word of the command.
func (p *lineParser) redirect() {
	if p.started && !p.quoted && p.fixed && strings.Trim(string(p.word), "0123456789") == "" {
		p.word, p.started = p.word[:0], false // the number of what is redirected
	}
	p.endWord()
	rest := p.text[p.at:]
	if loc := harmless().FindStringIndex(rest); loc != nil {
		size := loc[1]
		if size > 1 && strings.IndexByte(" \t\n;&|)", rest[size-1]) >= 0 {
			size-- // what ends it is read next
		}
		p.at += size
		return
	}
	p.clear = false
	p.at++
	if strings.HasPrefix(p.text[p.at:], "(") {
		p.at++
		p.nested(')')
	}
}

func (p *lineParser) single() {
	p.begin()
	p.quoted = true
	text, _, closed := strings.Cut(p.text[p.at+1:], "'")
	p.word = append(p.word, text...)
	p.at += len(text) + 2
	if !closed {
		p.clear = false
		p.at = len(p.text)
	}
}

func (p *lineParser) double() {
	p.begin()
	p.quoted = true
	p.at++
	for p.at < len(p.text) {
		switch c := p.text[p.at]; c {
		case '"':
			p.at++
			return
		case '$':
			p.dollar(true)
		case '`':
			p.backquote()
		case '\\':
			if p.at+1 < len(p.text) && strings.IndexByte("$`\"\\\n", p.text[p.at+1]) >= 0 {
				p.escape()
				continue
			}
			p.put(c)
			p.at++
		default:
			p.put(c)
			p.at++
		}
	}
	p.clear = false
}

// escape reads a backslash and the character after it.
func (p *lineParser) escape() {
	p.at++
	switch {
	case p.at == len(p.text):
		p.clear = false
		p.put('\\')
		return
	case p.text[p.at] != '\n': // else the line goes on
		p.put(p.text[p.at])
		p.quoted = true
	}
	p.at++
}

// dollar reads what the shell replaces.
func (p *lineParser) dollar(quoted bool) {
	rest := p.text[p.at+1:]
	switch {
	case strings.HasPrefix(rest, "("):
		p.clear = p.clear && !strings.HasPrefix(rest, "((")
		p.vary()
		p.at += 2
		p.nested(')')
	case strings.HasPrefix(rest, "{"):
		p.clear = false
		p.vary()
		p.at += 2
	case !quoted && (strings.HasPrefix(rest, "'") || strings.HasPrefix(rest, `"`)):
		p.clear = false
		p.at++
	default:
		name := variable().FindString(rest)
		if name == "" {
			p.put('$')
		} else {
			p.vary()
		}
		p.at += 1 + len(name)
	}
}

var variable = lazyregexp.New(`^(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?$!@*#-])`)

// backquote reads the older form of a substitution. What is escaped in it would
// have to be read twice.
func (p *lineParser) backquote() {
	p.vary()
	text, _, closed := strings.Cut(p.text[p.at+1:], "`")
	p.at = min(p.at+len(text)+2, len(p.text))
	if !closed || strings.Contains(text, `\`) || p.depth >= maxNesting {
		p.clear = false
	}
	if p.depth < maxNesting {
		inner := parseNested(text, p.depth+1)
		p.clear = p.clear && inner.clear
		p.add(inner.commands...)
	}
}

// nested reads the commands of a substitution that has been opened.
func (p *lineParser) nested(end byte) {
	if p.depth >= maxNesting {
		p.clear = false
		return
	}
	inner := lineParser{text: p.text, at: p.at, depth: p.depth + 1, clear: true}
	inner.parse(end)
	p.at = inner.at
	p.clear = p.clear && inner.clear
	p.add(inner.commands...)
}

var (
	assignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

	// Words before which a command may still begin.
	reserved = []string{"!", "{", "}", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "time", "case", "esac", "in", "function", "coproc"}

	// Programs that run the program named by one of their arguments, or a line
	// that is one.
	runners = []string{
		"sudo", "doas", "su", "env", "command", "builtin", "exec", "nohup", "nice", "ionice", "timeout", "xargs",
		"setsid", "stdbuf", "find", "parallel", "watch", "chroot", "busybox", "strace", "unshare", "flock",
		"sh", "bash", "dash", "zsh", "ksh", "ash", "eval", "trap",
	}

	// An option may have its line in the same word, as in -c'git push'.
	lineOption = lazyregexp.New(`^(?:--[a-z-]+=|-[A-Za-z])`)
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
		if !assignment().MatchString(c[0].text) && !(c[0].fixed && slices.Contains(reserved, c[0].text)) {
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
	}
}

// lookInto looks for commands in a word that may be a line.
func (s *search) lookInto(w word, depth int) {
	if !w.fixed {
		s.found = append(s.found, simpleCommand{{text: w.text}}) // a line that is not known
	}
	if !strings.ContainsAny(w.text, blanks+shellSigns) {
		return // what begins with it has been looked at
	}
	for _, command := range parseNested(lineOption().ReplaceAllString(w.text, ""), depth).commands {
		s.look(command, depth)
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
