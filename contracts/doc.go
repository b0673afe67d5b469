// Package contracts defines the Maestro headless protocol: every message, envelope,
// control frame, code and limit, and the functions that decode and encode them.
//
// Programs that embed a server need [Agent], [AgentInfo], [Host] and [Work] for an agent,
// and [Principal] and [Error] for their users. Clients need [Hello], the other types
// of [Command], and those of [Event]. The rest serves the packages of the server.
//
// Codes such as R42, D8 and A30 in comments are rules of the protocol, which docs/rules.md
// lists.
//
// What it encodes is closed and exact; what it decodes is checked field by field.
// The JSON Schema and TypeScript types beside it are generated from its Go types.
// It has no behaviour: other packages decide who may send what, and when. It
// imports only the standard library.
//
// The wire has no field for what an answer to an approval says beside yes or no.
// [AnswerNote] and [ApprovalOption] define one way in which agents and clients
// exchange it.
//
// Presence of a key matters on this wire, so the Go types follow one rule. A struct
// tag without omitempty is a required key. A tag with omitempty (or omitzero) is an
// optional key, absent at its zero value; a pointer is used where the zero value
// has a meaning of its own. A pointer without omitempty is required and nullable.
// [NullString] is optional and nullable. Wire tags, which plan.go explains, restrict a
// field further. Decoder, encoder, JSON Schema, TypeScript types and the
// tables of the protocol reference all follow these tags, so a change to a struct
// changes all of them.
//
// After such a change, run go run ./contracts/gen.
package contracts

// ProtocolVersion is the version of the headless protocol that this package
// implements.
const ProtocolVersion = "2026-04-02"

// Subprotocol is the WebSocket subprotocol a client must offer.
const Subprotocol = "maestro-headless." + ProtocolVersion

// A Profile decides whether fields newer than the published schemas are sent.
type Profile string

const (
	ProfileSeed   Profile = "seed"   // executor_type and server_capabilities are sent
	ProfilePublic Profile = "public" // they are omitted, for suites with closed schemas
)
