package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

const (
	journalFile = "history.jsonl"

	// maxJournalBytes bounds the file that is read back. Compaction keeps what is
	// written far below it.
	maxJournalBytes = 1 << 30

	// cutShort is what the model is told about calls whose end was not written.
	cutShort = "Interrupted: the server was restarted before this call had ended. Whether it ran, or ran in part, is not known."
)

// A journal is a history with the file that it is kept in: records as JSON, one a
// line, in the order in which they were applied. It belongs to one goroutine at a
// time.
//
// What follows the last whole record is the trace of a crash and cut off. A
// record that could not be written leaves the file behind its history; it is
// then written anew with the next.
type journal struct {
	history
	path  string   // "" keeps the history in memory
	file  *os.File // nil if there is none
	size  int64    // of what the file holds
	stale bool     // the file lacks something
	log   *slog.Logger
}

// openJournal returns the history that an earlier process left in dir, made valid
// again. An empty dir keeps it in memory.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	j := &journal{log: log}
	if dir == "" {
		return j, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	j.path = filepath.Join(dir, journalFile)
	if err := j.load(); err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	if err := j.add(j.repairs(cutShort)...); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

// load applies the whole records of the file and cuts off the rest.
func (j *journal) load() error {
	switch info, err := os.Stat(j.path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.Size() > maxJournalBytes:
		return fmt.Errorf("%s has %d bytes, want at most %d", j.path, info.Size(), int64(maxJournalBytes))
	}
	data, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	rest := data
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		var rec record
		if !whole || json.Unmarshal(line, &rec) != nil || j.apply(rec) != nil {
			break
		}
		rest = after
	}
	if err := j.setAside(rest); err != nil {
		return err
	}
	j.size = int64(len(data) - len(rest))
	j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return j.file.Truncate(j.size)
}

// setAside keeps what is cut off, unless it is the piece of a line that a crash
// may leave.
func (j *journal) setAside(rest []byte) error {
	if !bytes.ContainsRune(rest, '\n') {
		return nil
	}
	j.log.Error("the history is damaged: what follows the damage is set aside",
		slog.String("file", j.path), slog.Int("bytes", len(rest)))
	return os.WriteFile(j.path+".damaged", rest, 0o600)
}

// add takes steps and writes them down. The steps are taken even if they cannot
// be written.
func (j *journal) add(recs ...record) error {
	if len(recs) == 0 {
		return nil
	}
	var lines []byte
	for _, rec := range recs {
		if err := j.apply(rec); err != nil {
			j.stale = j.stale || len(lines) > 0
			return fmt.Errorf("extend history: %w", err)
		}
		if j.path == "" {
			continue
		}
		line, err := json.Marshal(rec)
		if err != nil {
			j.stale = true
			return fmt.Errorf("encode history: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if j.path == "" {
		return nil
	}
	return j.write(lines)
}

func (j *journal) write(lines []byte) error {
	if j.stale || j.file == nil {
		return j.rewrite()
	}
	n, err := j.file.WriteAt(lines, j.size)
	if err != nil {
		j.stale = true
		return fmt.Errorf("write history: %w", errors.Join(err, j.file.Truncate(j.size)))
	}
	j.size += int64(n)
	return nil
}

// replace exchanges the conversation for a shorter one; the rules stay.
func (j *journal) replace(recs []record) error {
	fresh := history{rules: j.rules}
	for _, rec := range recs {
		if err := fresh.apply(rec); err != nil {
			return fmt.Errorf("replace history: %w", err)
		}
	}
	j.history = fresh
	if j.path == "" {
		return nil
	}
	return j.rewrite()
}

// rewrite puts a file with the history as it is now in the place of the old one,
// at once.
func (j *journal) rewrite() error {
	j.stale = true
	var lines []byte
	for _, rec := range j.records() {
		line, err := json.Marshal(rec)
		if err != nil {
			return fmt.Errorf("encode history: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	next := j.path + ".new"
	if err := os.WriteFile(next, lines, 0o600); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	if err := j.close(); err != nil { // some systems rename over no open file
		return err
	}
	if err := os.Rename(next, j.path); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	file, err := os.OpenFile(j.path, os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	j.file, j.size, j.stale = file, int64(len(lines)), false
	return nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	if err != nil {
		return fmt.Errorf("close history: %w", err)
	}
	return nil
}
