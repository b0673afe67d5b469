package chord

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// stats is what /stats shows, since the client came.
type stats struct {
	turns, rounds, tools int
	input, output        int64 // tokens
	cost                 float64
}

const help = `/help            this text
/models          the model
/stats           what the session has used since you came
/new             a new session
/rules           the rules that answer confirm requests; /rules undo removes the last one that you made
/take, /release  take or give back control of a session that others use too
Any other text goes to the agent.`

// slash executes a command of the server that was sent as a message. It returns false if
// the text is for the agent.
func (t *Translator) slash(out *dialect.Out, content string) bool {
	text := strings.TrimSpace(content)
	name, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	if t.refused(out, name, rest) {
		return true
	}
	switch name {
	case "/help":
		t.dismissLocally(out)
		t.info(out, help)
	case "/stats":
		t.dismissLocally(out)
		s := t.stats
		t.info(out, fmt.Sprintf("%d turns, %d model rounds, %d tool calls, %d input and %d output tokens, %.4f USD",
			s.turns, s.rounds, s.tools, s.input, s.output, s.cost))
	case "/models":
		t.dismissLocally(out)
		t.slashModels(out, rest)
	case "/new":
		t.fresh(out)
	case "/rules":
		t.showRules(out, rest)
	case "/take":
		t.lease(out, &contracts.TakeControl{}, "you are in control of the session")
	case "/release":
		t.lease(out, &contracts.ReleaseControl{}, "you have given up control of the session")
	default:
		return false
	}
	return true
}

// refused refuses a command that needs a screen or that this server does not have.
func (t *Translator) refused(out *dialect.Out, name, rest string) bool {
	switch {
	case name == "/export", rest == "" && (name == "/resume" || name == "/mcp"):
		t.fail(out, "", name+" is only available in local TUI mode")
	case slices.Contains([]string{"/compact", "/loop", "/mcp", "/rename", "/tier", "/yolo"}, name):
		t.unsupported(out, name)
	default:
		return false
	}
	return true
}

func (t *Translator) unsupported(out *dialect.Out, name string) {
	t.fail(out, "unsupported", name+" is not supported by this server")
}

// dismissLocally is dismiss for a message that needs no control.
func (t *Translator) dismissLocally(out *dialect.Out) {
	if t.holder == "" || t.holder == t.self {
		t.dismiss(out)
	}
}

func (t *Translator) slashModels(out *dialect.Out, rest string) {
	if rest == "" || rest == "status" || rest == thePool {
		t.info(out, t.modelStatus())
		return
	}
	t.fail(out, "", "unknown model pool: "+rest)
}

// fresh opens a new session in place of the present one.
func (t *Translator) fresh(out *dialect.Out) {
	if !t.options.NewSessions {
		t.unsupported(out, "/new")
		return
	}
	if t.busy {
		t.running, t.prompt, t.queue, t.cancelled = false, nil, nil, true
		t.idle(out)
	}
	t.round, t.pending, t.rules = round{}, nil, nil
	clear(t.sent)
	clear(t.calls)
	t.open(out, dialect.Start{})
}

// lease asks for a change of the lease, and tells the client once it has happened.
func (t *Translator) lease(out *dialect.Out, f contracts.Frame, done string) {
	id := t.await(func(out *dialect.Out, refused *contracts.Refusal) {
		if refused != nil {
			t.refuse(out, refused)
			return
		}
		t.info(out, done)
	})
	switch f := f.(type) {
	case *contracts.TakeControl:
		f.ID = id
	case *contracts.ReleaseControl:
		f.ID = id
	}
	if err := out.Send(f); err != nil {
		panic(err) // the frame has no text of the client
	}
}

// await returns the id of the next frame. done is called with its answer.
func (t *Translator) await(done func(*dialect.Out, *contracts.Refusal)) (id string) {
	t.serial++
	id = fmt.Sprintf("chord-%d", t.serial)
	t.sent[id] = done
	return id
}

// showRules lists the rules, or removes the last one that the connection made.
func (t *Translator) showRules(out *dialect.Out, rest string) {
	switch {
	case rest == "undo":
		t.undoRule(out)
	case rest != "":
		t.fail(out, "", "want /rules or /rules undo")
	case len(t.stored)+len(t.rules) == 0:
		t.info(out, "there are no rules")
	default:
		var lines []string
		for _, r := range slices.Concat(t.stored, t.rules) {
			lines = append(lines, r.String())
		}
		t.info(out, strings.Join(lines, "\n"))
	}
}

func (t *Translator) undoRule(out *dialect.Out) {
	n := len(t.rules) - 1
	if n < 0 {
		t.fail(out, "", "this connection has made no rule")
		return
	}
	last := t.rules[n]
	if last.Scope != ScopeSession && t.options.Rules.Remove(last) != nil {
		t.fail(out, codeRuleNotKept, "the rule could not be removed from its file")
		return
	}
	t.rules = t.rules[:n]
	t.info(out, "removed: "+last.String())
}
