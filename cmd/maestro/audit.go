package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

func auditCommand() *cobra.Command {
	var a audit
	cmd := &cobra.Command{
		Use: "audit SESSION", Short: "Show who answered what in a session on disk", Args: cobra.MaximumNArgs(1),
		Long: "audit reads the journal of a session and prints one record for each question, vote and answer,\n" +
			"each change of the controller lease and each drain. It changes nothing, and a server may have\n" +
			"the session open. Each record has the hash of the record before it, so --verify finds a record\n" +
			"that was changed, removed or inserted. Retention removes old records with the old entries of\n" +
			"the journal. To notice that somebody replaced all records, compare the newest hash with a\n" +
			"copy that is stored elsewhere.",
	}
	onDisk(cmd, func(cmd *cobra.Command, root string, ids []string) error {
		if len(ids) == 0 {
			return usage{errors.New("name a session")}
		}
		dirs, err := sessionDirs(root, ids)
		if err == nil && len(dirs) == 0 {
			err = fmt.Errorf("no session %s in %s", ids[0], root)
		}
		a.out, a.notes = cmd.OutOrStdout(), cmd.OutOrStdout()
		if a.json {
			a.notes = cmd.ErrOrStderr()
		}
		for _, dir := range dirs {
			if len(dirs) > 1 {
				_, err = fmt.Fprintf(a.notes, "%s:\n", strings.TrimPrefix(dir, root+string(filepath.Separator)))
			}
			err = errors.Join(err, a.print(dir))
		}
		return err
	})
	cmd.Flags().BoolVar(&a.verify, "verify", false, "check the hash of each record, and name the first that does not fit")
	cmd.Flags().BoolVar(&a.json, "json", false, "print each record as a line of JSON, and everything else on standard error")
	return cmd
}

// An audit prints the records of sessions.
type audit struct {
	verify, json bool
	out, notes   io.Writer // of records, and of what is said about them
}

// print prints the records of the journal in dir.
func (a *audit) print(dir string) error {
	var reader hub.AuditReader
	lines := json.NewEncoder(a.out)
	err := journal.ReadDir(dir, func(e journal.Entry) error {
		r, why, err := reader.Read(e)
		switch {
		case err != nil:
			return fmt.Errorf("entry %d: %w", e.Cursor, err)
		case a.verify && why != "":
			return fmt.Errorf("entry %d: %s", e.Cursor, why)
		case r == nil:
			return nil
		case a.json:
			return lines.Encode(r)
		}
		_, err = fmt.Fprintln(a.out, r)
		return err
	})
	if err != nil {
		return err
	}
	newest, hash := reader.Head()
	said := "the audit has no records"
	if newest > 0 {
		said = "newest record " + strconv.FormatUint(newest, 10) + ", hash " + hash
	}
	if reader.Cut > 0 {
		said += "; retention has removed records 1 to " + strconv.FormatUint(reader.Cut, 10)
	}
	if a.verify {
		said += "; all hashes fit"
	}
	_, err = fmt.Fprintln(a.notes, said)
	return err
}
