package shape

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/contracts/schema"
)

// Bodies that are not in the schema of the protocol.
const (
	RefusalBody   = "RefusalBody"   // every answer that is not a success
	ReadinessBody = "ReadinessBody" // /readyz while the server is ready
	LivenessBody  = "LivenessBody"  // /healthz
)

const moreDefinitions = `{
"RefusalBody": {"type": "object", "additionalProperties": false,
	"properties": {"error": {"type": "string"}, "error_type": {"type": "string"}, "code": {"type": "string"}, "retryable": {"type": "boolean"},
		"details": {"type": "array", "items": {"$ref": "#/$defs/ErrorDetail"}}},
	"required": ["error", "error_type", "code", "retryable", "details"]},
"ReadinessBody": {"type": "object", "additionalProperties": false,
	"properties": {"ok": {"type": "boolean"}, "ready": {"type": "boolean"}, "draining": {"type": "boolean"}}, "required": ["ok", "ready", "draining"]},
"LivenessBody": {"type": "object", "additionalProperties": false, "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
}`

// definitions are those of the schema of the protocol and the ones above.
var definitions = sync.OnceValue(func() map[string]*jsonschema.Schema {
	var whole jsonschema.Schema
	err := json.Unmarshal(schema.Text, &whole)
	if err == nil {
		err = json.Unmarshal([]byte(moreDefinitions), &whole.Defs)
	}
	if err != nil {
		panic("shape: the schema of the protocol: " + err.Error()) // it is part of the program
	}
	narrow(whole.Defs)
	return whole.Defs
})

// narrow makes the documents of a drain those that runners of any program write. They
// may leave out what is not needed for a restore, and may mean something else by
// pending_requests.
func narrow(defs map[string]*jsonschema.Schema) {
	m := defs["Manifest"]
	delete(m.Properties, "pending_requests")
	m.Required = slices.DeleteFunc(m.Required, func(key string) bool { return key == "work_continuity" || key == "platform_evidence" })
	defs["DrainAnswer"].Properties["manifest"] = &jsonschema.Schema{} // it is open, and checked apart
	defs["FlushStatus"].Enum = []any{contracts.FlushCompleted, contracts.FlushFailed, contracts.FlushSkipped}
	for _, fixed := range []struct {
		def, key string
		value    any
	}{
		{"WorkContinuity", "protocol_version", contracts.WorkContinuityProtocol},
		{"EvidenceContinuity", "protocol_version", contracts.WorkContinuityProtocol},
		{"PlatformEvidence", "protocol_version", contracts.EvidenceProtocol},
		{"PlatformEvidence", "event_type", "hosted_runner_drain_manifest_recorded"},
	} {
		defs[fixed.def].Properties[fixed.key] = &jsonschema.Schema{Const: &fixed.value}
	}
}

// AdditiveRule is the rule of a key that the published schemas do not list.
const AdditiveRule = "A47:additive"

// What the published schemas have otherwise than the schema of the protocol.
// It counts for [contracts.ProfilePublic].
var (
	// newer are the keys that the published schemas do not have.
	newer = map[string][]string{
		"Ready": {"executor_type"}, "HelloOK": {"server_capabilities"}, "ServerRequestResolved": {"author", "timestamp"},
	}

	// optional are the keys that a server may leave out, with the rule that asks
	// for them all the same.
	optional = map[string]map[string]string{
		"State":                {"pending_requests": "R73:list"},
		"UtilityCommandExited": {"exit_code": "0.2:both", "signal": "0.2:both"},
		RefusalBody:            {"error_type": "A73", "code": "A73", "retryable": "1.4:retryable", "details": "1.4:details"},
		ReadinessBody:          {"ok": "1.13:ready", "ready": "1.13:ready", "draining": "1.13:ready"},
		"MessageAnswer": {"ok": "1.12:answer", "accepted": "1.12:answer", "cursor": "1.12:answer", "execution": "1.12:answer",
			"published_messages": "1.12:answer", "message": "1.12:answer", "snapshot": "1.12:answer"},
	}

	// exact are the shapes whose keys a published rule lists as all there are.
	exact = []string{"DisconnectAnswer", "ContentBlock"}

	// unclosed are the bodies that no published schema closes: they may hold more
	// than is known, and null in optional keys. Snapshots in them are closed.
	unclosed = []string{RefusalBody, ReadinessBody, LivenessBody, "DrainAnswer", "ConnectionAnswer", "MessageAnswer", "SuccessAnswer"}
)
