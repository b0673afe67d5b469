package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/show"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// The commands below maestro sessions work on the state directory, without a server.

func sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sessions", Short: "List, export, check and remove the sessions on disk", Args: cobra.NoArgs,
		Long: `Sessions works on the journals in the state directory. list, show, export and verify only
read and may run beside a server. delete, prune and repair skip sessions that are in use;
stop the server before them.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listCommand(), showCommand(), exportCommand(), verifyCommand(), deleteCommand(), pruneCommand(), repairCommand())
	return cmd
}

// onDisk adds the flags that name the state directory to a command, which then runs with
// the directory and the ids.
func onDisk(cmd *cobra.Command, run func(cmd *cobra.Command, root string, ids []string) error) *cobra.Command {
	var root, config string
	cmd.Flags().StringVar(&root, "state-dir", "", "directory with the journals (default "+defaultStateRoot()+"); for a hosted runner .maestro in its workspace")
	cmd.Flags().StringVar(&config, "config", "", "TOML file with settings of the server; its state-dir counts if there is no --state-dir")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if root == "" && config != "" {
			values, err := readConfig(config)
			dir, ok := values["state-dir"].(string)
			if err == nil && !ok && values["state-dir"] != nil {
				err = errors.New("state-dir: want a text")
			}
			if err != nil {
				return usage{fmt.Errorf("--config %s: %w", config, err)}
			}
			root = dir
		}
		return run(cmd, cmp.Or(root, defaultStateRoot()), ids)
	}
	return cmd
}

// A storedSession is a session on disk.
type storedSession struct {
	ID        string    `json:"session_id"`
	Title     string    `json:"title"`
	Author    string    `json:"author,omitempty"` // of the last prompt
	UpdatedAt time.Time `json:"updated_at"`
	Bytes     int64     `json:"bytes"`
	InUse     bool      `json:"in_use"`
	Tokens    int64     `json:"total_tokens,omitempty"`
	CostUSD   float64   `json:"total_cost_usd,omitempty"`
	Failed    bool      `json:"failed,omitempty"`
	Pending   int       `json:"pending_request_count,omitempty"` // open questions
	AskedAt   string    `json:"oldest_question_at,omitempty"`    // ISO-8601 UTC; only of questions for people
	Dir       string    `json:"directory"`
}

// readStored describes the session in dir. It does not read the journal.
func readStored(dir string) (storedSession, error) {
	id, _ := wiring.Unescaped(filepath.Base(dir), wiring.SessionPrefix) // sessionDirs has checked it
	s := storedSession{ID: id, Dir: dir}
	var err error
	if s.UpdatedAt, err = journal.LastWritten(dir); err != nil {
		return s, err
	}
	if text, _, err := journal.ReadSummary(dir); err == nil { // else it has no title
		var summary struct {
			hub.Record
			Marks struct {
				Title string `json:"title"`
			} `json:"marks"`
		}
		if err := json.Unmarshal(text, &summary); err == nil {
			d := summary.Digest
			s.Title, s.Tokens, s.CostUSD, s.Failed = cmp.Or(summary.Marks.Title, d.Title), d.Tokens, d.CostUSD, d.Failed
			s.Pending = summary.Pending
			for _, q := range summary.Questions {
				if s.AskedAt == "" || q.AskedAt < s.AskedAt {
					s.AskedAt = q.AskedAt
				}
			}
			if d.Author != nil {
				s.Author = d.Author.Name
			}
		}
	}
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() { // else it was removed meanwhile
			s.Bytes += info.Size()
		}
		return nil
	})
	lock, errLock := journal.Lock(dir)
	if s.InUse = errors.Is(errLock, journal.ErrLocked); errLock == nil {
		err = errors.Join(err, lock.Close())
	}
	return s, err
}

// questions says how many questions are open, and the time of the oldest.
func (s *storedSession) questions() string {
	text := strconv.Itoa(s.Pending)
	if at, err := time.Parse(time.RFC3339, s.AskedAt); err == nil {
		text += ", the oldest since " + at.Local().Format(time.DateTime)
	}
	return text
}

// storedSessions returns the named sessions below root, or all, the one used last first.
func storedSessions(root string, ids []string) ([]storedSession, error) {
	dirs, err := sessionDirs(root, ids)
	if err != nil {
		return nil, err
	}
	list := make([]storedSession, 0, len(dirs))
	for _, dir := range dirs {
		s, err := readStored(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a server has removed it meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	for _, id := range ids {
		if !slices.ContainsFunc(list, func(s storedSession) bool { return s.ID == id }) {
			return nil, fmt.Errorf("no session %s in %s", id, root)
		}
	}
	slices.SortFunc(list, func(a, b storedSession) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	return list, nil
}

// oneSession returns the only session with an id.
func oneSession(root, id string) (storedSession, error) {
	list, err := storedSessions(root, []string{id})
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d sessions have the id %s: name one with --state-dir and the folder of its workspace, such as %s", len(list), id, filepath.Dir(list[0].Dir))
	}
	if err != nil {
		return storedSession{}, err
	}
	return list[0], nil
}

func listCommand() *cobra.Command {
	var asJSON bool
	cmd := onDisk(&cobra.Command{Use: "list [SESSION...]", Short: "List sessions, the one used last first", Args: cobra.ArbitraryArgs},
		func(cmd *cobra.Command, root string, ids []string) error {
			list, err := storedSessions(root, ids)
			if err != nil {
				return err
			}
			if asJSON {
				lines := json.NewEncoder(cmd.OutOrStdout())
				for _, s := range list {
					err = errors.Join(err, lines.Encode(s))
				}
				return err
			}
			rows := [][]string{{"SESSION", "LAST USED", "SIZE", "IN USE", "QUESTIONS", "TITLE"}}
			several := slices.ContainsFunc(list, func(s storedSession) bool { return filepath.Dir(s.Dir) != filepath.Dir(list[0].Dir) })
			if several {
				rows[0] = slices.Insert(rows[0], 1, "WORKSPACE")
			}
			for _, s := range list {
				row := []string{s.ID, s.UpdatedAt.Local().Format(time.DateTime), readable(s.Bytes), yes(s.InUse), strconv.Itoa(s.Pending), show.Clean(s.Title)}
				if several {
					row = slices.Insert(row, 1, workspaceOf(root, s.Dir))
				}
				rows = append(rows, row)
			}
			return writeTable(cmd.OutOrStdout(), rows)
		})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each session as a line of JSON")
	return cmd
}

// workspaceOf returns the folder of the workspace of a session, as far as it differs between workspaces.
func workspaceOf(root, dir string) string {
	folder, err := filepath.Rel(root, filepath.Dir(dir))
	if err != nil {
		return filepath.Dir(dir)
	}
	return strings.TrimPrefix(filepath.ToSlash(folder), "workspaces/")
}

// writeTable writes rows in columns.
func writeTable(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := io.WriteString(w, strings.Join(row, "\t")+"\n"); err != nil {
			return err
		}
	}
	return w.Flush()
}

func readable(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%d kB", (n+999)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func showCommand() *cobra.Command {
	return onDisk(&cobra.Command{Use: "show SESSION", Short: "Show what a session is and holds", Args: cobra.ExactArgs(1)},
		func(cmd *cobra.Command, root string, ids []string) error {
			s, err := oneSession(root, ids[0])
			if err != nil {
				return err
			}
			var first, last journal.Entry
			events := 0
			err = journal.ReadDir(s.Dir, func(e journal.Entry) error {
				if first.Cursor == 0 {
					first = e
				}
				if last = e; isEvent(e) {
					events++
				}
				return nil
			})
			return errors.Join(err, writeTable(cmd.OutOrStdout(), [][]string{
				{"session", s.ID}, {"title", show.Clean(s.Title)}, {"last prompt by", show.Clean(s.Author)},
				{"last used", s.UpdatedAt.Local().Format(time.DateTime)}, {"in use", yes(s.InUse)}, {"open questions", s.questions()},
				{"entries", fmt.Sprintf("%d to %d, %d of them events", first.Cursor, last.Cursor, events)},
				{"since", time.UnixMilli(first.Time).Format(time.DateTime)},
				{"tokens, cost", fmt.Sprintf("%d, $%.4f", s.Tokens, s.CostUSD)}, {"size", readable(s.Bytes)}, {"directory", s.Dir},
			}))
		})
}

// isEvent reports whether clients see an entry as an event.
func isEvent(e journal.Entry) bool {
	seen, ok := e.Seen(0)
	return ok && seen.Kind == journal.Message
}

func exportCommand() *cobra.Command {
	return onDisk(&cobra.Command{
		Use: "export SESSION", Short: "Print the events of a session as lines of JSON", Args: cobra.ExactArgs(1),
		Long: "Export prints each event that is stored as {\"cursor\":...,\"at\":...,\"message\":{...}}, oldest first, as\n" +
			"clients with raw events receive it. Prompts and outputs are in it as they were.",
	}, func(cmd *cobra.Command, root string, ids []string) error {
		s, err := oneSession(root, ids[0])
		if err != nil {
			return err
		}
		out := bufio.NewWriter(cmd.OutOrStdout())
		lines := json.NewEncoder(out)
		lines.SetEscapeHTML(false)
		err = journal.ReadDir(s.Dir, func(e journal.Entry) error {
			if !isEvent(e) {
				return nil
			}
			seen, _ := e.Seen(0)
			return lines.Encode(struct {
				Cursor  uint64          `json:"cursor"`
				At      time.Time       `json:"at"`
				Message json.RawMessage `json:"message"`
			}{e.Cursor, time.UnixMilli(e.Time).UTC(), seen.Body})
		})
		return errors.Join(err, out.Flush())
	})
}

func verifyCommand() *cobra.Command {
	return onDisk(&cobra.Command{
		Use: "verify [SESSION...]", Short: "Read whole journals and check them and their audit", Args: cobra.ArbitraryArgs,
		Long: "Verify reads the journals of all sessions, or of the named ones, and changes nothing. It checks\n" +
			"that no entries are missing, their checksums and the hashes of the audit. Repair damaged sessions with maestro sessions repair.",
	}, func(cmd *cobra.Command, root string, ids []string) error {
		list, err := storedSessions(root, ids)
		if err != nil {
			return err
		}
		bad := 0
		for _, s := range list {
			a := audit{verify: true, out: io.Discard, notes: io.Discard}
			said := "sound"
			if err := a.print(s.Dir); err != nil {
				bad++
				said = err.Error()
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", s.ID, said); err != nil {
				return err
			}
		}
		if bad > 0 {
			return fmt.Errorf("%d of %d sessions are damaged", bad, len(list))
		}
		return nil
	})
}

func deleteCommand() *cobra.Command {
	return onDisk(&cobra.Command{
		Use: "delete SESSION...", Short: "Remove sessions and the links to them permanently", Args: cobra.MinimumNArgs(1),
	}, func(cmd *cobra.Command, root string, ids []string) error {
		list, err := storedSessions(root, ids)
		if err != nil {
			return err
		}
		return removeStored(cmd.OutOrStdout(), list, false)
	})
}

func pruneCommand() *cobra.Command {
	var unused expiry
	var dry bool
	cmd := onDisk(&cobra.Command{
		Use: "prune", Short: "Remove the sessions that were not used for a time", Args: cobra.NoArgs,
	}, func(cmd *cobra.Command, root string, _ []string) error {
		if unused <= 0 {
			return usage{errors.New("--unused says for how long, such as 30d")}
		}
		list, err := storedSessions(root, nil)
		if err != nil {
			return err
		}
		before := time.Now().Add(-time.Duration(unused))
		return removeStored(cmd.OutOrStdout(), slices.DeleteFunc(list, func(s storedSession) bool { return s.InUse || s.UpdatedAt.After(before) }), dry)
	})
	cmd.Flags().Var(&unused, "unused", "remove sessions without an entry for this `TIME`, such as 30d or 12h (required)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print what would be removed")
	return cmd
}

// removeStored removes sessions, unless dry, and the shares of those that it removes.
func removeStored(out io.Writer, list []storedSession, dry bool) error {
	var failed error
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no session to remove")
		return err
	}
	for _, s := range list {
		said := "would be removed"
		if !dry {
			said = "removed"
			if err := removeSession(s); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", s.ID, err))
				continue
			}
		}
		if _, err := fmt.Fprintf(out, "%s: %s, %s, %s\n", s.ID, said, readable(s.Bytes), show.Clean(s.Title)); err != nil {
			return err
		}
	}
	return failed
}

func removeSession(s storedSession) error {
	lock, err := journal.Lock(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a session that was not made to the end has no lock
		return err
	}
	defer lock.Close()
	if err := revokeStored(s); err != nil {
		return err
	}
	removed := filepath.Join(filepath.Dir(s.Dir), wiring.RemovedPrefix+filepath.Base(s.Dir))
	if err := errors.Join(os.RemoveAll(removed), os.Rename(s.Dir, removed)); err != nil {
		return err
	}
	return os.RemoveAll(removed)
}

// revokeStored revokes the shares of a session, so that they are not for a later session
// of the same id.
func revokeStored(s storedSession) error {
	folder, scope := filepath.Dir(s.Dir), ""
	if name, ok := wiring.Unescaped(filepath.Base(folder), wiring.ScopePrefix); ok {
		folder, scope = filepath.Dir(folder), name
	}
	path := filepath.Join(folder, "shares.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	g, err := auth.New(auth.Options{Token: strings.Repeat("x", 64), ShareFile: path}) // nobody presents the token
	if err != nil {
		return err
	}
	return errors.Join(g.RevokeShares(scope, s.ID), g.Close())
}
