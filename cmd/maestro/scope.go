package main

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-028515a8/maestro/transport/auth"
)

const (
	scopePrefix    = "scope-"     // begins the name of a scope's folder
	setAsidePrefix = "set-aside-" // takes its place if nobody can say whose the folder is
)

func (m *sessions) scopeDir(scope string) string {
	if scope == "" {
		return m.dir
	}
	return filepath.Join(m.dir, scopePrefix+url.PathEscape(scope))
}

// keepBelow keeps the sessions of the workspace below a directory.
func (m *sessions) keepBelow(root string) error {
	m.dir = m.workspaceDir(root)
	return m.migrateScopes()
}

// migrateScopes renames the folders of scopes that earlier versions named in
// another way. A folder that several principals shared is set aside: it belongs
// to none of their current scopes. What cannot be renamed is logged and stays.
func (m *sessions) migrateScopes() error {
	folders, err := os.ReadDir(m.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range folders {
		name, ok := strings.CutPrefix(f.Name(), scopePrefix)
		if ok && f.IsDir() {
			m.migrateScope(name)
		}
	}
	return nil
}

func (m *sessions) migrateScope(name string) {
	from := filepath.Join(m.dir, scopePrefix+name)
	old, err := url.PathUnescape(name)
	scope, known := auth.CurrentScope(old)
	if err != nil || !known || m.ignoresCase(scopePrefix+name) {
		to := filepath.Join(m.dir, setAsidePrefix+name)
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
func (m *sessions) renameFolder(from, to string) {
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

// ignoresCase reports whether a folder is also reached by its name in lower
// case: then principals whose names differ in case alone shared it.
func (m *sessions) ignoresCase(name string) bool {
	lower := strings.ToLower(name)
	one, err := os.Lstat(filepath.Join(m.dir, name))
	other, otherErr := os.Lstat(filepath.Join(m.dir, lower))
	return lower != name && err == nil && otherErr == nil && os.SameFile(one, other)
}
