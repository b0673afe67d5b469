// Package localmodel is a model server without a model, for tests and for trying
// Maestro or an agent without a key. It serves streams in the wire forms of Anthropic
// Messages, OpenAI Responses and OpenAI Chat Completions. A script or the prompt
// itself says what it answers; docs/local-model.md describes both, and the faults.
//
// The server ignores unknown fields of a request and accepts any credentials. It
// checks a history against the rules of the service: it refuses calls without
// results, results without calls, empty texts, and thinking that was changed. So a
// test finds an agent that sends a broken history.
//
// The server stores no conversation. The number of answers since the last prompt
// in the request decides which turn of a script is next. Equal requests get equal
// IDs.
package localmodel
