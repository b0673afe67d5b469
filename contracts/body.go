package contracts

import (
	"fmt"
	"reflect"
)

// bodies lists the types of whole HTTP requests and responses, which have no type
// key. Their plans include those of nested types.
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

// bodyTexts are the error texts for bodies.
var bodyTexts = &texts{parse: "Invalid request body: "}

// Body decodes the JSON of a request or response into a pointer to one of the body
// types, such as [AttachRequest]. It panics for other types.
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

// EncodeBody encodes a pointer to one of the body types under the rules of
// [EncodeEvent].
func EncodeBody(body any) ([]byte, error) {
	encoded, err := encode(nil, body)
	if err != nil {
		return nil, failure(CodeInternal, "Failed to encode body: ", err)
	}
	return encoded.Body, nil
}
