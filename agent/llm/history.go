package llm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/mask"
)

// A record is one step of a history: exactly one of its fields is set, but for
// Shown, which comes with a Message.
type record struct {
	// Message is appended, or joined to the last message if both are the user's.
	Message *model.Message `json:"message,omitempty"`

	// Shown has the ids under which clients know the calls of Message, by the
	// ids in it.
	Shown map[string]string `json:"shown,omitempty"`

	// Draft is a piece of what the model is saying. The message that it becomes
	// replaces it.
	Draft string `json:"draft,omitempty"`

	// Amend replaces a result in the last message.
	Amend *model.CallResult `json:"amend,omitempty"`

	Rule *remembered `json:"rule,omitempty"`
}

// A remembered rule came with an answer of a client. Without a decision it is one
// that has been taken back.
type remembered struct {
	Decision decision `json:"decision"`
	Rule     string   `json:"rule"`
}

// shown is the rule as clients may see it: a line that was remembered may have a
// credential in it.
func (m remembered) shown() string { return mask.Command(m.Rule) }

func (m remembered) String() string { return string(m.Decision) + " " + m.shown() }

// maxRemembered bounds the rules of a session; the oldest are forgotten.
const maxRemembered = 256

// A history is a conversation with a model. It is valid but for the calls of the
// last message that are still open: roles alternate, the first message is the
// user's, and a message answers every call of the message before it, each once,
// before it says anything else.
type history struct {
	messages []model.Message
	shown    map[string]string // what clients call the calls in messages, by id
	open     []string          // ids of the calls without a result, in order
	draft    []byte            // what the model was saying when the records ended
	rules    []remembered
}

var errEmptyRecord = errors.New("a record without content")

// apply takes the next step. A record that would make the history invalid is
// refused and changes nothing.
func (h *history) apply(rec record) error {
	switch {
	case rec.Message != nil && rec.Message.Role == model.RoleAssistant:
		return h.hear(*rec.Message, rec.Shown)
	case rec.Message != nil:
		return h.tell(*rec.Message)
	case rec.Draft != "":
		if h.last() != model.RoleUser || len(h.open) > 0 {
			return errors.New("a draft that is no answer")
		}
		h.draft = append(h.draft, rec.Draft...)
	case rec.Amend != nil:
		return h.amend(*rec.Amend)
	case rec.Rule != nil:
		h.remember(*rec.Rule)
	default:
		return errEmptyRecord
	}
	return nil
}

// last returns whose the last message is; "" if there is none.
func (h *history) last() model.Role {
	if len(h.messages) == 0 {
		return ""
	}
	return h.messages[len(h.messages)-1].Role
}

// unanswered reports whether the model has still to say something to what the user
// said last, other than by the results of calls.
func (h *history) unanswered() bool {
	if h.last() != model.RoleUser {
		return false
	}
	parts := h.messages[len(h.messages)-1].Parts
	return parts[len(parts)-1].Result == nil
}

// hear appends a message of the model's.
func (h *history) hear(msg model.Message, shown map[string]string) error {
	if h.last() != model.RoleUser || len(h.open) > 0 {
		return errors.New("an answer to nothing")
	}
	if len(msg.Parts) == 0 {
		return errEmptyRecord
	}
	calls := map[string]string{}
	var open []string
	for _, p := range msg.Parts {
		if p.Result != nil || p.Image != nil || fields(p) != 1 {
			return errors.New("an answer with a part that no model says")
		}
		if p.Call == nil {
			continue
		}
		if _, used := h.shown[p.Call.ID]; used || calls[p.Call.ID] != "" || shown[p.Call.ID] == "" {
			return fmt.Errorf("a call %q that cannot be told from others", p.Call.ID)
		}
		calls[p.Call.ID] = shown[p.Call.ID]
		open = append(open, p.Call.ID)
	}
	if h.shown == nil {
		h.shown = map[string]string{}
	}
	for id, name := range calls {
		h.shown[id] = name
	}
	h.messages = append(h.messages, msg)
	h.open, h.draft = open, nil
	return nil
}

// tell adds to what the user says, which the results of calls are part of.
func (h *history) tell(msg model.Message) error {
	if msg.Role != model.RoleUser || len(msg.Parts) == 0 {
		return errEmptyRecord
	}
	open := slices.Clone(h.open)
	for _, p := range msg.Parts {
		switch {
		case fields(p) != 1 || p.Call != nil || p.Thinking != nil:
			return errors.New("a part that no user says")
		case p.Result == nil && len(open) > 0:
			return fmt.Errorf("call %q is not answered", open[0])
		case p.Result == nil:
			continue
		}
		at := slices.Index(open, p.Result.ID)
		if at < 0 {
			return fmt.Errorf("call %q waits for no result", p.Result.ID)
		}
		open = slices.Delete(open, at, at+1)
	}
	if n := len(h.messages); h.last() == model.RoleUser {
		h.messages[n-1].Parts = append(slices.Clip(h.messages[n-1].Parts), msg.Parts...)
	} else {
		h.messages = append(h.messages, model.Message{Role: model.RoleUser, Parts: slices.Clip(msg.Parts)})
	}
	h.open, h.draft = open, nil
	return nil
}

// amend replaces a result that nothing has been said to yet.
func (h *history) amend(result model.CallResult) error {
	if h.last() != model.RoleUser {
		return errors.New("a result that was answered cannot be amended")
	}
	msg := &h.messages[len(h.messages)-1]
	at := slices.IndexFunc(msg.Parts, func(p model.Part) bool { return p.Result != nil && p.Result.ID == result.ID })
	if at < 0 {
		return fmt.Errorf("no result of call %q to amend", result.ID)
	}
	msg.Parts = slices.Clone(msg.Parts)
	msg.Parts[at].Result = &result
	return nil
}

func (h *history) remember(rule remembered) {
	h.rules = slices.DeleteFunc(h.rules, func(r remembered) bool { return r.Rule == rule.Rule })
	if rule.Decision == undecided {
		return
	}
	h.rules = append(h.rules, rule)
	h.rules = slices.Clone(h.rules[max(0, len(h.rules)-maxRemembered):])
}

// find returns the call that clients know by a name.
func (h *history) find(shown string) (model.Call, bool) {
	for _, msg := range slices.Backward(h.messages) {
		for _, p := range msg.Parts {
			if p.Call != nil && h.shown[p.Call.ID] == shown {
				return *p.Call, true
			}
		}
	}
	return model.Call{}, false
}

// repairs returns the records that make the history valid after its owner has
// died: what the model was saying is its answer, and calls without a result get
// one that says so.
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

// records returns the shortest way to the history.
func (h *history) records() []record {
	recs := make([]record, 0, len(h.rules)+len(h.messages))
	for _, rule := range h.rules {
		recs = append(recs, record{Rule: &rule})
	}
	for _, msg := range h.messages {
		rec := record{Message: &msg}
		for _, p := range msg.Parts {
			if p.Call == nil {
				continue
			}
			if rec.Shown == nil {
				rec.Shown = map[string]string{}
			}
			rec.Shown[p.Call.ID] = h.shown[p.Call.ID]
		}
		recs = append(recs, rec)
	}
	if len(h.draft) > 0 {
		recs = append(recs, record{Draft: string(h.draft)})
	}
	return recs
}

// fields counts the fields of a part that are set.
func fields(p model.Part) int {
	n := 0
	for _, set := range []bool{p.Text != nil, p.Thinking != nil, p.Call != nil, p.Result != nil, p.Image != nil} {
		if set {
			n++
		}
	}
	return n
}

// said is a message of the model's that is one text.
func said(text string) *model.Message {
	return &model.Message{Role: model.RoleAssistant, Parts: []model.Part{{Text: &text}}}
}

// told is a message of the user's that is one text.
func told(text string) *model.Message {
	return &model.Message{Role: model.RoleUser, Parts: []model.Part{{Text: &text}}}
}

func resultRecord(result model.CallResult) record {
	return record{Message: &model.Message{Role: model.RoleUser, Parts: []model.Part{{Result: &result}}}}
}
