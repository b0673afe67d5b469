package contracts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The identity of a hosted runner, its drain, and the manifest from which a drained
// session is restored. The usual requests of a control
// plane:
//
//	GET  identity -> RunnerIdentity {ready: true}
//	POST drain       DrainRequest -> DrainAnswer {status: drained, manifest_path}
//	                 and the same Manifest in the file
//	start another runner with that file
//	GET  identity -> RunnerIdentity {ready: true}, a new runner_session_id

// The versions of the documents below.
const (
	IdentityProtocol       = "evalops.remote-runner.identity.v1"
	DrainProtocol          = "evalops.remote-runner.drain.v1"
	ManifestProtocol       = "evalops.remote-runner.snapshot-manifest.v1"
	RetentionProtocol      = "evalops.remote-runner.retention.v1"
	WorkContinuityProtocol = "evalops.remote-runner.work-continuity.v1"
	EvidenceProtocol       = "evalops.remote-runner.platform-evidence.v1"
	SubagentProtocol       = "evalops.maestro.codex.subagent-workgraph.v1"
)

// MaxDrainBytes bounds the body of a drain request.
const MaxDrainBytes = 64_000

// MaxExportPaths bounds the export paths of one drain.
const MaxExportPaths = 1024

// A DrainStatus is how a drain ended.
type DrainStatus string

const (
	Drained          DrainStatus = "drained"     // everything is stopped and on disk, or the session was empty
	DrainInterrupted DrainStatus = "interrupted" // the flush failed or took too long; the drain may be repeated
)

// A FlushStatus says whether a drained session is on disk.
type FlushStatus string

const (
	FlushCompleted FlushStatus = "completed"
	FlushFailed    FlushStatus = "failed"  // old manifests say interrupted
	FlushSkipped   FlushStatus = "skipped" // nothing had happened in the session
)

// A RunnerIdentity is what a control plane reads before it lets clients attach. It
// needs no credential, so it has no more than these fields.
type RunnerIdentity struct {
	ProtocolVersion   string      `json:"protocol_version" wire:"oneof=evalops.remote-runner.identity.v1"`
	RunnerSessionID   string      `json:"runner_session_id"`
	OwnerInstanceID   string      `json:"owner_instance_id,omitempty"` // the owner generation, if owners are fenced
	Ready             bool        `json:"ready"`                       // accepts attachments
	Draining          bool        `json:"draining"`                    // drains or has drained; it does not become ready again
	DrainStatus       DrainStatus `json:"drain_status,omitempty" wire:"oneof=drained|interrupted"`
	DrainManifestPath string      `json:"drain_manifest_path,omitempty"` // absolute
	DrainedAt         string      `json:"drained_at,omitempty"`          // ISO-8601 UTC
}

// A DrainRequest asks a runner to stop, flush and describe its session. Without
// ExportPaths the whole workspace is exported.
type DrainRequest struct {
	Reason      string   `json:"reason,omitempty"`       // also stop_reason; kubernetes_prestop and process_shutdown are reserved
	RequestedBy string   `json:"requested_by,omitempty"` // also requestedBy; kubernetes_prestop and maestro_web_server are reserved
	ExportPaths []string `json:"export_paths,omitempty"` // also exportPaths; absolute, or counted from the workspace root
}

// A DrainAnswer is the result of a drain. Status interrupted goes with HTTP
// status 503.
type DrainAnswer struct {
	ProtocolVersion string      `json:"protocol_version" wire:"oneof=evalops.remote-runner.drain.v1"`
	Status          DrainStatus `json:"status" wire:"oneof=drained|interrupted"`
	RunnerSessionID string      `json:"runner_session_id"`
	RequestedBy     string      `json:"requested_by,omitempty"`
	Reason          string      `json:"reason,omitempty"`
	ManifestPath    string      `json:"manifest_path"` // absolute
	Manifest        Manifest    `json:"manifest"`      // content of the file
}

// A Manifest describes a drained session: its state, what was flushed, and which
// files of the workspace belong to it. It has no credentials.
type Manifest struct {
	ProtocolVersion  string           `json:"protocol_version" wire:"oneof=evalops.remote-runner.snapshot-manifest.v1"`
	RunnerSessionID  string           `json:"runner_session_id"` // of the runner that wrote it
	WorkspaceID      string           `json:"workspace_id,omitempty"`
	AgentRunID       string           `json:"agent_run_id,omitempty"`
	MaestroSessionID string           `json:"maestro_session_id"`
	Reason           string           `json:"reason,omitempty"`
	RequestedBy      string           `json:"requested_by,omitempty"`
	CreatedAt        string           `json:"created_at"`     // ISO-8601 UTC
	WorkspaceRoot    string           `json:"workspace_root"` // absolute, symbolic links resolved
	Runtime          ManifestRuntime  `json:"runtime"`
	WorkspaceExport  WorkspaceExport  `json:"workspace_export"`
	Snapshot         json.RawMessage  `json:"snapshot" wire:"body=snapshot"` // quiesced; is_ready if the flush completed
	PendingRequests  []OpenRequest    `json:"pending_requests,omitempty"`    // questions that wait for an answer after a restore
	Queue            *KeptQueue       `json:"queue,omitempty"`               // prompts that start after a restore
	RetentionPolicy  RetentionPolicy  `json:"retention_policy"`
	WorkContinuity   WorkContinuity   `json:"work_continuity"`
	PlatformEvidence PlatformEvidence `json:"platform_evidence"`
	Git              *GitState        `json:"git,omitempty"` // absent outside a repository, or if git took longer than a second
}

// A ManifestRuntime describes the state of a drained session's runtime.
type ManifestRuntime struct {
	FlushStatus     FlushStatus `json:"flush_status" wire:"oneof=completed|failed|skipped|interrupted"` // interrupted is read as failed and never written
	Error           string      `json:"error,omitempty"`                                                // why the flush failed
	SessionID       string      `json:"session_id"`
	SessionFile     string      `json:"session_file,omitempty"`     // the session's log on disk
	ProtocolVersion string      `json:"protocol_version,omitempty"` // absent if the flush was skipped
	Cursor          *uint64     `json:"cursor,omitempty"`           // where to resume; absent if the flush was skipped
}

// A WorkspaceExport names the files of the workspace that belong to the session.
type WorkspaceExport struct {
	Mode  string       `json:"mode" wire:"oneof=local_path_contract"`
	Paths []ExportPath `json:"paths"`
}

// An ExportPath is one file or directory to export.
type ExportPath struct {
	Input        string `json:"input"`         // as it was asked for
	Path         string `json:"path"`          // absolute, symbolic links resolved
	RelativePath string `json:"relative_path"` // from the workspace root, which is .
	Type         string `json:"type" wire:"oneof=file|directory|other|missing"`
}

// An OpenRequest is a question that was still open when the session was
// drained.
type OpenRequest struct {
	Request  json.RawMessage `json:"request" wire:"body=event"` // the server_request
	OpenedAt string          `json:"opened_at"`                 // ISO-8601 UTC
	Deadline string          `json:"deadline,omitempty"`        // ISO-8601 UTC; absent if it never expires

	Digest      string   `json:"digest,omitempty"`       // of the whole request
	VotesNeeded int64    `json:"votes_needed,omitempty"` // principals that must approve; absent if one answer decides
	Votes       []string `json:"votes,omitempty"`        // ids of the principals that have approved
}

// A RetentionPolicy says who may see which part of a manifest. It is constant.
type RetentionPolicy struct {
	PolicyVersion string              `json:"policy_version"`
	ManagedBy     string              `json:"managed_by"`
	Visibility    RetentionVisibility `json:"visibility"`
	Redaction     RetentionRedaction  `json:"redaction"`
}

// A RetentionVisibility names the audience of each part.
type RetentionVisibility struct {
	ControlPlaneMetadata string `json:"control_plane_metadata"`
	WorkspaceExport      string `json:"workspace_export"`
	RuntimeSnapshot      string `json:"runtime_snapshot"`
	RuntimeLogs          string `json:"runtime_logs"`
}

// A RetentionRedaction says what must be removed before a part leaves.
type RetentionRedaction struct {
	RequiredBeforeExternalPersistence []string `json:"required_before_external_persistence"`
	ForbiddenPlaintext                []string `json:"forbidden_plaintext"`
}

// A WorkContinuity counts the work in progress when a drain began. Restore ignores
// it.
type WorkContinuity struct {
	ProtocolVersion            string   `json:"protocol_version"`
	CodexSubagentSchemaVersion string   `json:"codex_subagent_schema_version"`
	ActiveToolCount            int64    `json:"active_tool_count"`
	TrackedToolCount           int64    `json:"tracked_tool_count"`
	PendingRequestCount        int64    `json:"pending_request_count"`
	CodexSubagentToolCallIDs   []string `json:"codex_subagent_tool_call_ids"` // sorted; empty without subagents
	CodexSubagentChildRunIDs   []string `json:"codex_subagent_child_run_ids"`
	CodexSubagentThreadIDs     []string `json:"codex_subagent_thread_ids"`
}

// A PlatformEvidence describes a drain for a control plane's records. Restore
// ignores it.
type PlatformEvidence struct {
	ProtocolVersion         string             `json:"protocol_version"`
	EventType               string             `json:"event_type"`
	RunnerSessionID         string             `json:"runner_session_id"`
	WorkspaceID             string             `json:"workspace_id,omitempty"`
	AgentRunID              string             `json:"agent_run_id,omitempty"`
	MaestroSessionID        string             `json:"maestro_session_id"`
	Status                  DrainStatus        `json:"status" wire:"oneof=drained|interrupted"`
	RuntimeFlushStatus      FlushStatus        `json:"runtime_flush_status" wire:"oneof=completed|failed|skipped|interrupted"`
	ManifestPath            string             `json:"manifest_path"`
	ManifestProtocolVersion string             `json:"manifest_protocol_version"`
	CreatedAt               string             `json:"created_at"`
	WorkContinuity          EvidenceContinuity `json:"work_continuity"`
	Retention               EvidenceRetention  `json:"retention"`
	EvidenceRefs            []string           `json:"evidence_refs"`
}

// An EvidenceContinuity is a [WorkContinuity] with list lengths in place of its
// lists.
type EvidenceContinuity struct {
	ProtocolVersion            string   `json:"protocol_version"`
	CodexSubagentSchemaVersion string   `json:"codex_subagent_schema_version"`
	ActiveToolCount            int64    `json:"active_tool_count"`
	TrackedToolCount           int64    `json:"tracked_tool_count"`
	PendingRequestCount        int64    `json:"pending_request_count"`
	CodexSubagentToolCallIDs   []string `json:"codex_subagent_tool_call_ids"`
	CodexSubagentChildRunIDs   []string `json:"codex_subagent_child_run_ids"`
	CodexSubagentThreadIDs     []string `json:"codex_subagent_thread_ids"`
	CodexSubagentToolCallCount int64    `json:"codex_subagent_tool_call_count"`
	CodexSubagentChildRunCount int64    `json:"codex_subagent_child_run_count"`
	CodexSubagentThreadCount   int64    `json:"codex_subagent_thread_count"`
	CodexSubagentEdgeCount     int64    `json:"codex_subagent_edge_count"`
}

// An EvidenceRetention is the part of a [RetentionPolicy] that a control plane
// needs.
type EvidenceRetention struct {
	PolicyVersion                              string   `json:"policy_version"`
	ControlPlaneMetadataVisibility             string   `json:"control_plane_metadata_visibility"`
	RuntimeSnapshotVisibility                  string   `json:"runtime_snapshot_visibility"`
	RedactionRequiredBeforeExternalPersistence []string `json:"redaction_required_before_external_persistence"`
}

// A GitState describes the repository of the workspace.
type GitState struct {
	Commit string `json:"commit,omitempty"` // absent before the first commit
	Branch string `json:"branch,omitempty"` // absent on a detached head
	Dirty  bool   `json:"dirty"`            // the workspace has uncommitted changes
}

// Types that the hub and a hosted runner exchange. They are here because neither
// imports the other; the runner declares the interface.

// A Quiesced is the result of a drain.
type Quiesced struct {
	Cursor     uint64    // frozen: no client sees a greater one
	Snapshot   *Snapshot // at Cursor, with nothing running; shared, do not change it
	Active     bool      // the session was used
	FlushError string    // why the session is not on disk; empty if it is

	// Work in progress when the drain began.
	ActiveTools     int
	TrackedTools    int
	PendingRequests int

	Requests []KeptRequest // questions that stay open, in order of opening
	Queue    KeptQueue     // prompts that start after a restore
}

// A KeptRequest is a pending question. It is stored as JSON across a restart.
type KeptRequest struct {
	Request  *ServerRequest `json:"request"` // shared; do not change it
	Opened   time.Time      `json:"opened_at"`
	Deadline time.Time      `json:"expires_at,omitzero"` // zero means never

	Digest string   `json:"digest,omitempty"`       // see [RequestDigest]
	Needed int      `json:"votes_needed,omitempty"` // approvals of distinct principals; zero: one answer decides
	Votes  []string `json:"votes,omitempty"`        // ids of the principals that approved, in their order
}

// Restored is the state from which a drained session is continued. It takes no
// cursor: the first entry of the new journal is Cursor + 1.
type Restored struct {
	SessionID     string
	Cursor        uint64
	Snapshot      *Snapshot // without clients and with nothing running; it includes the fields below
	LastInit      *Init     // applied to the new agent; nil if there was none
	Ready         bool      // false is permanent: the session is read-only
	LastStatus    string
	LastError     string // empty if Ready
	LastErrorType ErrorType
	Requests      []KeptRequest // questions to ask again, in order of opening
	Queue         KeptQueue     // prompts that wait
}

// A drainForm is a [DrainRequest] before its keys are checked.
type drainForm struct {
	Reason           json.RawMessage `json:"reason,omitempty"`
	StopReason       json.RawMessage `json:"stop_reason,omitempty"`
	RequestedBy      json.RawMessage `json:"requested_by,omitempty"`
	RequestedByAlias json.RawMessage `json:"requestedBy,omitempty"`
	ExportPaths      json.RawMessage `json:"export_paths,omitempty"`
	ExportPathsAlias json.RawMessage `json:"exportPaths,omitempty"`
}

var (
	drainFormType = &Type{goType: reflect.TypeFor[drainForm]()}
	drainTexts    = &texts{parse: "Invalid drain payload: "}
)

// DrainRequest decodes the body of a drain request, which may be empty.
func (d *Decoder) DrainRequest(body []byte) (*DrainRequest, error) {
	if len(body) > MaxDrainBytes {
		return nil, &Error{Code: CodePayloadTooLarge, Message: fmt.Sprintf("Drain payload must be at most %d bytes", MaxDrainBytes)}
	}
	text := bytes.TrimLeft(body, " \t\r\n")
	if len(bytes.TrimSpace(text)) == 0 {
		return &DrainRequest{}, nil
	}
	if text[0] != '{' && utf8.Valid(body) {
		return nil, badDrain("Drain payload must be a JSON object")
	}
	var form drainForm
	if err := d.object(drainFormType, body, false, &form, drainTexts); err != nil {
		return nil, err
	}
	notBlank := func(s string) bool { return strings.TrimSpace(s) != "" }
	reason, errReason := firstUsable("reason must be a string", notBlank, form.Reason, form.StopReason)
	by, errBy := firstUsable("requested_by must be a string", notBlank, form.RequestedBy, form.RequestedByAlias)
	notEmpty := func(items []json.RawMessage) bool { return len(items) > 0 }
	items, errItems := firstUsable("export_paths must be an array", notEmpty, form.ExportPaths, form.ExportPathsAlias)
	if err := cmp.Or(errReason, errBy, errItems); err != nil {
		return nil, err
	}
	if len(items) > MaxExportPaths {
		return nil, badDrain(fmt.Sprintf("export_paths must have at most %d entries", MaxExportPaths))
	}
	req := &DrainRequest{Reason: strings.TrimSpace(reason), RequestedBy: strings.TrimSpace(by)}
	for i, item := range items {
		var path string
		if json.Unmarshal(item, &path) != nil || !notBlank(path) || strings.ContainsRune(path, 0) {
			return nil, badDrain(fmt.Sprintf("export_paths[%d] must be a non-empty string", i))
		}
		req.ExportPaths = append(req.ExportPaths, path)
	}
	return req, nil
}

// firstUsable returns the first value that is present and usable. A value of another
// type than T is refused.
func firstUsable[T any](refusal string, usable func(T) bool, values ...json.RawMessage) (none T, err error) {
	for _, value := range values {
		if len(value) == 0 || string(value) == "null" {
			continue
		}
		var v T
		if json.Unmarshal(value, &v) != nil {
			return none, badDrain(refusal)
		}
		if usable(v) {
			return v, nil
		}
	}
	return none, nil
}

func badDrain(text string) error {
	return &Error{Code: CodeBadRequest, Type: ErrorProtocol, Message: text}
}

// ignoredOnRestore lists the blocks of a manifest that may be missing or have any
// shape. pending_requests is among them because the key is our own addition: in
// manifests of other programs it may mean something else.
var ignoredOnRestore = []string{"pending_requests", "retention_policy", "work_continuity", "platform_evidence", "git"}

var (
	manifestType  = nestedType(reflect.TypeFor[Manifest]())
	manifestTexts = &texts{parse: "invalid_snapshot_manifest: "}
)

// pick returns a type with only the fields for which want returns true.
func (t *Type) pick(want func(name string) bool) *Type {
	picked := &Type{goType: t.goType}
	picked.once.Do(func() {}) // it gets its fields here
	for _, f := range t.prepare().Fields {
		if want(f.Name) {
			picked.add(f)
		}
	}
	return picked
}

// Manifest decodes a manifest for a restore. It ignores unknown fields. The blocks
// of ignoredOnRestore stay empty, except that pending_requests is decoded if it is
// valid. It only checks that the snapshot is JSON, and leaves it encoded.
func (d *Decoder) Manifest(text []byte) (*Manifest, error) {
	m := new(Manifest)
	restored := manifestType.pick(func(name string) bool { return !slices.Contains(ignoredOnRestore, name) })
	if err := d.object(restored, text, true, m, manifestTexts); err != nil {
		return nil, err
	}
	var pending Manifest
	requests := manifestType.pick(func(name string) bool { return name == "pending_requests" })
	if d.object(requests, text, true, &pending, manifestTexts) == nil {
		m.PendingRequests = pending.PendingRequests
	}
	return m, nil
}
