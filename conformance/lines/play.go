package lines

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// A Play is one scenario about one rule being played against a server. Its methods must
// be called in the scenario's goroutine.
type Play struct {
	S     *conformance.Session
	Rule  string
	Model *Model
	Dir   string // where the server runs
	Home  string // of the server
}

// Scenario returns a scenario about one rule.
func Scenario(name, rule, title string, story func(*Play)) conformance.Scenario {
	return conformance.Scenario{Name: name, Title: title, Rules: []string{rule}, Run: func(s *conformance.Session) {
		story(&Play{S: s, Rule: rule, Model: NewModel(s), Dir: s.Scratch(), Home: s.Scratch()})
	}}
}

// FailIf ends the scenario if the server broke its rule.
func (p *Play) FailIf(broken bool, format string, args ...any) {
	if broken {
		p.S.Fail(p.Rule, format, args...)
	}
}

// Long is how long a server may take for something that needs the model.
func (p *Play) Long() time.Duration { return 4 * p.S.Config().Patience }

// Offered returns the tool with a purpose that the model was offered for a prompt. If
// there is none, the scenario does not apply.
func (p *Play) Offered(prompt, kind string) Tool {
	requests := p.Model.Requests(prompt)
	p.FailIf(len(requests) == 0, "expected the message %q to reach the model, but it did not", prompt)
	for _, r := range requests {
		if tool, ok := ToolFor(r.Tools, kind); ok {
			return tool
		}
	}
	p.S.Skip("not applicable: the server offers the model no %s tool (%s)", kind, strings.Join(kinds[kind], ", "))
	return Tool{}
}

// Quiet is how long a scenario waits before it believes that nothing comes.
const Quiet = 300 * time.Millisecond

// Only returns the lines that ok accepts.
func Only(all []Line, ok func(Line) bool) []Line {
	return slices.DeleteFunc(slices.Clone(all), func(l Line) bool { return !ok(l) })
}

// First shows the first line, if there is one.
func First(all []Line) string {
	if len(all) == 0 {
		return "nothing"
	}
	return all[0].String()
}
