package contracts

import (
	"fmt"
	"reflect"
)

// bodies are the types that are a whole HTTP request or response, without a
// type key. The plans of their parts come with them.
var bodies = []reflect.Type{
	reflect.TypeFor[AttachRequest](),
	reflect.TypeFor[SubscriptionRequest](),
	reflect.TypeFor[ConnectionAnswer](),
	reflect.TypeFor[SubscriptionAnswer](),
	reflect.TypeFor[HeartbeatAnswer](),
	reflect.TypeFor[DisconnectAnswer](),
	reflect.TypeFor[MessageAnswer](),
	reflect.TypeFor[SuccessAnswer](),
	reflect.TypeFor[SessionList](),
	reflect.TypeFor[RunnerIdentity](),
	reflect.TypeFor[DrainRequest](),
	reflect.TypeFor[DrainAnswer](),
	reflect.TypeFor[Manifest](),
}

// bodyTexts are what errors about a body say.
var bodyTexts = &texts{parse: "Invalid request body: "}

// Body decodes a request's or a response's JSON into a pointer to one of the
// body types, such as [AttachRequest]. It panics for any other type.
func (d *Decoder) Body(text []byte, into any) error {
	v := reflect.ValueOf(into).Elem()
	p := plansByType[v.Type()]
	if p == nil || p.wire != "" {
		panic(fmt.Sprintf("contracts: %v is not a body", v.Type()))
	}
	r := newReader(d, text, false)
	err := r.begin()
	if err == nil {
		err = r.value(&shape{kind: kindObject, object: p}, v)
	}
	if err == nil {
		err = r.end()
	}
	return r.refusal(bodyTexts, err)
}

// EncodeBody encodes a pointer to one of the body types, with the same care and
// the same errors as [EncodeEvent].
func EncodeBody(body any) ([]byte, error) {
	encoded, err := encode(nil, body)
	if err != nil {
		return nil, failure(CodeInternal, "Failed to encode body: ", err)
	}
	return encoded.Body, nil
}
