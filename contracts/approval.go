package contracts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	OptionID string `json:"option_id,omitempty" wire:"filled"`       // the chosen option
	Remember string `json:"remember,omitempty" wire:"oneof=session"` // RememberSession: the answer holds for more than this call
	Rule     string `json:"rule,omitempty" wire:"filled"`            // the rule to remember; empty: this call
	Reason   string `json:"reason,omitempty"`                        // for people
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
	unknown := ""
	d := Decoder{Unknown: func(pointer string) { unknown = cmp.Or(unknown, pointer) }}
	err := d.object(noteType, []byte(text), false, &n, noteTexts)
	if err == nil && unknown != "" {
		err = fmt.Errorf("%q is no known member of a note", unknown)
	}
	if err != nil {
		return AnswerNote{}, err
	}
	return n, nil
}

var (
	noteType  = &Type{goType: reflect.TypeFor[AnswerNote]()}
	noteTexts = &texts{}
)

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
