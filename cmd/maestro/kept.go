package main

import (
	"container/list"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/journal"
)

// A catalog knows which sessions are on the disk, so that listing and making
// sessions takes the same time however many there are. It reads the folder of a
// scope when it is first asked about the scope. Sessions that an operator
// removes later are noticed when they would be listed, or when there are too
// many. Sessions that an operator adds are listed once they were used, or when
// the program is started again.
type catalog struct {
	folder func(scope string) string // of a scope's sessions
	most   int                       // sessions to know of; beyond it other scopes are forgotten, and read again when they are asked about

	mu     sync.Mutex
	scopes map[string]*cataloged
	size   int // sessions in all scopes
}

// cataloged are the sessions of one scope.
type cataloged struct {
	latest list.List // of ids, the one that was used last first
	byID   map[string]*list.Element
}

// A keptSession is a session on the disk.
type keptSession struct {
	id string
	at time.Time // when it was last written to
}

// touch notes that a session was made or used.
func (c *catalog) touch(scope, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.scopes[scope]
	if s == nil {
		return // it will be found in the folder
	}
	if e := s.byID[id]; e != nil {
		s.latest.MoveToFront(e)
		return
	}
	s.byID[id] = s.latest.PushFront(id)
	c.size++
}

// full reports whether a scope has so many sessions.
func (c *catalog) full(scope string, most int) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.scope(scope)
	if err == nil && len(s.byID) >= most { // unless some were removed
		c.forget(scope)
		s, err = c.scope(scope)
	}
	return err == nil && len(s.byID) >= most, err
}

// list returns the sessions of a scope that wanted reports true for, the one
// that was used last first, and at most so many.
func (c *catalog) list(scope string, most int, wanted func(id string) bool) ([]keptSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.scope(scope)
	if err != nil {
		return nil, err
	}
	folder := c.folder(scope)
	var found []keptSession
	var next *list.Element
	for e := s.latest.Front(); e != nil && len(found) < most; e = next {
		next = e.Next()
		id := e.Value.(string)
		if !wanted(id) {
			continue
		}
		at, err := journal.LastWritten(filepath.Join(folder, sessionFolder(id)))
		if errors.Is(err, fs.ErrNotExist) {
			s.latest.Remove(e)
			delete(s.byID, id)
			c.size--
			continue
		}
		found = append(found, keptSession{id, at}) // an entry whose time is unknown is listed all the same
	}
	return found, nil
}

// scope returns what is known of a scope. It reads the folder if that is
// nothing.
func (c *catalog) scope(scope string) (*cataloged, error) {
	if s := c.scopes[scope]; s != nil {
		return s, nil
	}
	found, err := readFolder(c.folder(scope))
	if err != nil {
		return nil, err
	}
	s := &cataloged{byID: make(map[string]*list.Element, len(found))}
	for _, k := range found {
		s.byID[k.id] = s.latest.PushBack(k.id)
	}
	for other := range c.scopes {
		if c.size+len(found) <= c.most {
			break
		}
		c.forget(other)
	}
	if c.scopes == nil {
		c.scopes = map[string]*cataloged{}
	}
	c.scopes[scope] = s
	c.size += len(found)
	return s, nil
}

func (c *catalog) forget(scope string) {
	c.size -= len(c.scopes[scope].byID)
	delete(c.scopes, scope)
}

// readFolder returns the sessions in dir, the one that was written to last first.
func readFolder(dir string) ([]keptSession, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []keptSession
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), sessionPrefix)
		id, err := url.PathUnescape(name)
		if !ok || err != nil || !e.IsDir() {
			continue
		}
		at, _ := journal.LastWritten(filepath.Join(dir, e.Name()))
		found = append(found, keptSession{id, at})
	}
	slices.SortFunc(found, func(a, b keptSession) int { return b.at.Compare(a.at) })
	return found, nil
}
