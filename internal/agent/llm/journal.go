package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

const (
	journalFile = "history.jsonl"

	// maxJournalBytes bounds the file. Compaction keeps it far smaller.
	maxJournalBytes = 1 << 30

	// cutShort tells the model about calls whose end was not written.
	cutShort = "Interrupted: the server was restarted before this call had ended. Whether it ran, or ran in part, is not known."
)

// A journal is a history with its file: records as JSON, one a line, in the order
// in which they were applied. It belongs to one goroutine at a time.
//
// A crash may leave part of a record at the end of the file, which load cuts off.
// If a record cannot be written, the next write writes the whole file anew.
type journal struct {
	history
	path string   // "" keeps the history in memory
	file *os.File // nil if there is none, or if it lacks a record
	log  *slog.Logger
}

// openJournal returns the history that an earlier process left in dir, with its last
// turn ended. An empty dir keeps the history in memory.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	j := &journal{log: log}
	if dir == "" {
		return j, nil
	}
	j.path = filepath.Join(dir, journalFile)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = j.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open history: %w", err), j.close())
	}
	if err := j.add(j.repairs(cutShort)...); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

// load applies the whole records of the file and cuts off the rest. It saves a rest
// that is more than the part of a record which a crash may leave.
func (j *journal) load() error {
	var err error
	if j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return err
	}
	info, err := j.file.Stat()
	if err == nil && info.Size() > maxJournalBytes {
		err = fmt.Errorf("%s has %d bytes, want at most %d", j.path, info.Size(), int64(maxJournalBytes))
	}
	if err != nil {
		return err
	}
	data, err := io.ReadAll(j.file)
	if err != nil {
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
	if bytes.ContainsRune(rest, '\n') {
		j.log.Error("the history is damaged: what follows the damage is set aside",
			slog.String("file", j.path), slog.Int("bytes", len(rest)))
		if err := os.WriteFile(j.path+".damaged", rest, 0o600); err != nil {
			return err
		}
	}
	return j.file.Truncate(int64(len(data) - len(rest)))
}

// add applies records and writes them. They stay applied if the write fails.
func (j *journal) add(recs ...record) error {
	for i, rec := range recs {
		if err := j.apply(rec); err != nil {
			if i > 0 {
				err = errors.Join(err, j.close())
			}
			return fmt.Errorf("extend history: %w", err)
		}
	}
	switch {
	case j.path == "" || len(recs) == 0:
		return nil
	case j.file == nil:
		return j.rewrite()
	}
	lines, err := encodeLines(recs)
	if err == nil {
		_, err = j.file.Write(lines)
	}
	if err != nil {
		return fmt.Errorf("write history: %w", errors.Join(err, j.close()))
	}
	return nil
}

func encodeLines(recs []record) ([]byte, error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, rec := range recs {
		if err := enc.Encode(rec); err != nil {
			return nil, fmt.Errorf("encode history: %w", err)
		}
	}
	return lines.Bytes(), nil
}

// replace puts a shorter conversation in the place of the old one. The rules stay.
func (j *journal) replace(messages []model.Message) error {
	fresh := history{rules: j.rules}
	for _, msg := range messages {
		if err := fresh.apply(record{Message: &msg}); err != nil {
			return fmt.Errorf("replace history: %w", err)
		}
	}
	j.history = fresh
	if j.path == "" {
		return nil
	}
	return j.rewrite()
}

// rewrite replaces the file, atomically, by one with the whole history.
func (j *journal) rewrite() error {
	next := j.path + ".new"
	closed := j.close() // some systems rename over no open file
	lines, err := encodeLines(j.records())
	if err = errors.Join(closed, err); err == nil {
		err = os.WriteFile(next, lines, 0o600)
	}
	if err == nil {
		err = os.Rename(next, j.path)
	}
	if err == nil {
		j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	file := j.file
	j.file = nil
	return file.Close() // whose error has the path
}
