package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goFiles returns the Go files below a directory with their comments, by path.
func goFiles(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRulesAreOrderedAndCheckedByAScenarioOrSayByWhat(t *testing.T) {
	if !slices.IsSortedFunc(rules(), func(a, b Rule) int { return compareCodes(a.Code, b.Code) }) {
		t.Error("got rules out of the order of compareCodes")
	}
	for _, r := range rules() {
		whole, ok := findRule(rules(), numberOfRule(r.Code))
		switch {
		case !ok:
			t.Errorf("%s: got no rule that it is a part of", r.Code)
		case (len(Maestro().citing(r)) == 0) != (rules()[whole].Checked != ""):
			t.Errorf("%s: got %d scenarios and checked by %q, want one of them", r.Code, len(Maestro().citing(r)), Maestro().checkedBy(r))
		}
		for _, text := range []string{r.Text, r.Why} {
			if text != "" && !strings.HasSuffix(text, ".") || r.Text == "" {
				t.Errorf("%s: got %q, want a sentence", r.Code, text)
			}
		}
	}
}

// TestEveryCitedRuleIsListed is about the rules of scenarios, about codes that scenarios
// fail with, and about those in comments and pages.
func TestEveryCitedRuleIsListed(t *testing.T) {
	want := func(where, code string) {
		if _, ok := findRule(rules(), code); !ok {
			t.Errorf("%s cites %s, which is not in the list of rules", where, code)
		}
	}
	for _, s := range Scenarios() {
		for _, code := range s.Rules {
			want(s.Name, code)
		}
	}
	literal := regexp.MustCompile(`^([RA][0-9]+|D[0-9]+|[0-9]+\.[0-9]+)(:[a-z0-9-]+)?$`)
	section := regexp.MustCompile(`(?:^|[^0-9] |\()section ([0-9]+\.[0-9]+)`)
	mention := regexp.MustCompile(`\b([RA][0-9]{1,3}|D[0-9]{1,2})(:[a-z][a-z-]+)?\b`)
	for path, file := range goFiles(t, "..") {
		for _, group := range file.Comments {
			for _, code := range mention.FindAllString(group.Text(), -1) {
				want(path, code)
			}
			for _, found := range section.FindAllStringSubmatch(group.Text(), -1) {
				want(path, found[1])
			}
		}
		if dir := filepath.Dir(path); dir != "." && dir != "shape" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if code, err := strconv.Unquote(lit.Value); err == nil && literal.MatchString(code) && code != "1.0" { // a version
					want(path, code)
				}
			}
			return true
		})
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, "../README.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range mention.FindAllString(string(text), -1) {
			want(path, code)
		}
	}
}

func TestExplainPrintsTheRuleAndItsScenarios(t *testing.T) {
	var out strings.Builder
	if err := Explain(&out, []string{"R3", "R46:gated", "R12", "A47"}, Maestro()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"R3: Accept input lines that end with LF or CR LF, and a last line without an end.\nframing/crlf  ",
		"  A line may end with CR LF\n",
		"\n\nR46:gated *: Announce a call that needs approval with one tool_call, and start it after the approval.\n    * not in the published protocol. Clients would show work that may never be done.\nagent/tools  ",
		"\n\nR12: Refuse duplicate entries in the capabilities of a hello.\nR12:opt-outs *: Accept a hello that",
		"hello_ok.\n    * not in the published protocol. The published schema allows the repetition in a hello and forbids it in the answer.\nframing/duplicate-capability  ",
		"\n\nA47: Send only envelopes of the known closed shapes.\nA47:additive *: Send only the keys of the published schemas.\n    * not in the published protocol. Clients that check messages against closed schemas drop the whole message.\nchecked by every scenario\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got no %q in:\n%s", want, out.String())
		}
	}
}

func TestExplainNamesTheNearestOfAnUnknownRule(t *testing.T) {
	for code, want := range map[string]string{
		"R10":      `no rule "R10"; the nearest: R9, R11`,
		"R46:gate": `no rule "R46:gate"; the nearest: R46, R46:gated`,
		"R0":       `no rule "R0"; the nearest: R1`,
		"99.9":     `no rule "99.9"; the nearest: 10.3`,
		"x":        `no rule "x"; the nearest: D16, 0.2`,
	} {
		var out strings.Builder
		if err := Explain(&out, []string{"R3", code}, Maestro()); err == nil || err.Error() != want || out.Len() > 0 {
			t.Errorf("got %v and %q, want %s and no text", err, out.String(), want)
		}
	}
}

func TestExplainFindsTheRulesOfAllProtocols(t *testing.T) {
	other := func(protocol, rule string) *Suite {
		return &Suite{Protocol: protocol, Rules: ParseRules(rule + "\n"), Scenarios: []Scenario{{Name: protocol + "/one", Rules: []string{"H1"}}}}
	}
	heddle, copied := other("heddle", "H1 Be silent."), other("copied", "H1 Be quiet.")
	var out strings.Builder
	if err := Explain(&out, []string{"H1", "A47"}, Maestro(), heddle, copied); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"H1 (heddle): Be silent.\nheddle/one  ", "\n\nH1 (copied): Be quiet.\ncopied/one  ", "\n\nA47: Send "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got no %q in:\n%s", want, out.String())
		}
	}
	const want = `no rule "H7"; the nearest: H1, 0.2`
	if err := Explain(&out, []string{"H7"}, Maestro(), heddle); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
