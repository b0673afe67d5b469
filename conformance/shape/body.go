package shape

import (
	"encoding/json"
	"reflect"

	"github.com/seed-028515a8/maestro/contracts"
)

// Body checks the JSON of an HTTP answer from a server of a profile against the
// closed shape of T: one of the answers of package contracts, a
// [contracts.Snapshot], or a type of this package.
func Body[T any](v any, p contracts.Profile) []Problem { return body[T](v, p, false) }

// OpenBody is Body for answers that may hold more than is known.
func OpenBody[T any](v any, p contracts.Profile) []Problem { return body[T](v, p, true) }

func body[T any](v any, p contracts.Profile, open bool) []Problem {
	t := reflect.TypeFor[T]()
	c := &checker{published: p == contracts.ProfilePublic, closes: !open}
	c.open = open || c.published && unclosed[t]
	if t == snapshotType {
		c.snapshot(v, "")
	} else {
		c.object(v, t, "", "")
	}
	return c.problems
}

// Refusal is the body of every answer that is not a success.
type Refusal struct {
	Error     string                  `json:"error"`
	ErrorType contracts.Code          `json:"error_type"`
	Code      contracts.Code          `json:"code"`
	Retryable bool                    `json:"retryable"`
	Details   []contracts.ErrorDetail `json:"details"`
}

// Readiness is the body of /readyz while the server is ready.
type Readiness struct {
	OK       bool `json:"ok"`
	Ready    bool `json:"ready"`
	Draining bool `json:"draining"`
}

// Liveness is the body of /healthz.
type Liveness struct {
	OK bool `json:"ok"`
}

// Identity is what a hosted runner says of itself.
type Identity struct {
	ProtocolVersion   string `json:"protocol_version" wire:"oneof=evalops.remote-runner.identity.v1"`
	RunnerSessionID   string `json:"runner_session_id"`
	OwnerInstanceID   string `json:"owner_instance_id,omitempty"`
	Ready             bool   `json:"ready"`
	Draining          bool   `json:"draining"`
	DrainStatus       string `json:"drain_status,omitempty" wire:"oneof=drained|interrupted"`
	DrainManifestPath string `json:"drain_manifest_path,omitempty"`
	DrainedAt         string `json:"drained_at,omitempty"`
}

// Drain answers a drain.
type Drain struct {
	ProtocolVersion string          `json:"protocol_version" wire:"oneof=evalops.remote-runner.drain.v1"`
	Status          string          `json:"status" wire:"oneof=drained|interrupted"`
	RunnerSessionID string          `json:"runner_session_id"`
	RequestedBy     string          `json:"requested_by,omitempty"`
	Reason          string          `json:"reason,omitempty"`
	ManifestPath    string          `json:"manifest_path"`
	Manifest        json.RawMessage `json:"manifest"` // a Manifest, which is open
}

// Manifest describes a drained session. Readers ignore
// blocks that they do not know, so it is to be checked with [OpenBody].
type Manifest struct {
	ProtocolVersion  string            `json:"protocol_version" wire:"oneof=evalops.remote-runner.snapshot-manifest.v1"`
	RunnerSessionID  string            `json:"runner_session_id"`
	WorkspaceID      string            `json:"workspace_id,omitempty"`
	AgentRunID       string            `json:"agent_run_id,omitempty"`
	MaestroSessionID string            `json:"maestro_session_id"`
	Reason           string            `json:"reason,omitempty"`
	RequestedBy      string            `json:"requested_by,omitempty"`
	CreatedAt        string            `json:"created_at"`
	WorkspaceRoot    string            `json:"workspace_root"`
	Runtime          ManifestRuntime   `json:"runtime"`
	WorkspaceExport  WorkspaceExport   `json:"workspace_export"`
	Snapshot         json.RawMessage   `json:"snapshot" wire:"body=snapshot"`
	RetentionPolicy  RetentionPolicy   `json:"retention_policy"`
	WorkContinuity   *WorkContinuity   `json:"work_continuity,omitempty"`
	PlatformEvidence *PlatformEvidence `json:"platform_evidence,omitempty"`
	Git              *Git              `json:"git,omitempty"`
}

// ManifestRuntime is a manifest's runtime.
type ManifestRuntime struct {
	FlushStatus     string `json:"flush_status" wire:"oneof=completed|failed|skipped"`
	Error           string `json:"error,omitempty"`
	SessionID       string `json:"session_id"`
	SessionFile     string `json:"session_file,omitempty"`
	ProtocolVersion string `json:"protocol_version,omitempty"`
	Cursor          *int64 `json:"cursor,omitempty"`
}

// WorkspaceExport is what of the workspace is to be kept.
type WorkspaceExport struct {
	Mode  string       `json:"mode" wire:"oneof=local_path_contract"`
	Paths []ExportPath `json:"paths"`
}

// ExportPath is one path of an export.
type ExportPath struct {
	Input        string `json:"input"`
	Path         string `json:"path"`
	RelativePath string `json:"relative_path"`
	Type         string `json:"type" wire:"oneof=file|directory|other|missing"`
}

// RetentionPolicy says who may see which part; its values are fixed.
type RetentionPolicy struct {
	PolicyVersion string `json:"policy_version"`
	ManagedBy     string `json:"managed_by"`
	Visibility    struct {
		ControlPlaneMetadata string `json:"control_plane_metadata"`
		WorkspaceExport      string `json:"workspace_export"`
		RuntimeSnapshot      string `json:"runtime_snapshot"`
		RuntimeLogs          string `json:"runtime_logs"`
	} `json:"visibility"`
	Redaction struct {
		Required  []string `json:"required_before_external_persistence"`
		Forbidden []string `json:"forbidden_plaintext"`
	} `json:"redaction"`
}

// WorkContinuity counts what was under way when the drain began.
type WorkContinuity struct {
	ProtocolVersion     string   `json:"protocol_version" wire:"oneof=evalops.remote-runner.work-continuity.v1"`
	SubagentSchema      string   `json:"codex_subagent_schema_version"`
	ActiveToolCount     int64    `json:"active_tool_count"`
	TrackedToolCount    int64    `json:"tracked_tool_count"`
	PendingRequestCount int64    `json:"pending_request_count"`
	ToolCallIDs         []string `json:"codex_subagent_tool_call_ids"`
	ChildRunIDs         []string `json:"codex_subagent_child_run_ids"`
	ThreadIDs           []string `json:"codex_subagent_thread_ids"`
}

// PlatformEvidence is what a control plane records of the drain.
type PlatformEvidence struct {
	ProtocolVersion         string                 `json:"protocol_version" wire:"oneof=evalops.remote-runner.platform-evidence.v1"`
	EventType               string                 `json:"event_type" wire:"oneof=hosted_runner_drain_manifest_recorded"`
	RunnerSessionID         string                 `json:"runner_session_id"`
	WorkspaceID             string                 `json:"workspace_id,omitempty"`
	AgentRunID              string                 `json:"agent_run_id,omitempty"`
	MaestroSessionID        string                 `json:"maestro_session_id"`
	Status                  string                 `json:"status" wire:"oneof=drained|interrupted"`
	RuntimeFlushStatus      string                 `json:"runtime_flush_status" wire:"oneof=completed|failed|skipped"`
	ManifestPath            string                 `json:"manifest_path"`
	ManifestProtocolVersion string                 `json:"manifest_protocol_version"`
	CreatedAt               string                 `json:"created_at"`
	WorkContinuity          EvidenceWorkContinuity `json:"work_continuity"`
	Retention               EvidenceRetention      `json:"retention"`
	EvidenceRefs            []string               `json:"evidence_refs"`
}

// EvidenceWorkContinuity is [WorkContinuity] with the lengths of its lists.
type EvidenceWorkContinuity struct {
	ProtocolVersion     string   `json:"protocol_version" wire:"oneof=evalops.remote-runner.work-continuity.v1"`
	SubagentSchema      string   `json:"codex_subagent_schema_version"`
	ActiveToolCount     int64    `json:"active_tool_count"`
	TrackedToolCount    int64    `json:"tracked_tool_count"`
	PendingRequestCount int64    `json:"pending_request_count"`
	ToolCallIDs         []string `json:"codex_subagent_tool_call_ids"`
	ChildRunIDs         []string `json:"codex_subagent_child_run_ids"`
	ThreadIDs           []string `json:"codex_subagent_thread_ids"`
	ToolCallCount       int64    `json:"codex_subagent_tool_call_count"`
	ChildRunCount       int64    `json:"codex_subagent_child_run_count"`
	ThreadCount         int64    `json:"codex_subagent_thread_count"`
	EdgeCount           int64    `json:"codex_subagent_edge_count"`
}

// EvidenceRetention repeats the part of the policy that a control plane needs.
type EvidenceRetention struct {
	PolicyVersion        string   `json:"policy_version"`
	ControlPlaneMetadata string   `json:"control_plane_metadata_visibility"`
	RuntimeSnapshot      string   `json:"runtime_snapshot_visibility"`
	Redaction            []string `json:"redaction_required_before_external_persistence"`
}

// Git is the state of the repository that the workspace is.
type Git struct {
	Commit string `json:"commit,omitempty"`
	Branch string `json:"branch,omitempty"`
	Dirty  bool   `json:"dirty"`
}
