package wiring

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-028515a8/maestro/internal/transport/auth"
)

const (
	ScopePrefix    = "scope-"     // begins the name of a scope's folder
	setAsidePrefix = "set-aside-" // replaces it if the owner of the folder is unknown
)

func (m *Sessions) scopeDir(scope string) string {
	if scope == "" {
		return m.Dir
	}
	return filepath.Join(m.Dir, ScopePrefix+url.PathEscape(scope))
}

// migrateScopes renames the folders of scopes to the names of this version. A folder
// that several principals shared is set aside, because it belongs to none of their
// current scopes. A folder that cannot be renamed is logged and stays.
func (m *Sessions) migrateScopes() error {
	folders, err := os.ReadDir(m.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range folders {
		name, ok := strings.CutPrefix(f.Name(), ScopePrefix)
		if ok && f.IsDir() {
			m.migrateScope(name)
		}
	}
	return nil
}

func (m *Sessions) migrateScope(name string) {
	from := filepath.Join(m.Dir, ScopePrefix+name)
	old, err := url.PathUnescape(name)
	scope, known := auth.CurrentScope(old)
	if err != nil || !known || m.ignoresCase(ScopePrefix+name) {
		to := filepath.Join(m.Dir, setAsidePrefix+name)
		m.log.Warn("sessions of a scope are set aside: an earlier version let several principals reach them", "from", from, "to", to)
		m.renameFolder(from, to)
		return
	}
	if to := m.scopeDir(scope); to != from {
		m.log.Info("the folder of a scope has another name now", "from", from, "to", to)
		m.renameFolder(from, to)
	}
}

// renameFolder renames a folder unless the new name is taken.
func (m *Sessions) renameFolder(from, to string) {
	_, err := os.Lstat(to)
	switch {
	case err == nil:
		err = &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		err = os.Rename(from, to)
	}
	if err != nil {
		m.log.Error("a folder was not renamed", "err", err)
	}
}

// ignoresCase reports whether the folder is also found by its name in lower case. Then
// principals whose names differ only in case shared it.
func (m *Sessions) ignoresCase(name string) bool {
	lower := strings.ToLower(name)
	one, err := os.Lstat(filepath.Join(m.Dir, name))
	other, otherErr := os.Lstat(filepath.Join(m.Dir, lower))
	return lower != name && err == nil && otherErr == nil && os.SameFile(one, other)
}
