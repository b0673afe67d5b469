package tool

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// maxSeen bounds the files that are remembered. What was not used for longest is
// forgotten, which costs the model reading it again.
const maxSeen = 4096

// seen is what the model has seen of files: all of them, though it may have been
// shown a part. The zero value is ready. Its methods may be called from any
// goroutine.
type seen struct {
	mu    sync.Mutex
	files map[string]*version // by path, links resolved
	uses  uint64
}

// A version is what a file held.
type version struct {
	sum  [sha256.Size]byte
	used uint64 // when, in uses
}

// put remembers what the file at path holds.
func (s *seen) put(path string, data []byte) {
	sum := sha256.Sum256(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = make(map[string]*version)
	}
	if s.files[path] == nil && len(s.files) >= maxSeen {
		s.forget()
	}
	s.uses++
	s.files[path] = &version{sum: sum, used: s.uses}
}

// forget drops the file that was not used for longest. s.mu is held.
func (s *seen) forget() {
	oldest, used := "", s.uses+1
	for path, v := range s.files {
		if v.used < used {
			oldest, used = path, v.used
		}
	}
	delete(s.files, oldest)
}

// check reports whether the file at path was ever seen, and whether it held the
// same as it does now.
func (s *seen) check(path string, data []byte) (ever, same bool) {
	sum := sha256.Sum256(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.files[path]
	if v == nil {
		return false, false
	}
	s.uses++
	v.used = s.uses
	return true, v.sum == sum
}

// key returns the path under which a file is remembered, however it is named.
func (k *Kit) key(f file) string {
	if real, err := k.Workspace.Real(f.rel); err == nil {
		return real
	}
	return f.rel
}

// remember notes that the model knows what the file holds.
func (k *Kit) remember(f file, data []byte) { k.seen.put(k.key(f), data) }

// known returns what a file holds that is about to be changed. It is a refusal
// if the model does not know that, unless nothing is lost.
func (k *Kit) known(f file) ([]byte, fs.FileInfo, error) {
	data, info, err := k.load(f)
	if err != nil || len(data) == 0 {
		return data, info, err
	}
	switch ever, same := k.seen.check(k.key(f), data); {
	case !ever:
		return nil, nil, refusal(f.name + " was not read yet. Read it before changing it.")
	case !same:
		return nil, nil, refusal(fmt.Sprintf("%s has changed since it was last read, maybe by a command or by a person. Read it again before changing it.", f.name))
	}
	return data, info, nil
}

// A revision returns what a file is to hold that held was, if it was there, and
// what the model is told of that.
type revision func(f file, was []byte, there bool) (text, said string, err error)

// revise changes the file at path, or makes it. What it holds the model has to
// know, and what it is to hold the model knows then.
func (k *Kit) revise(path string, do revision) (Result, error) {
	f, err := k.locate(path)
	if err != nil {
		return Result{}, err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	var data []byte
	var was fs.FileInfo
	_, missing := k.Workspace.Stat(f.rel)
	there := !errors.Is(missing, fs.ErrNotExist)
	if there {
		if data, was, err = k.known(f); err != nil {
			return Result{}, err
		}
	}
	text, said, err := do(f, data, there)
	switch {
	case err != nil:
		return Result{}, err
	case !there:
		err = k.Workspace.CreateFile(f.rel, []byte(text))
	case text != string(data):
		err = k.Workspace.ReplaceFile(f.rel, []byte(text), was)
	}
	if err != nil {
		return Result{}, f.refuse(err)
	}
	k.remember(f, []byte(text))
	return Result{Text: said}, nil
}
