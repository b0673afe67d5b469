package hecate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
)

// Options are the settings of a translation. They are not part of its state: set
// [Session.Options] after decoding a Session.
type Options struct {
	SessionID  string        // of the native session; run.queued names it
	Vocabulary Vocabulary    // of a new Session; empty means turn. A Session keeps the one that it began with
	Thinking   bool          // show the reasoning of the model
	Owner      string        // worker that serves the runs; empty means maestro
	LeaseTTL   time.Duration // time that the worker has for a run; 0 means 60 s

	// Redact returns text without its secrets, and whether it had any. Texts that
	// arrive in pieces are redacted word by word, with the text before them as context,
	// so a secret in such a text must not have spaces or characters beyond ASCII. nil
	// redacts nothing. The result of Redact must be a text that Redact does not
	// change.
	Redact func(text string) (clean string, changed bool)
}

// A Draft is an event without its id and its sequence. The server appends the drafts of
// a run in their order.
type Draft struct {
	RunID string
	Type  string
	At    time.Time       // never before the draft before
	Data  json.RawMessage // redacted
}

// Envelope returns the event of a draft of the session.
func (s *Session) Envelope(d Draft, sequence uint64) Event {
	return Event{
		EventID: EventID(d.At, d.RunID, sequence), RunID: d.RunID, TaskID: s.TaskID, SessionID: s.ChatID,
		Sequence: sequence, OccurredAt: d.At, Type: d.Type, Data: d.Data,
	}
}

// A Session is the translation of one session. One prompt is one run. The JSON form of a
// Session is its whole state: a decoded Session continues where the encoded one was. An
// idle Session has less than 4 KiB, and about 1 KiB for each of at most 16 questions that
// are still open. A Session in a run has at most 32 KiB of a text, and about 16 KiB for
// each of at most 64 tool calls.
type Session struct {
	Options Options `json:"-"`

	TaskID     string     `json:"task_id"`
	ChatID     string     `json:"chat_id"`
	Vocabulary Vocabulary `json:"vocabulary"`
	Seed       []byte     `json:"seed"`
	Runs       uint64     `json:"runs"`   // that have begun
	Cursor     uint64     `json:"cursor"` // of the last native event
	At         time.Time  `json:"at"`     // of the last draft

	Model    string `json:"model,omitempty"`
	Provider string `json:"provider,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	Cost     int64  `json:"cost,omitempty"` // of all runs, in micro-USD

	Working bool `json:"working,omitempty"` // the agent serves a prompt

	Last *lastRun  `json:"last,omitempty"` // the run that ended last
	Run  *run      `json:"run,omitempty"`  // the open run
	Kept []request `json:"kept,omitempty"` // open questions of runs that ended; at most maxRequests

	drafts []Draft
}

// NewSession returns the translation of a session without runs. Its ids derive from the
// seed, which must be random.
func NewSession(o Options, at time.Time, seed [10]byte) *Session {
	s := &Session{Options: o, Vocabulary: cmp.Or(o.Vocabulary, VocabularyTurn), Seed: bytes.Clone(seed[:]), At: at.UTC()}
	s.TaskID = ULID("task", at, derive(s.Seed, 0))
	s.ChatID = ULID("chat", at, derive(s.Seed, ^uint64(0)))
	return s
}

// RunID returns the id of the open run, or "".
func (s *Session) RunID() string {
	if s.Run == nil {
		return ""
	}
	return s.Run.ID
}
