package conformance

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exactTexts returns the texts in the table of docs/protocol.md.
func exactTexts(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Texts\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var texts []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\| ").FindAllStringSubmatch(table, -1) {
		texts = append(texts, row[1])
	}
	if len(texts) == 0 {
		t.Fatal("got no table of texts in docs/protocol.md")
	}
	return texts
}

// anyWord is a word in angle brackets.
var anyWord = regexp.MustCompile(`<[a-z ]+>`)

// stringOf returns a string expression, with <x> for its parts that are not literal, and
// whether it has a literal part.
func stringOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, known := stringOf(e.X)
		right, alsoKnown := stringOf(e.Y)
		return left + right, known || alsoKnown
	}
	return "<x>", false
}

// demanded returns the texts that a node of the suite demands word by word: of refusals,
// and of the fields of messages that hold text.
func demanded(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && slices.Contains([]string{"text", "prefix"}, key.Name) {
			return []ast.Expr{n.Value}
		}
		if key, ok := stringOf(n.Key); ok && key == "reason" {
			return []ast.Expr{n.Value}
		}
	case *ast.ValueSpec:
		if strings.HasPrefix(n.Names[0].Name, "text") {
			return n.Values
		}
	case *ast.CallExpr:
		called, ok := n.Fun.(*ast.SelectorExpr)
		switch {
		case !ok:
		case called.Sel.Name == "refused" && len(n.Args) == 3:
			return n.Args[2:]
		case called.Sel.Name == "unread" || called.Sel.Name == "refusedFree":
			return n.Args[1:2]
		case called.Sel.Name == "with" && len(n.Args) == 2:
			if field, ok := stringOf(n.Args[0]); ok && (field == "message" || field == "reason" || strings.HasSuffix(field, "last_status")) {
				return n.Args[1:]
			}
		case called.Sel.Name == "failsWith":
			return n.Args[2:]
		}
	}
	return nil
}

// TestTextsListWhatScenariosDemand is about the table in docs/protocol.md.
func TestTextsListWhatScenariosDemand(t *testing.T) {
	// What the clients and the agent of scenarios say, JSON, single words such as codes
	// and names, and what begins with a variable.
	other := regexp.MustCompile(`^(Prompt: .*|Not on a Friday|Go ahead|it is free|not now|for conformance|\{.*|[a-z_-]+|[A-Z_]+|<x>.*|)$`)
	var patterns []*regexp.Regexp
	texts := exactTexts(t)
	for _, known := range texts {
		parts := anyWord.Split(known, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		patterns = append(patterns, regexp.MustCompile("^"+strings.Join(parts, ".*")+"$"))
	}
	var all strings.Builder
	for path, file := range goFiles(t, ".") {
		if strings.Contains(path, "/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				text, _ := stringOf(lit)
				all.WriteString(text + "\x00")
			}
			for _, e := range demanded(n) {
				text, literal := stringOf(e)
				if literal && !other.MatchString(text) && !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool {
					return p.MatchString(text) || p.MatchString(text+"<x>") // the beginning of one
				}) {
					t.Errorf("%s demands %q, which is not in the list of texts", path, text)
				}
			}
			return true
		})
	}
	for _, known := range texts {
		for _, part := range anyWord.Split(known, -1) {
			if !strings.Contains(all.String(), strings.TrimSpace(part)) {
				t.Errorf("no scenario demands %q of %q", part, known)
			}
		}
	}
}
