package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/workspace"
)

// The arguments that rules look at, whichever tool they belong to.
const (
	commandKey = "command"
	pathKey    = "path"
)

// judge returns what is to be done about a call, and why.
func (r *run) judge(c *call) (decision, string) {
	s := subjectOf(r.dir, c.Tool, c.Args)
	if d, by := r.opts.Rules.decide(s); d == deny {
		return deny, "The rule " + by.text + " denies it"
	}
	switch d, by := r.session().decide(s); {
	case d == deny:
		return deny, "It was denied for the session by " + by.text
	case d == ask && by.text != "":
		return ask, "The rule " + by.text + " asks"
	case d == ask, d == undecided && c.gated():
		return ask, "Approval required"
	}
	return allow, ""
}

// session returns the operator's rules with those that clients had remembered.
func (r *run) session() Rules {
	all := Rules{slices.Clone(r.opts.Rules.rules)}
	for _, m := range r.journal.rules {
		rule, err := parseRule(m.Rule, m.Decision)
		if err != nil {
			continue // of another version
		}
		rule.session = true
		all.rules = append(all.rules, rule)
	}
	return all
}

// subjectOf returns what a call is about. args is an object whose keys differ
// in more than case, which is how tools read them.
func subjectOf(dir *workspace.Workspace, tool string, args json.RawMessage) subject {
	s := subject{tool: tool}
	if command, ok := argument(args, commandKey); ok {
		s.command = &command
		return s
	}
	file, ok := argument(args, pathKey)
	if !ok {
		return s
	}
	s.paths = []place{{abs: filepath.ToSlash(dir.Abs(file))}}
	rel, err := dir.Rel(file)
	if err != nil {
		return s
	}
	s.paths[0].rel = filepath.ToSlash(rel)
	resolved, err := resolve(dir, rel)
	if err != nil {
		return subject{tool: tool, paths: append(s.paths, place{})} // which no rule allows
	}
	s.paths = append(s.paths, place{filepath.ToSlash(resolved), filepath.ToSlash(dir.At(resolved))})
	return s
}

// resolve returns a path with the symbolic links in what there is of it
// resolved. A link that leads to nothing is an error: what it names may be made
// by following it.
func resolve(dir *workspace.Workspace, rel string) (string, error) {
	if _, err := dir.Lstat(rel); !errors.Is(err, fs.ErrNotExist) || rel == "." {
		return dir.Real(rel)
	}
	above, err := resolve(dir, filepath.Dir(rel))
	return filepath.Join(above, filepath.Base(rel)), err
}

// argument returns the text under a key, spelled in any case.
func argument(args json.RawMessage, key string) (string, bool) {
	var object map[string]any
	if json.Unmarshal(args, &object) != nil {
		return "", false
	}
	for k, v := range object {
		if strings.EqualFold(k, key) {
			text, ok := v.(string)
			return text, ok
		}
	}
	return "", false
}

// A wish is what an answer to an approval may carry in its reason, or in a text
// of its content.
type wish struct {
	Remember string `json:"remember"`
	Rule     string `json:"rule"`
	Reason   string `json:"reason"`
}

// wishOf returns what a client wants beside its verdict, and its reason without
// that.
func wishOf(out contracts.Outcome) (w wish, reason string) {
	if json.Unmarshal([]byte(out.Reason), &w) == nil && strings.HasPrefix(strings.TrimSpace(out.Reason), "{") {
		return w, w.Reason
	}
	for _, block := range out.Content {
		if block.Type == "text" && json.Unmarshal([]byte(block.Text), &w) == nil {
			return w, out.Reason
		}
	}
	return wish{}, out.Reason
}

// heed remembers the answer to an approval if the client wants that. What cannot
// be remembered is an error fit to be shown.
func (r *run) heed(c *call, out contracts.Outcome, w wish) error {
	if w.Remember == "" || out.By != contracts.ResolvedByUser {
		return nil
	}
	if w.Remember != "session" {
		return fmt.Errorf("an answer can be remembered for the session, not for %q", w.Remember)
	}
	d := deny
	if out.Verdict == contracts.VerdictApproved {
		d = allow
	}
	text := cmp.Or(w.Rule, ruleFor(c))
	if text == "" {
		return errors.New("this call can be remembered only by a rule that is given")
	}
	parsed, err := parseRule(text, d)
	if err != nil {
		return err
	}
	s := subjectOf(r.dir, c.Tool, c.Args)
	if got, _ := (Rules{[]rule{parsed}}).decide(s); got != d {
		return fmt.Errorf("the rule %s does not match this call", text)
	}
	return r.journal.add(record{Rule: &remembered{d, parsed.text}})
}

// ruleFor returns the rule that means exactly what a call does, or "" where it
// would be read as a pattern.
func ruleFor(c *call) string {
	if line, ok := argument(c.Args, commandKey); ok {
		if line = strings.Trim(line, blanks); line == "" || line == "*" || line == "**" || strings.HasSuffix(line, ":*") {
			return ""
		}
		return c.Tool + "(" + line + ")"
	}
	if file, ok := argument(c.Args, pathKey); ok {
		if file == "" || strings.ContainsAny(file, "*~") || strings.HasSuffix(file, "/") {
			return ""
		}
		return c.Tool + "(" + file + ")"
	}
	return c.Tool
}
