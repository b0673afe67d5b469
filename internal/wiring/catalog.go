package wiring

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A catalog lists the sessions on the disk without reading the disk each time. It
// reads the folder of a scope at the first question about the scope. It notices
// sessions that an operator removes when it would list them, or when there are too
// many, and sessions that an operator adds when they are used, or after a restart.
type catalog struct {
	folder func(scope string) string // of a scope's sessions
	most   int                       // sessions in memory; beyond it other scopes are dropped, and read again when needed

	mu     sync.Mutex
	scopes map[string][]string // ids of sessions by scope, the one used last first
	size   int                 // sessions in all scopes
}

// touch notes that a session was made or used.
func (c *catalog) touch(scope, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, read := c.scopes[scope]
	if !read {
		return // the session will be found in the folder
	}
	if i := slices.Index(ids, id); i >= 0 {
		ids = slices.Delete(ids, i, i+1)
		c.size--
	}
	c.scopes[scope] = slices.Insert(ids, 0, id)
	c.size++
}

// full reports whether a scope has that many sessions.
func (c *catalog) full(scope string, most int) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, err := c.scope(scope)
	if err == nil && len(ids) >= most { // unless some were removed
		c.forget(scope)
		ids, err = c.scope(scope)
	}
	return err == nil && len(ids) >= most, err
}

// list returns the sessions of a scope for which wanted reports true, the one used
// last first, and at most that many.
func (c *catalog) list(scope string, most int, wanted func(id string) bool) ([]contracts.SessionEntry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, err := c.scope(scope)
	if err != nil {
		return nil, err
	}
	folder := c.folder(scope)
	var found []contracts.SessionEntry
	c.scopes[scope] = slices.DeleteFunc(ids, func(id string) (removed bool) {
		if len(found) == most || !wanted(id) {
			return false
		}
		at, err := journal.LastWritten(filepath.Join(folder, sessionFolder(id)))
		if errors.Is(err, fs.ErrNotExist) {
			c.size--
			return true
		}
		found = append(found, contracts.SessionEntry{SessionID: id, UpdatedAt: at.UTC().Format(listedTime)}) // also if its time is unknown
		return false
	})
	return found, nil
}

// stored returns the sessions of a scope, the one used last first.
func (c *catalog) stored(scope string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, err := c.scope(scope)
	return slices.Clone(ids), err
}

// scope returns the sessions of a scope. It reads the folder if they are not in
// memory.
func (c *catalog) scope(scope string) ([]string, error) {
	if ids, read := c.scopes[scope]; read {
		return ids, nil
	}
	found, err := readFolder(c.folder(scope))
	if err != nil {
		return nil, err
	}
	for other := range c.scopes {
		if c.size+len(found) <= c.most {
			break
		}
		c.forget(other)
	}
	if c.scopes == nil {
		c.scopes = map[string][]string{}
	}
	c.scopes[scope] = found
	c.size += len(found)
	return found, nil
}

func (c *catalog) forget(scope string) {
	c.size -= len(c.scopes[scope])
	delete(c.scopes, scope)
}

// readFolder returns the ids of the sessions in dir, the one written to last first.
func readFolder(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	written := map[string]time.Time{}
	for _, e := range entries {
		id, ok := Unescaped(e.Name(), SessionPrefix)
		if !ok || !e.IsDir() {
			continue
		}
		ids = append(ids, id)
		written[id], _ = journal.LastWritten(filepath.Join(dir, e.Name()))
	}
	slices.SortFunc(ids, func(a, b string) int { return written[b].Compare(written[a]) })
	return ids, nil
}

// Latest returns the id of the owner's session that was used last, empty if there is none.
func (m *Sessions) Latest() (id string, err error) {
	last, err := m.kept.list("", 1, func(string) bool { return true })
	if err != nil || len(last) == 0 {
		return "", err
	}
	return last[0].SessionID, nil
}
