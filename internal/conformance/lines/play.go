package lines

import (
	"fmt"
	"path/filepath"
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

	clients int // that were started
}

// Scenario returns a scenario about one rule.
func Scenario(name, rule, title string, story func(*Play)) conformance.Scenario {
	return conformance.Scenario{Name: name, Title: title, Rules: []string{rule}, Run: func(s *conformance.Session) {
		story(&Play{S: s, Rule: rule, Model: NewModel(s), Dir: s.Scratch(), Home: s.Scratch()})
	}}
}

// Fail ends the scenario, because the server broke its rule.
func (p *Play) Fail(format string, args ...any) { p.S.Fail(p.Rule, format, args...) }

// FailIf ends the scenario if the server broke its rule.
func (p *Play) FailIf(broken bool, format string, args ...any) {
	if broken {
		p.Fail(format, args...)
	}
}

// None ends the scenario if there is a line. what says which lines were expected.
func (p *Play) None(all []Line, what string, args ...any) {
	if len(all) > 0 {
		p.Fail("expected %s, got %s", fmt.Sprintf(what, args...), all[0])
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

// Sleep makes the model call the shell tool on a prompt, with a command that takes 30 s. It
// returns the path of a file that gets the id of a process.
func (p *Play) Sleep(prompt string) (pid string) {
	pid = filepath.Join(p.Dir, "pid")
	p.Model.On(prompt, Reply{Calls: []Call{Shell("sleep 30 & echo $! > '" + pid + "'; wait")}})
	return pid
}

// Sleeping waits for the process with the id in a file. If there is none, the scenario does
// not apply.
func (p *Play) Sleeping(pid string) {
	if _, known := Alive(pid, p.S.Config().Patience); !known {
		p.S.Skip("not applicable: the command of the shell tool wrote no file")
	}
}

// Gone expects the process with the id in a file to end in time.
func (p *Play) Gone(pid string, until time.Time, what string) {
	for {
		if alive, _ := Alive(pid, 0); !alive {
			return
		}
		p.FailIf(time.Now().After(until), "expected %s", what)
		time.Sleep(50 * time.Millisecond)
	}
}
