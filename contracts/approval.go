package contracts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// An ApprovalOption is an answer that an agent offers to an approval. Clients find the
// options under "options" of "_acp" in the args of the question.
type ApprovalOption struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"` // allow_once, allow_always, reject_once, reject_always, or the agent's own
}

// Allows reports whether the option lets the call run.
func (o ApprovalOption) Allows() bool { return strings.HasPrefix(o.Kind, "allow") }

// Rejects reports whether the option forbids the call. An option of unknown kind
// neither allows nor rejects.
func (o ApprovalOption) Rejects() bool { return strings.HasPrefix(o.Kind, "reject") }

// Always reports whether the option holds for more than this call.
func (o ApprovalOption) Always() bool { return strings.HasSuffix(o.Kind, "_always") }

// ApprovalOptions are an agent's options for one approval, in the agent's order.
type ApprovalOptions []ApprovalOption

// Index returns the index of the option with an id, or -1.
func (all ApprovalOptions) Index(id string) int {
	return slices.IndexFunc(all, func(o ApprovalOption) bool { return o.ID == id })
}

// Meant returns the index of the option that an answer selects, or -1. The option
// that n names comes first. Without one, it is the first option with the verdict
// and with the duration of n.Remember, or else the first option with the verdict. A
// denial never selects an option that allows.
func (all ApprovalOptions) Meant(approved bool, n AnswerNote) int {
	if n.OptionID != "" {
		if i := all.Index(n.OptionID); i < 0 || approved || !all[i].Allows() {
			return i
		}
	}
	fits := func(o ApprovalOption) bool { return approved && o.Allows() || !approved && o.Rejects() }
	always := n.Remember != ""
	if i := slices.IndexFunc(all, func(o ApprovalOption) bool { return fits(o) && o.Always() == always }); i >= 0 {
		return i
	}
	return slices.IndexFunc(all, fits)
}

// An AnswerNote is what the answer to an approval says beside yes or no. The wire
// has no field for it: it is a JSON object in the reason of the answer, or in a
// text of its content. The agent decides which notes it follows.
type AnswerNote struct {
	OptionID string `json:"option_id,omitempty"` // the chosen option
	Remember string `json:"remember,omitempty"`  // RememberSession: the answer holds for more than this call
	Rule     string `json:"rule,omitempty"`      // the rule to remember; empty: this call
	Reason   string `json:"reason,omitempty"`    // for people
}

// RememberSession is the only value of AnswerNote.Remember.
const RememberSession = "session"

// ErrNoNote is the error for a text that is not a note.
var ErrNoNote = errors.New("no note")

// ParseAnswerNote parses a JSON object. It returns [ErrNoNote] if text does not
// start with '{', and another error, safe to show, for anything but one object with
// known, unique members whose values are valid. An answer with such an error must
// not approve. A null counts as absent.
func ParseAnswerNote(text string) (AnswerNote, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return AnswerNote{}, ErrNoNote
	}
	var n AnswerNote
	if err := n.read(text); err != nil {
		return AnswerNote{}, err
	}
	return n, nil
}

// read reads a text that begins with a brace.
func (n *AnswerNote) read(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("invalid UTF-8")
	}
	s := scanner{text: []byte(text), limit: 1}
	fields := map[string]*string{"option_id": &n.OptionID, "remember": &n.Remember, "rule": &n.Rule, "reason": &n.Reason}
	s.open()
	for key, ok := s.key(); ok; key, ok = s.key() {
		if err := s.noteField(string(key), fields); err != nil {
			return err
		}
	}
	if s.end(); s.err != nil {
		return s.err
	}
	return nil
}

// noteField reads a member into its field and sets the entry of fields to nil.
func (s *scanner) noteField(name string, fields map[string]*string) error {
	field, known := fields[name]
	switch {
	case !known:
		return fmt.Errorf("%q is no known member of a note", shortKey(name))
	case field == nil:
		return fmt.Errorf("%s is said twice", name)
	}
	fields[name] = nil
	if s.peek() == 'n' {
		s.word("null")
		return nil
	}
	if s.peek() != '"' {
		return fmt.Errorf("%s is no text", name)
	}
	*field = string(s.str())
	switch {
	case s.err != nil:
		return s.err
	case name == "remember" && *field != RememberSession:
		return errors.New("an answer is remembered for the session only")
	case name != "reason" && *field == "":
		return fmt.Errorf("%s is empty", name)
	}
	return nil
}

// String returns the JSON text of the note.
func (n AnswerNote) String() string {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // it has only strings
	}
	return string(text)
}

// Note returns the note of an answer, and its reason without the note. It uses the
// first text that starts with '{': the reason, then the texts of the content. If
// that text is not a valid note, err says why, and reason is the whole text. Only
// answers of users have notes.
func (o Outcome) Note() (n AnswerNote, reason string, err error) {
	if o.By != ResolvedByUser {
		return AnswerNote{}, o.Reason, nil
	}
	if n, err = ParseAnswerNote(o.Reason); err == nil {
		return n, n.Reason, nil
	}
	for i := 0; i < len(o.Content) && errors.Is(err, ErrNoNote); i++ {
		if o.Content[i].Type == "text" {
			n, err = ParseAnswerNote(o.Content[i].Text)
		}
	}
	if errors.Is(err, ErrNoNote) {
		err = nil
	}
	return n, cmp.Or(o.Reason, n.Reason), err
}
