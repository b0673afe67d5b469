package contracts

import "reflect"

// A blockForm is a content block before its keys are checked against its type.
type blockForm struct {
	Type     string  `json:"type" wire:"oneof=text|image"`
	Text     *string `json:"text,omitempty"`
	Data     *string `json:"data,omitempty"`
	MimeType *string `json:"mimeType,omitempty"`
}

var blockPlan = planner{}.object(reflect.TypeFor[blockForm]())

// block reads a content block and checks that it has the keys of its type.
func (r *reader) block(v reflect.Value) error {
	if err := r.open(); err != nil {
		return err
	}
	var form blockForm
	if err := r.members(blockPlan, reflect.ValueOf(&form).Elem(), 0); err != nil {
		return err
	}
	block := ContentBlock{Type: form.Type}
	switch form.Type {
	case "text":
		block.Text = r.requiredString("text", form.Text)
		r.unexpectedKey("data", form.Data)
		r.unexpectedKey("mimeType", form.MimeType)
	case "image":
		block.Data = r.requiredString("data", form.Data)
		block.MimeType = r.requiredString("mimeType", form.MimeType)
		r.unexpectedKey("text", form.Text)
	}
	v.Set(reflect.ValueOf(block))
	return nil
}

// requiredString returns a string that the block must have.
func (r *reader) requiredString(key string, s *string) string {
	if s == nil {
		r.violateAt(key, "Required property")
		return ""
	}
	return *s
}

// unexpectedKey handles a key that belongs to another type of block.
func (r *reader) unexpectedKey(key string, s *string) {
	switch {
	case s == nil:
	case r.strict:
		r.violateAt(key, "Unexpected property")
	default:
		r.ignore(key)
	}
}
