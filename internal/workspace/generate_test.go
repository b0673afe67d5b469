package workspace

import (
	"math/rand/v2"
	"strings"
)

// A grammar makes random lines of ignore files and names for them to match.
type grammar struct {
	name string
	line func(*rand.Rand) string
	part func(*rand.Rand) string // one name of a path
}

func grammars() []grammar {
	return []grammar{
		{"random characters", randomLine, randomPart},
		{"adversarial", adversarialLine, func(r *rand.Rand) string {
			return pick(r, "a", "b", "ab", "foo", "Foo", "bar", "f1", "x.txt", "b.log", "A", "a b", "f]", "[a]", "foo ", "a\\b", "a\nb", "ä", "\xff", "-", "^", "#h", "!n")
		}},
		{"templates", templateLine, func(r *rand.Rand) string {
			return pick(r, "src", "node_modules", "dist", "build", "target", "vendor", "docs", "_build", "bin", "a.go", "b.log", "keep.log", ".env",
				".env.local", ".env.example", "m.pyc", "m.py", "x~", ".gitkeep", "a.tmp", ".idea", "coverage", "tmp", "Debug", "core", "a.min.js", "Icon\r")
		}},
	}
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// several joins up to most random things.
func several(r *rand.Rand, most int, one func(*rand.Rand) string, between string) string {
	all := make([]string, 1+r.IntN(most))
	for i := range all {
		all[i] = one(r)
	}
	return strings.Join(all, between)
}

const common = "aaabbbAB.-^!*?[]\\ #/+$(){}|:,0"

func randomByte(r *rand.Rand) string {
	if r.IntN(12) == 0 {
		return string([]byte{byte(r.IntN(256))})
	}
	return string(common[r.IntN(len(common))])
}

func randomLine(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return several(r, 9, randomByte, "")
	}
	return several(r, 6, func(r *rand.Rand) string {
		return pick(r, "a", "b", "a", "b", "/", "*", "**", "?", ".", "[ab]", "[!a]", "[a-c]", "!", `\`, "/", "+", "^", "$", "(a)", " ", "|", "{a}", "]", "[", "-", "[:alpha:]", "ä", "\r", "\x00")
	}, "")
}

func randomPart(r *rand.Rand) string {
	return plainName(several(r, 3, randomByte, ""))
}

// plainName makes a name of s that a file can have.
func plainName(s string) string {
	s = strings.NewReplacer("/", "b", "\x00", "a").Replace(s)
	switch strings.ToLower(s) {
	case "", ".", "..", ".git", ".gitignore", ".hg", ".svn", ".bzr", ".jj":
		return "a" + strings.TrimLeft(s, ".")
	}
	return s
}

func adversarialLine(r *rand.Rand) string {
	if r.IntN(25) == 0 {
		return pick(r, "", "#", "# a", `\#h`, `\!n`, "!", "/", "//", "!/", "**", "/**", "**/", "***", " ", "\r", "a\x00b", "a\r\r", "!!n", `\`, "/**/", "**/**", "**/**/a", "./a", "a/../b", "a//b",
			"f[", "f[a", "[]", "[!]", "[]]", "[!]]a", "[[:alpha:]", "[[:nope:]]", "[[::]]", "[[:]", "[a-]", "[-a]", "[z-a]", `[\]]`, `[a\-c]`, `[\`, `[[-\]]`, "[,-0]", "[^/]", "[a/b]",
			strings.Repeat("*", 5000)+"a", strings.Repeat("?", 5000), strings.Repeat("a", 5000), "["+strings.Repeat("a-c", 2000)+"]*", strings.Repeat("[a-f]", 1000), "**/**/**/a")
	}
	var b strings.Builder
	b.WriteString(pick(r, "", "", "", "!", "!", "/", "/", "!/", "**/", "***/", "\ufeff"))
	b.WriteString(several(r, 3, segment, pick(r, "/", "/", "/", "/", "//", `\/`, "/**/")))
	b.WriteString(pick(r, "", "", "", "", "/", "/", "/**", "/*", " ", "  ", `\ `, `\  `, `\\ `, "\t", "\r", " \r", "\r ", "**", "/***"))
	return b.String()
}

func segment(r *rand.Rand) string {
	return several(r, 3, func(r *rand.Rand) string {
		return pick(r, "a", "b", "foo", "bar", "f", "x", ".txt", ".log", "A", "F", "1", "*", "*", "**", "***", "?", `\*`, `\a`, `\A`, `\[`, `\ `, " ", "ä", "\xff", set(r), set(r), set(r))
	}, "")
}

func set(r *rand.Rand) string {
	members := several(r, 3, func(r *rand.Rand) string {
		return pick(r, "a", "b", "f", "A", "-", "a-c", "A-Z", "a-Z", "0-9", "Z-a", " -~", "+-9", "!", "^", "[", ".", `\]`, `\\`, `\a`, `\--z`, "\x80-\xff",
			"[:alnum:]", "[:alpha:]", "[:blank:]", "[:cntrl:]", "[:digit:]", "[:graph:]", "[:lower:]", "[:print:]", "[:punct:]", "[:space:]", "[:upper:]", "[:xdigit:]", "[:Alpha:]", "[:a")
	}, "")
	return "[" + pick(r, "", "", "!", "^") + pick(r, "", "", "", "]") + members + pick(r, "]", "]", "]", "]", "]", "]", "-]", "")
}

func templateLine(r *rand.Rand) string {
	return pick(r, "node_modules/", "dist", "/build", "*.log", "!keep.log", ".env*", "!.env.example", "target/", "*.py[cod]", "coverage/", "/bin/", "docs/_build/",
		"src/gen/", ".idea/", "*~", "tmp/*", "!tmp/.gitkeep", "**/*.tmp", "/vendor/", "out/", "# comment", "", "*.log ", "[Dd]ebug/", "Icon\r\r", "*.min.js", "!src/*.min.js",
		"**/node_modules/**", "build/**", "!build/.gitkeep", "/*", "!/src", "!/docs/", "*", "!*/", "!*.go", ".env.local\r", "/docs/**/*.tmp", "core", "!core/", "vendor/*/bin", "*.t?p")
}

// likely returns a path that a line is likely to match, or to miss by a little.
func (g grammar) likely(r *rand.Rand, line string) string {
	line = strings.Trim(strings.TrimLeft(line, "!"), "/\r")
	var b strings.Builder
	for i := 0; i < len(line) && i < 60; i++ {
		switch c := line[i]; {
		case c == '*' && strings.HasPrefix(line[i:], "**") && r.IntN(2) == 0:
			b.WriteString(several(r, 2, g.part, "/"))
		case c == '*':
			b.WriteString(pick(r, "", "a", "b", "foo", g.part(r)))
		case c == '?':
			b.WriteString(pick(r, "a", "b", "1", "/"))
		case c == '[':
			b.WriteString(pick(r, "a", "b", "c", "f", "A", "Z", "1", "-", "]", "^", "!", "[", " ", ".", "\t", "\v", "\xe4", "\n"))
			if end := strings.IndexByte(line[i+1:], ']'); end >= 0 {
				i += 1 + end
			}
		case c == '\\' && r.IntN(4) > 0:
		default:
			b.WriteByte(c)
		}
	}
	if r.IntN(6) == 0 {
		b.WriteString("/" + g.part(r))
	}
	return plainPath(b.String())
}

// plainPath makes a path of s in which every name is one that a file can have.
func plainPath(s string) string {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' })
	for i := range parts {
		parts[i] = plainName(parts[i])
	}
	if len(parts) == 0 {
		return "a"
	}
	return strings.Join(parts[:min(len(parts), 5)], "/")
}
