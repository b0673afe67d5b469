package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	summaryName = "summary.json"
	summaryMax  = 512 << 10
)

// ReadSummary returns the text that WriteSummary wrote to the journal in dir, or nil if
// it wrote none. written is as of [LastWritten]. It does not open the journal.
func ReadSummary(dir string) (text []byte, written time.Time, err error) {
	if written, err = LastWritten(dir); err != nil {
		return nil, written, err
	}
	path := filepath.Join(dir, summaryName)
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, written, nil
	case err != nil:
		return nil, written, err
	case !info.Mode().IsRegular() || info.Size() > summaryMax:
		return nil, written, fmt.Errorf("%w: %s is no file of at most %d bytes", ErrCorrupt, path, summaryMax)
	}
	text, err = os.ReadFile(path)
	return text, written, err
}

// WriteSummary replaces the text beside the journal in dir that describes the journal to
// readers that do not open it. With durable, the text is synced.
func WriteSummary(dir string, text []byte, durable bool) error {
	return replaceFile(filepath.Join(dir, summaryName), durable, func(*os.File) []byte { return text })
}

// replaceFile replaces a file as a whole by the text that content returns for the new file.
func replaceFile(path string, durable bool, content func(*os.File) []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content(f))
	if durable {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil || !durable {
		return err
	}
	return syncDir(filepath.Dir(path))
}
