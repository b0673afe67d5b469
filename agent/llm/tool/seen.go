package tool

import (
	"context"
	"crypto/sha256"
	"encoding/json"
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

// A revised is what becomes of a file: what it is to hold, what the model is told
// of that, and what is told to those who are asked first, if the arguments alone
// do not say it.
type revised struct{ text, said, about string }

// A revision returns what becomes of a file that held was, if it was there.
type revision func(f file, was []byte, there bool) (revised, error)

// A draft is a change of a file that is still to be made.
type draft struct {
	revised
	file  file
	was   []byte
	info  fs.FileInfo
	there bool
}

// draft returns what a revision makes of the file at path. What it holds the model
// has to know. k.writing is held.
func (k *Kit) draft(path string, do revision) (d draft, err error) {
	if d.file, err = k.locate(path); err != nil {
		return draft{}, err
	}
	_, missing := k.Workspace.Stat(d.file.rel)
	if d.there = !errors.Is(missing, fs.ErrNotExist); d.there {
		if d.was, d.info, err = k.known(d.file); err != nil {
			return draft{}, err
		}
	}
	d.revised, err = do(d.file, d.was, d.there)
	return d, err
}

// changing makes a tool one that changes the file that its arguments name. read
// returns which one that is and what becomes of it.
func (k *Kit) changing(t Tool, read func(args json.RawMessage) (path string, do revision, err error)) Tool {
	t.Gated = true
	t.Look = func(args json.RawMessage) Result {
		path, do, err := read(args)
		if err != nil {
			return refused(err)
		}
		return k.look(path, do)
	}
	t.Run = told(func(_ context.Context, args json.RawMessage, _ func(string) error) (Result, error) {
		path, do, err := read(args)
		if err != nil {
			return Result{}, err
		}
		return k.revise(path, do)
	})
	return t
}

// look returns what revise would do, or why it could not.
func (k *Kit) look(path string, do revision) Result {
	k.writing.Lock()
	defer k.writing.Unlock()
	d, err := k.draft(path, do)
	if err != nil {
		return refused(err)
	}
	return Result{Text: d.about}
}

// revise changes the file at path, or makes it. What it is to hold the model knows
// then.
func (k *Kit) revise(path string, do revision) (Result, error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	d, err := k.draft(path, do)
	if err != nil {
		return Result{}, err
	}
	if !d.there {
		err = k.Workspace.CreateFile(d.file.rel, []byte(d.text))
	} else if d.text != string(d.was) {
		err = k.Workspace.ReplaceFile(d.file.rel, []byte(d.text), d.info)
	}
	if err != nil {
		return Result{}, d.file.refuse(err)
	}
	k.remember(d.file, []byte(d.text))
	return Result{Text: d.said}, nil
}
