package llm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
)

// A record is one step of a history: exactly one of its fields is set.
type record struct {
	// Message is appended, or joined to the last message if both are the user's.
	Message *model.Message `json:"message,omitempty"`

	// Draft is a piece of the model's current answer, which the next message replaces.
	Draft string `json:"draft,omitempty"`

	Rule *remembered `json:"rule,omitempty"`
}

// A remembered rule came with a client's answer. Without a decision it is taken back.
type remembered struct {
	Decision decision `json:"decision"`
	Rule     string   `json:"rule"`
}

// shown is the rule as clients may see it: a line may contain a credential.
func (m remembered) shown() string { return mask.Command(m.Rule) }

func (m remembered) String() string { return string(m.Decision) + " " + m.shown() }

// maxRemembered bounds the rules of a session; the oldest are dropped.
const maxRemembered = 256

// A history is a conversation with a model. Roles alternate, the first message is
// the user's, and a message begins with one result for every call of the message
// before it. Only the calls of the last message may have no results yet.
type history struct {
	messages []model.Message
	ids      map[string]bool // of the calls in messages
	open     []string        // ids of the calls without a result, in order
	draft    []byte          // of the model's current answer
	rules    []remembered
}

var errEmptyRecord = errors.New("a record without content")

// apply takes the next step. It refuses an invalid record and changes nothing.
func (h *history) apply(rec record) error {
	switch {
	case rec.Message != nil:
		return h.addMessage(*rec.Message)
	case rec.Draft != "":
		if h.last() != model.RoleUser || len(h.open) > 0 {
			return errors.New("a draft that is no answer")
		}
		h.draft = append(h.draft, rec.Draft...)
	case rec.Rule != nil:
		h.remember(*rec.Rule)
	default:
		return errEmptyRecord
	}
	return nil
}

// last returns the role of the last message; "" if there is none.
func (h *history) last() model.Role {
	if len(h.messages) == 0 {
		return ""
	}
	return h.messages[len(h.messages)-1].Role
}

// unanswered reports whether the history ends with the user, but not with a result.
func (h *history) unanswered() bool {
	if h.last() != model.RoleUser {
		return false
	}
	parts := h.messages[len(h.messages)-1].Parts
	return parts[len(parts)-1].Result == nil
}

// addMessage appends a message, or joins it to the last one if both are the user's.
func (h *history) addMessage(msg model.Message) error {
	user, join := msg.Role == model.RoleUser, h.last() == model.RoleUser
	switch {
	case len(msg.Parts) == 0 || !user && msg.Role != model.RoleAssistant:
		return errEmptyRecord
	case !user && (!join || len(h.open) > 0):
		return errors.New("an answer to nothing")
	}
	open := slices.Clone(h.open)
	for _, p := range msg.Parts {
		switch {
		case fields(p) != 1, user && (p.Call != nil || p.Thinking != nil), !user && (p.Result != nil || p.Image != nil):
			return fmt.Errorf("a part that is not the %s's", msg.Role)
		case p.Call != nil:
			if h.ids[p.Call.ID] || slices.Contains(open, p.Call.ID) || p.Call.Shown == "" {
				return fmt.Errorf("a call %q that cannot be told from others", p.Call.ID)
			}
			open = append(open, p.Call.ID)
		case p.Result != nil:
			at := slices.Index(open, p.Result.ID)
			if at < 0 {
				return fmt.Errorf("call %q waits for no result", p.Result.ID)
			}
			open = slices.Delete(open, at, at+1)
		case user && len(open) > 0:
			return fmt.Errorf("call %q is not answered", open[0])
		}
	}
	if h.ids == nil {
		h.ids = map[string]bool{}
	}
	for _, id := range open {
		h.ids[id] = true
	}
	msg.Parts = slices.Clip(msg.Parts)
	if user && join {
		last := &h.messages[len(h.messages)-1]
		last.Parts = append(last.Parts, msg.Parts...)
	} else {
		h.messages = append(h.messages, msg)
	}
	h.open, h.draft = open, nil
	return nil
}

func (h *history) remember(rule remembered) {
	h.rules = slices.DeleteFunc(h.rules, func(r remembered) bool { return r.Rule == rule.Rule })
	if rule.Decision != undecided {
		h.rules = append(h.rules, rule)
	}
	h.rules = slices.Clone(h.rules[max(0, len(h.rules)-maxRemembered):])
}

// find returns the call with an id that clients know.
func (h *history) find(shown string) (model.Call, bool) {
	for _, msg := range slices.Backward(h.messages) {
		for _, p := range msg.Parts {
			if p.Call != nil && p.Call.Shown == shown {
				return *p.Call, true
			}
		}
	}
	return model.Call{}, false
}

// repairs returns the records that end the current turn: the draft becomes the
// model's answer, and calls without a result get one that says why.
func (h *history) repairs(why string) []record {
	var recs []record
	if draft := string(h.draft); strings.TrimSpace(draft) != "" {
		recs = append(recs, record{Message: said(draft)})
	}
	for _, id := range h.open {
		recs = append(recs, resultRecord(model.CallResult{ID: id, Text: why, IsError: true}))
	}
	return recs
}

// records returns the fewest records that make the history.
func (h *history) records() []record {
	recs := make([]record, 0, len(h.rules)+len(h.messages)+1)
	for _, rule := range h.rules {
		recs = append(recs, record{Rule: &rule})
	}
	for _, msg := range h.messages {
		recs = append(recs, record{Message: &msg})
	}
	if len(h.draft) > 0 {
		recs = append(recs, record{Draft: string(h.draft)})
	}
	return recs
}

// fields counts the fields of a part that are set.
func fields(p model.Part) (n int) {
	for _, set := range []bool{p.Text != nil, p.Thinking != nil, p.Call != nil, p.Result != nil, p.Image != nil} {
		if set {
			n++
		}
	}
	return n
}

func said(text string) *model.Message {
	return &model.Message{Role: model.RoleAssistant, Parts: []model.Part{{Text: &text}}}
}

func told(text string) *model.Message {
	return &model.Message{Role: model.RoleUser, Parts: []model.Part{{Text: &text}}}
}

func resultRecord(result model.CallResult) record {
	return record{Message: &model.Message{Role: model.RoleUser, Parts: []model.Part{{Result: &result}}}}
}
