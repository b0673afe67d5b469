package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/dialect/chord"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

const chordName = "chord"

var chordProtocol = protocol{
	name: chordName, maxLine: chord.MaxLine, endsWell: true,
	full: `{"type":"error","payload":{"message":"the server has too many clients","code":"too_many_clients"}}`,
	translate: func(s *settings, _ func(string) string) dialect.Translator {
		return chord.New(chord.Options{
			SessionID: s.chord.resume, NewSessions: s.chord.replaces, Version: wiring.Version(), Rules: s.chord.rules,
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
	f.StringVarP(&c.worktree, "worktree", "w", "", "with --protocol chord: work in the git worktree `NAME` of the workspace,"+
		" which is made if there is none; without NAME in a new one")
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
func (s *settings) openChord(m *wiring.Sessions) error {
	if s.protocol != chordName {
		return nil
	}
	s.chord.replaces = !s.shares()
	s.chord.rules = &chordRules{project: filepath.Join(m.Dir, chordRulesFile), user: filepath.Join(s.stateDir, chordRulesFile), log: s.log()}
	if !s.chord.continues {
		return nil
	}
	last, err := m.Latest()
	if err == nil && last != "" {
		s.chord.resume = last
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
