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

// Rejects reports whether the option forbids the call. One of an unknown kind
// neither allows nor rejects.
func (o ApprovalOption) Rejects() bool { return strings.HasPrefix(o.Kind, "reject") }

// Always reports whether the option holds for more than this call.
func (o ApprovalOption) Always() bool { return strings.HasSuffix(o.Kind, "_always") }

// ApprovalOptions are what an agent offers to one approval, in its order.
type ApprovalOptions []ApprovalOption

// Index returns the place of the option with an id, -1 if there is none.
func (all ApprovalOptions) Index(id string) int {
	return slices.IndexFunc(all, func(o ApprovalOption) bool { return o.ID == id })
}

// Meant returns the place of the option that an answer stands for, -1 if there is
// none: the one that the wish names, or else the first that says what the verdict
// does for as long as is wished, or for another time, if that is the only way to
// say it. An option that allows is never taken for a denial.
func (all ApprovalOptions) Meant(approved bool, w Wish) int {
	if w.OptionID != "" {
		if i := all.Index(w.OptionID); i < 0 || approved || !all[i].Allows() {
			return i
		}
	}
	fits := func(o ApprovalOption) bool { return approved && o.Allows() || !approved && o.Rejects() }
	always := w.Remember != ""
	if i := slices.IndexFunc(all, func(o ApprovalOption) bool { return fits(o) && o.Always() == always }); i >= 0 {
		return i
	}
	return slices.IndexFunc(all, fits)
}

// A Wish is what an answer to an approval says beside yes or no. The wire has no
// field for it: it is a JSON object in the reason of the answer, or in a text of
// its content. Which wishes can be granted is the agent's to say.
type Wish struct {
	OptionID string `json:"option_id,omitempty"` // the option that is chosen
	Remember string `json:"remember,omitempty"`  // RememberSession: the answer is to hold for more than this call
	Rule     string `json:"rule,omitempty"`      // what is to be remembered, if not this call
	Reason   string `json:"reason,omitempty"`    // why, in words
}

// RememberSession is as long as an answer may be remembered.
const RememberSession = "session"

// ErrNoWish is the error for a text that is not meant as a wish.
var ErrNoWish = errors.New("no wish")

// ParseWish reads a text that may be a wish. One that does not begin with a brace
// is words: [ErrNoWish]. Any other error says, fit to be shown, why a text that is
// meant as a wish cannot be read for certain, which makes it no consent: it is not
// one JSON object, says a thing twice or one that is unknown, or has a value that
// means nothing. A null is as good as nothing.
func ParseWish(text string) (Wish, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return Wish{}, ErrNoWish
	}
	var w Wish
	if err := w.read(text); err != nil {
		return Wish{}, err
	}
	return w, nil
}

// read reads a text that begins with a brace.
func (w *Wish) read(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("invalid UTF-8")
	}
	s := scanner{text: []byte(text), pos: 1, depth: 1, limit: 1}
	fields := map[string]*string{"option_id": &w.OptionID, "remember": &w.Remember, "rule": &w.Rule, "reason": &w.Reason}
	for first := true; ; first = false {
		more, err := s.more('}', first)
		if err != nil {
			return err
		}
		if !more {
			return s.end()
		}
		if err := s.wished(fields); err != nil {
			return err
		}
	}
}

// wished reads a key and its value into one of the fields, which is nil from then
// on.
func (s *scanner) wished(fields map[string]*string) error {
	key, err := s.key()
	if err != nil {
		return err
	}
	name := string(key)
	field, known := fields[name]
	switch {
	case !known:
		return fmt.Errorf("%q is no wish that is known", shortKey(name))
	case field == nil:
		return fmt.Errorf("%s is said twice", name)
	}
	fields[name] = nil
	switch s.peek() {
	case 'n':
		return s.word("null")
	case '"':
		value, err := s.str()
		if err != nil {
			return err
		}
		*field = string(value)
	default:
		return fmt.Errorf("%s is no text", name)
	}
	switch {
	case name == "remember" && *field != RememberSession:
		return errors.New("an answer is remembered for the session only")
	case name != "reason" && *field == "":
		return fmt.Errorf("%s is empty", name)
	}
	return nil
}

// String returns the wish as an answer says it.
func (w Wish) String() string {
	text, err := json.Marshal(w)
	if err != nil {
		panic(err) // texts only
	}
	return string(text)
}

// Wish returns what a person wants beside their verdict, and their reason without
// that. The first text that is meant as a wish counts, the reason before those of
// the content; if it cannot be read, the error says why and the reason is all that
// was said. What others decide carries no wish.
func (o Outcome) Wish() (w Wish, reason string, err error) {
	if o.By != ResolvedByUser {
		return Wish{}, o.Reason, nil
	}
	if w, err = ParseWish(o.Reason); err == nil {
		return w, w.Reason, nil
	}
	for i := 0; i < len(o.Content) && errors.Is(err, ErrNoWish); i++ {
		if o.Content[i].Type == "text" {
			w, err = ParseWish(o.Content[i].Text)
		}
	}
	if errors.Is(err, ErrNoWish) {
		err = nil
	}
	return w, cmp.Or(o.Reason, w.Reason), err
}
