// Package contracts is the wire: every message, envelope, control frame, code
// and limit of the Maestro headless protocol, and the functions that decode
// and encode them.
//
// It promises that what it encodes is closed and exact, that what it decodes
// was checked field by field, and that the JSON Schema and TypeScript types
// beside it are generated from its Go types. It promises no behaviour: who may
// send what, and when, is decided elsewhere. It imports the standard library
// only.
//
// What an answer to an approval can say beside yes and no has no field on this
// wire. [AnswerNote] and [ApprovalOption] are how agents and clients understand each
// other all the same, and are here so that they do so in one way.
//
// Presence matters on this wire, so the Go types follow one rule. A struct tag
// without omitempty is a required key. A tag with omitempty (or omitzero) is an
// optional key, absent at its zero value; a pointer is used where the zero
// value is itself meaningful. A pointer without omitempty is required and
// nullable. [NullString] is optional and nullable. The wire tags that restrict a
// field further are explained at its plan, in plan.go; from these plans follow
// decoder, encoder, JSON Schema, TypeScript types and the tables of the protocol
// reference, so a change to a struct is a change to all of them.
//
// After such a change, run go run ./contracts/gen.
package contracts

// ProtocolVersion is the version of the headless protocol that this package
// speaks.
const ProtocolVersion = "2026-04-02"

// Subprotocol is the WebSocket subprotocol a client must offer.
const Subprotocol = "maestro-headless." + ProtocolVersion

// A Profile decides whether fields newer than the published schemas are sent.
type Profile string

const (
	ProfileSeed   Profile = "seed"   // executor_type and server_capabilities are sent
	ProfilePublic Profile = "public" // they are left out, for suites with closed schemas
)
