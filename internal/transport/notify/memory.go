package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A memory is what the file has about one receiver.
type memory struct {
	State contracts.ReceiverState `json:"state"` // without Waiting
	Queue []*waiting              `json:"queue"` // the first is being sent; at most maxQueue

	// Settled are questions whose notifications do not wait any more, by the time at which
	// they were asked; the newest, at most maxSettled. Those that were asked before Since
	// are settled too, unless they wait.
	Settled []settled `json:"settled"`
	Since   string    `json:"since,omitempty"`
}

// A waiting notification is in the queue of one receiver.
type waiting struct {
	notice
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"` // not before
}

type settled struct {
	ID      string `json:"id"`
	AskedAt string `json:"asked_at"`
}

const (
	maxStateFile = 16 << 20 // bytes; the bounds of queues allow a third of it
	saveEvery    = 100 * time.Millisecond
)

// knows reports whether the receiver was told of a question or will be.
func (m *memory) knows(about *notice) bool {
	return about.AskedAt < m.Since ||
		slices.Contains(m.Settled, settled{about.ID, about.AskedAt}) ||
		slices.ContainsFunc(m.Queue, func(w *waiting) bool { return w.ID == about.ID })
}

// settle remembers that a notification does not wait any more.
func (m *memory) settle(about *notice) {
	m.Settled = append(m.Settled, settled{about.ID, about.AskedAt})
	slices.SortStableFunc(m.Settled, func(a, b settled) int { return strings.Compare(a.AskedAt, b.AskedAt) })
	if len(m.Settled) > maxSettled {
		m.Since = max(m.Since, m.Settled[0].AskedAt)
		m.Settled = slices.Clone(m.Settled[1:])
	}
}

// complete sets what is not stored of a notice.
func (m *notice) complete(c *Config) {
	ids := strings.NewReplacer("{session}", url.QueryEscape(m.Session), "{request}", url.QueryEscape(m.Request))
	m.link, m.ended = ids.Replace(c.Link), make(chan struct{})
}

// load reads the file of an earlier process. If it cannot, receivers may be told again of
// the open questions.
func (n *Notifier) load() {
	if n.opts.StateFile == "" {
		return
	}
	info, err := os.Stat(n.opts.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var stored struct {
		Receivers []memory `json:"receivers"`
	}
	if err == nil && info.Size() > maxStateFile {
		err = fmt.Errorf("it is longer than %d bytes", maxStateFile)
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(n.opts.StateFile); err == nil {
			err = json.Unmarshal(text, &stored)
		}
	}
	if err != nil {
		n.opts.Log.Error("the stored notifications cannot be read", "file", n.opts.StateFile, "err", err)
		return
	}
	for _, l := range n.lanes {
		i := slices.IndexFunc(stored.Receivers, func(m memory) bool { return m.State.Name == l.Name && m.State.Kind == l.Kind })
		if i < 0 {
			continue
		}
		m := stored.Receivers[i]
		m.State.Dead = slices.Concat([]contracts.DeadLetter{}, m.State.Dead[max(len(m.State.Dead)-maxDead, 0):])
		m.Settled = m.Settled[max(len(m.Settled)-maxSettled, 0):]
		m.Queue = slices.DeleteFunc(m.Queue, func(w *waiting) bool {
			return w == nil || !l.sees(&w.notice)
		})
		m.Queue = m.Queue[:min(len(m.Queue), maxQueue)]
		for _, w := range m.Queue {
			w.complete(&n.opts.Config)
		}
		l.memory = m
	}
}

// saves writes the file after changes, at most every saveEvery, until n.ctx ends.
func (n *Notifier) saves() {
	for {
		select {
		case <-n.dirty:
		case <-n.ctx.Done():
			return
		}
		n.save()
		select {
		case <-time.After(saveEvery):
		case <-n.ctx.Done():
			return
		}
	}
}

// save writes the file. It is not called twice at once.
func (n *Notifier) save() {
	if n.opts.StateFile == "" {
		return
	}
	n.mu.Lock()
	lanes := slices.Clone(n.lanes)
	n.mu.Unlock()
	var file struct {
		Receivers []json.RawMessage `json:"receivers"`
	}
	for _, l := range lanes {
		n.mu.Lock()
		text, _ := json.Marshal(l.memory) // cannot fail: texts, numbers and times of this century
		n.mu.Unlock()
		file.Receivers = append(file.Receivers, text)
	}
	text, err := json.Marshal(file)
	if err == nil {
		err = replaceFile(n.opts.StateFile, text)
	}
	if err != nil && !n.failing {
		n.opts.Log.Error("notifications that wait cannot be kept", "err", err)
	}
	n.failing = err != nil
}

// replaceFile replaces a file as a whole.
func replaceFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
