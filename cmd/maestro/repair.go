package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

func repairCommand() *cobra.Command {
	return onDisk(&cobra.Command{
		Use: "repair [SESSION...]", Short: "Check the journals of sessions and repair damaged ones", Args: cobra.ArbitraryArgs,
		Long: "repair reads the journals below the state directory, of all sessions or of the named ones,\n" +
			"and reports damage. Of a damaged journal it keeps the newest intact checkpoint and all\n" +
			"entries around it up to the next damage. The session opens again in a new epoch, and its\n" +
			"clients receive a reset. The damaged files stay in a folder beside the new ones. Stop the\n" +
			"server first: repair skips sessions that are in use.",
	}, func(cmd *cobra.Command, root string, ids []string) error { return repair(root, ids, cmd.OutOrStdout()) })
}

// repair repairs the named sessions below root, or all.
func repair(root string, ids []string, out io.Writer) error {
	dirs, err := sessionDirs(root, ids)
	if err != nil {
		return err
	}
	failed := 0
	for _, dir := range dirs {
		said, ok := repairJournal(dir)
		if !ok {
			failed++
		}
		for _, line := range said {
			if _, err := fmt.Fprintf(out, "%s: %s\n", strings.TrimPrefix(dir, root+string(filepath.Separator)), strings.ReplaceAll(line, "\n", "; ")); err != nil {
				return err
			}
		}
	}
	switch {
	case len(dirs) == 0 && len(ids) > 0:
		return fmt.Errorf("no session %s in %s", strings.Join(ids, " or "), root)
	case failed > 0:
		return fmt.Errorf("%d of %d sessions were not checked or could not be repaired", failed, len(dirs))
	}
	_, err = fmt.Fprintf(out, "sessions in %s: %d, all of them sound now\n", root, len(dirs))
	return err
}

// sessionDirs returns the directories below root of the named sessions, or of all.
func sessionDirs(root string, ids []string) (dirs []string, err error) {
	root, err = filepath.EvalSymlinks(root) // WalkDir follows no link
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
		id, isSession := wiring.Unescaped(filepath.Base(dir), wiring.SessionPrefix)
		if err != nil || !entry.IsDir() || !isSession || dir == root {
			return err
		}
		if contracts.ValidID(id) && (len(ids) == 0 || slices.Contains(ids, id)) {
			dirs = append(dirs, dir)
		}
		return fs.SkipDir
	})
	return dirs, err
}

// repairJournal checks a journal and repairs it if it is damaged. It returns lines for
// the operator, and whether the journal is sound now.
func repairJournal(dir string) (said []string, ok bool) {
	damage := journal.Check(dir)
	switch {
	case damage == nil:
		return nil, true
	case !errors.Is(damage, journal.ErrCorrupt):
		return []string{"not checked: " + damage.Error()}, false
	}
	kept, err := journal.Repair(dir)
	if err != nil {
		return []string{damage.Error(), "not repaired: " + err.Error()}, false
	}
	lost := ""
	if kept.Newest > kept.Last {
		lost = fmt.Sprintf(", without %d to %d", kept.Last+1, kept.Newest)
	}
	return []string{damage.Error(), fmt.Sprintf("repaired with entries %d to %d%s; the damaged files are in %s", kept.First, kept.Last, lost, kept.Aside)}, true
}
