package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/dialect"
	"github.com/seed-028515a8/maestro/dialect/chord"
	"github.com/seed-028515a8/maestro/journal"
)

const chordName = "chord"

var chordProtocol = protocol{
	name: chordName, maxLine: chord.MaxLine, endsWell: true,
	full: `{"type":"error","payload":{"message":"the server has too many clients","code":"too_many_clients"}}`,
	translate: func(s *settings, _ func(string) string) dialect.Translator {
		return chord.New(chord.Options{
			SessionID: s.chord.resume, NewSessions: s.chord.replaces, Version: version(), Rules: s.chord.rules,
			Shared: s.chord.rules == nil, Worktree: s.chord.entered,
		})
	},
}

// chordFlags are the flags of headless that belong to --protocol chord, and what they
// lead to. Clients on sockets have none.
type chordFlags struct {
	dir       string
	resume    string // session to open
	continues bool   // open the session that was used last
	replaces  bool   // the client may replace the session
	worktree  string // the worktree to be the workspace; newWorktree for a new one
	entered   *chord.Worktree
	rules     chord.RuleStore
}

func (c *chordFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&c.dir, "session-dir", "d", "", "with --protocol chord: the same as --workspace")
	f.BoolVarP(&c.continues, "continue", "c", false, "with --protocol chord: continue the session that was used last in the workspace")
	f.StringVarP(&c.resume, "resume", "r", "", "with --protocol chord: continue this session of the workspace")
	f.StringVarP(&c.worktree, "worktree", "w", "", "with --protocol chord: work in the git worktree `NAME` of the workspace, which is made if there is none; without NAME in a new one")
	f.Lookup("worktree").NoOptDefVal = newWorktree
	cmd.MarkFlagsMutuallyExclusive("continue", "resume")
	cmd.MarkFlagsMutuallyExclusive("session-dir", "workspace")
}

// applyChord completes the settings from the flags and the environment of Chord.
func (s *settings) applyChord(cmd *cobra.Command, getenv func(string) string) error {
	given := cmd.Flags().Changed
	if s.protocol != chordName {
		for _, name := range []string{"session-dir", "continue", "resume", "worktree"} {
			if given(name) {
				return usage{fmt.Errorf("--%s needs --protocol chord", name)}
			}
		}
		return nil
	}
	if given("resume") && !contracts.ValidID(s.chord.resume) {
		return usage{fmt.Errorf("--resume %q is not the id of a session", s.chord.resume)}
	}
	if given("worktree") && !contracts.ValidID(s.chord.worktree) {
		return usage{fmt.Errorf("--worktree %q is not a name of a worktree", s.chord.worktree)}
	}
	s.workspace = cmp.Or(s.chord.dir, s.workspace)
	s.stateDir = cmp.Or(s.stateDir, getenv("CHORD_STATE_DIR"), defaultStateRoot()) // sessions outlive the process
	if given("agent") {
		return nil
	}
	p, err := readChordConfig(chordConfigDir(getenv), getenv)
	if p != nil && err == nil {
		s.agent, s.runtime.ModelURL = "llm:openai-chat/"+p.model, p.url
		if s.runtime.MaxTokens = p.output; p.context > 0 {
			s.runtime.ContextTokens = max(p.context, minContext)
		}
		err = os.Setenv("OPENAI_API_KEY", p.key) // where the agent looks for it; its processes do not get it
	}
	return err
}

// openChord finds the session to continue and the rules, once the workspace is known.
func (s *settings) openChord(m *sessions) error {
	if s.protocol != chordName {
		return nil
	}
	s.chord.replaces = !s.shares()
	s.chord.rules = &chordRules{project: filepath.Join(m.dir, chordRulesFile), user: filepath.Join(s.stateDir, chordRulesFile), log: m.log}
	if !s.chord.continues {
		return nil
	}
	last, err := m.kept.list("", 1, func(string) bool { return true })
	if err == nil && len(last) > 0 {
		s.chord.resume = last[0].SessionID
	}
	return err
}

// lockedElsewhere makes the text of an error such that clients do not start the program
// again and again.
func lockedElsewhere(err error) error {
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("acquire session lock: %w", err)
	}
	return err
}

const chordRulesFile = "chord-rules.json"

// A chordRules keeps rules in two files: one of the workspace and one of the user.
type chordRules struct {
	project, user string
	log           *slog.Logger
}

// Load reads both files.
func (c *chordRules) Load() []chord.Rule {
	var all []chord.Rule
	for _, path := range []string{c.project, c.user} {
		rules, err := readRules(path)
		if err != nil {
			c.log.Error("read rules", "err", err)
		}
		all = append(all, rules...)
	}
	return all
}

func readRules(path string) (rules []chord.Rule, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &rules)
	}
	return rules, err
}

// maxKeptRules bounds the rules in one file.
const maxKeptRules = 1024

// Add adds a rule at the end of its file.
func (c *chordRules) Add(rule chord.Rule) error {
	return c.rewrite(rule, func(rules []chord.Rule) ([]chord.Rule, error) {
		if len(rules) >= maxKeptRules {
			return nil, errors.New("too many rules are kept")
		}
		return append(rules, rule), nil
	})
}

// Remove removes a rule from its file: the last one, if there are several.
func (c *chordRules) Remove(rule chord.Rule) error {
	return c.rewrite(rule, func(rules []chord.Rule) ([]chord.Rule, error) {
		for i, r := range slices.Backward(rules) {
			if r == rule {
				return slices.Delete(rules, i, i+1), nil
			}
		}
		return rules, nil
	})
}

// rewrite replaces the file in which a rule belongs.
func (c *chordRules) rewrite(rule chord.Rule, change func([]chord.Rule) ([]chord.Rule, error)) error {
	path := c.user
	if rule.Scope == chord.ScopeProject {
		path = c.project
	}
	rules, err := readRules(path)
	if err == nil {
		rules, err = change(rules)
	}
	var text []byte
	if err == nil {
		text, err = json.MarshalIndent(rules, "", "  ")
	}
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+".new", text, 0o600))
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		c.log.Error("change the rules", "file", path, "err", err)
	}
	return err
}

// A chordProvider is a model in the configuration of a Chord program.
type chordProvider struct {
	url, model, key string
	context, output int64 // tokens; 0: not configured
}

// chordConfigDir returns the folder of Chord's configuration.
func chordConfigDir(getenv func(string) string) string {
	if dir := getenv("CHORD_CONFIG_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(cmp.Or(getenv("XDG_CONFIG_HOME"), filepath.Join(getenv("HOME"), ".config")), "chord")
}

// readChordConfig returns the first model of the first provider of the type
// chat-completions in config.yaml, and its first key in auth.yaml. It returns nil if
// there is no configuration.
func readChordConfig(dir string, getenv func(string) string) (*chordProvider, error) {
	path := filepath.Join(dir, "config.yaml")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := readOutline(text)
	name := ""
	for _, l := range all {
		if len(l.path) == 3 && l.path[0] == "providers" && l.path[2] == "type" && l.value == "chat-completions" {
			name = l.path[1]
			break
		}
	}
	model := all.below("providers", name, "models")
	url := all.value("providers", name, "api_url")
	if name == "" || url == "" || model == "" {
		return nil, fmt.Errorf("%s has no provider of the type chat-completions with an api_url and a model: give --agent", path)
	}
	p := chordProvider{url: strings.TrimSuffix(os.Expand(url, getenv), "/chat/completions"), model: model}
	p.context, _ = strconv.ParseInt(all.value("providers", name, "models", model, "limit", "context"), 10, 64) // 0 is the default
	p.output, _ = strconv.ParseInt(all.value("providers", name, "models", model, "limit", "output"), 10, 64)
	p.key, err = readChordKey(filepath.Join(dir, "auth.yaml"), name, getenv)
	return &p, err
}

// readChordKey returns the first key of a provider; empty if there is none.
func readChordKey(path, provider string, getenv func(string) string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return os.Expand(readOutline(text).value(provider, "-"), getenv), err
}

// An outline is the lines of a YAML file.
type outline []outlineLine

// value returns the first value at a path.
func (o outline) value(path ...string) string {
	i := slices.IndexFunc(o, func(l outlineLine) bool { return slices.Equal(l.path, path) })
	if i < 0 {
		return ""
	}
	return o[i].value
}

// below returns the first key below a path.
func (o outline) below(path ...string) string {
	n := len(path)
	i := slices.IndexFunc(o, func(l outlineLine) bool { return len(l.path) == n+1 && slices.Equal(l.path[:n], path) })
	if i < 0 {
		return ""
	}
	return o[i].path[n]
}

// An outlineLine is a line of a YAML file in block style: the keys above it with its
// own, which is - for an item of a list.
type outlineLine struct {
	path  []string
	value string
}

// readOutline reads the keys and plain values of a YAML file. It does not know what
// Chord's configuration does without here: anchors, flow style and texts of several
// lines are left as values.
func readOutline(text []byte) (all outline) {
	type level struct {
		indent int
		key    string
	}
	var above []level
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		line, _, _ := strings.Cut(scan.Text(), " #")
		body := strings.TrimSpace(line)
		if body == "" || strings.HasPrefix(body, "#") {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " "))
		key, value, ok := strings.Cut(body, ":")
		if item, found := strings.CutPrefix(body, "- "); found {
			key, value, indent = "-", item, indent+1 // an item may begin where its list does
		} else if !ok {
			continue
		}
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		above = append(above, level{indent, strings.Trim(key, `"'`)})
		l := outlineLine{value: strings.Trim(strings.TrimSpace(value), `"'`)}
		for _, a := range above {
			l.path = append(l.path, a.key)
		}
		all = append(all, l)
	}
	return all
}
