package contracts

import "reflect"

// A blockForm is a content block before it is known which keys it should have.
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
		block.Text = r.part("text", form.Text)
		r.foreign("data", form.Data)
		r.foreign("mimeType", form.MimeType)
	case "image":
		block.Data = r.part("data", form.Data)
		block.MimeType = r.part("mimeType", form.MimeType)
		r.foreign("text", form.Text)
	}
	v.Set(reflect.ValueOf(block))
	return nil
}

// part returns a string the block must have.
func (r *reader) part(key string, s *string) string {
	if s == nil {
		r.violateAt(key, "Required property")
		return ""
	}
	return *s
}

// foreign deals with a key that belongs to another type of block.
func (r *reader) foreign(key string, s *string) {
	switch {
	case s == nil:
	case r.strict:
		r.violateAt(key, "Unexpected property")
	default:
		r.ignore(key)
	}
}
