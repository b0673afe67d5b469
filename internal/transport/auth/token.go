package auth

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	minToken = 16 // bytes
	maxToken = 1 << 10
)

// LoadOrCreateToken returns the token in the file at path. If the file does not
// exist, it makes one with a token of 256 random bits that only the owner can
// read, and the missing folders. It refuses a file that other users can read,
// because they may know the token. When several processes make the file at
// once, all return the same token.
func LoadOrCreateToken(path string) (string, error) {
	token, err := loadToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make the folder of the token file: %w", err)
	}
	if err := createToken(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the token file: %w", err)
	}
	return loadToken(path)
}

// createToken writes the file under another name and links it to path, so that
// no process sees half of it. It fails if path exists by then.
func createToken(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(newSecret() + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

func loadToken(path string) (string, error) {
	b, shared, err := readFile("token file", path, maxToken+2)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if err := cmp.Or(shared, CheckToken(token)); err != nil {
		return "", fmt.Errorf("token file %s: %w", path, err)
	}
	return token, nil
}

// readFile returns at most most bytes of a file. The error shared says that other
// users may know them.
func readFile(what, path string, most int64) (b []byte, shared, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open the %s: %w", what, err)
	}
	defer f.Close()
	if b, err = io.ReadAll(io.LimitReader(f, most)); err != nil {
		return nil, nil, fmt.Errorf("read the %s: %w", what, err)
	}
	return b, checkPrivate(f), nil
}

// checkPrivate refuses a file that other users can read, because they may have
// read it.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	// Windows has no such mode bits.
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("it can be read by others (mode %04o): make a new one, or run chmod 600 on it", mode)
	}
	return nil
}

// CheckToken refuses a token that could be guessed or cannot be sent in a
// header.
func CheckToken(token string) error {
	if len(token) < minToken || len(token) > maxToken {
		return fmt.Errorf("a token has %d to %d bytes", minToken, maxToken)
	}
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("a token is printable ASCII without spaces")
	}
	return nil
}
