package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// readStored reads what writeStored has written, and returns false if there is no
// file. It refuses a file that other users can read.
func readStored(what, path string, most int64, into any) (found bool, err error) {
	if path == "" {
		return false, nil
	}
	b, shared, err := readFile(what, path, most)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case shared != nil:
		return false, fmt.Errorf("%s %s: %w", what, path, shared)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("%s %s: malformed JSON", what, path)
	}
	return true, nil
}

// writeStored replaces the file by content as JSON. A reader sees all of the old file
// or all of the new one, also after a crash.
func writeStored(what, path string, content any) (err error) {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		panic(err) // cannot fail: strings and times with four-digit years
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the %s: %w", what, err)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("make the %s: %w", what, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the %s: %w", what, errors.Join(err, os.Remove(f.Name())))
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("sync the folder of the %s: %w", what, err)
	}
	return nil
}

// syncDir makes a rename in dir durable. Windows has no such call.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
