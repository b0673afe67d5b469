package hosted

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Constants that only manifests use.
const (
	exportMode    = "local_path_contract"
	evidenceEvent = "hosted_runner_drain_manifest_recorded"
)

// A drained has all data for a manifest.
type drained struct {
	contracts.Quiesced
	config      *Config
	session     string
	sessionFile string
	request     *contracts.DrainRequest
	flush       contracts.FlushStatus
	exports     []contracts.ExportPath
	git         *contracts.GitState
	path        string // of the manifest
	at          time.Time
}

func (d *drained) status() contracts.DrainStatus {
	if d.flush == contracts.FlushFailed {
		return contracts.DrainInterrupted
	}
	return contracts.Drained
}

// manifest makes the manifest. It fails only if the session returned no snapshot
// or an invalid question.
func (d *drained) manifest() (*contracts.Manifest, error) {
	if d.Snapshot == nil {
		return nil, errors.New("the session returned no snapshot")
	}
	final := *d.Snapshot
	final.Cursor, final.State.IsReady = d.Cursor, d.flush == contracts.FlushCompleted
	snapshot, err := contracts.EncodeSnapshot(&final, 0)
	if err != nil {
		return nil, err
	}
	pending, err := openRequests(d.Requests)
	if err != nil {
		return nil, err
	}
	runtime := contracts.ManifestRuntime{FlushStatus: d.flush, SessionID: d.session, SessionFile: d.sessionFile}
	if d.flush == contracts.FlushFailed {
		runtime.Error = d.FlushError
	}
	if d.flush != contracts.FlushSkipped {
		runtime.ProtocolVersion, runtime.Cursor = contracts.ProtocolVersion, &d.Cursor
	}
	var queue *contracts.KeptQueue
	if len(d.Queue.Prompts) > 0 {
		queue = &d.Queue
	}
	return &contracts.Manifest{
		ProtocolVersion: contracts.ManifestProtocol, RunnerSessionID: d.config.RunnerSessionID,
		WorkspaceID: d.config.WorkspaceID, AgentRunID: d.config.AgentRunID, MaestroSessionID: d.session,
		Reason: d.request.Reason, RequestedBy: d.request.RequestedBy,
		CreatedAt: stamp(d.at), WorkspaceRoot: d.config.WorkspaceRoot,
		Runtime:         runtime,
		WorkspaceExport: contracts.WorkspaceExport{Mode: exportMode, Paths: d.exports},
		Snapshot:        snapshot, PendingRequests: pending, Queue: queue,
		RetentionPolicy: retention, PlatformEvidence: d.evidence(), Git: d.git,
		WorkContinuity: contracts.WorkContinuity{ // our runtimes have no subagents with a graph, so those lists are empty
			ProtocolVersion: contracts.WorkContinuityProtocol, CodexSubagentSchemaVersion: contracts.SubagentProtocol,
			ActiveToolCount: int64(d.ActiveTools), TrackedToolCount: int64(d.TrackedTools), PendingRequestCount: int64(d.PendingRequests),
		},
	}, nil
}

func openRequests(kept []contracts.KeptRequest) ([]contracts.OpenRequest, error) {
	var list []contracts.OpenRequest
	for _, k := range kept {
		encoded, err := contracts.EncodeEvent(k.Request)
		if err != nil {
			return nil, fmt.Errorf("open request of the drained session: %w", err)
		}
		open := contracts.OpenRequest{
			Request: encoded.Body, OpenedAt: stamp(k.Opened),
			Digest: k.Digest, VotesNeeded: int64(k.Needed), Votes: k.Votes,
		}
		if !k.Deadline.IsZero() {
			open.Deadline = stamp(k.Deadline)
		}
		list = append(list, open)
	}
	return list, nil
}

func (d *drained) evidence() contracts.PlatformEvidence {
	c := d.config
	refs := []string{
		"remote-runner://sessions/" + url.PathEscape(c.RunnerSessionID) + "/drain#manifest",
		"maestro://headless/sessions/" + url.PathEscape(d.session) + "#drain",
	}
	if c.AgentRunID != "" {
		refs = append(refs, "platform-agent-run:"+c.AgentRunID)
	}
	return contracts.PlatformEvidence{
		ProtocolVersion: contracts.EvidenceProtocol, EventType: evidenceEvent,
		RunnerSessionID: c.RunnerSessionID, WorkspaceID: c.WorkspaceID, AgentRunID: c.AgentRunID, MaestroSessionID: d.session,
		Status: d.status(), RuntimeFlushStatus: d.flush,
		ManifestPath: d.path, ManifestProtocolVersion: contracts.ManifestProtocol, CreatedAt: stamp(d.at),
		WorkContinuity: contracts.EvidenceContinuity{
			ProtocolVersion: contracts.WorkContinuityProtocol, CodexSubagentSchemaVersion: contracts.SubagentProtocol,
			ActiveToolCount: int64(d.ActiveTools), TrackedToolCount: int64(d.TrackedTools), PendingRequestCount: int64(d.PendingRequests),
		},
		Retention: contracts.EvidenceRetention{
			PolicyVersion:                              retention.PolicyVersion,
			ControlPlaneMetadataVisibility:             retention.Visibility.ControlPlaneMetadata,
			RuntimeSnapshotVisibility:                  retention.Visibility.RuntimeSnapshot,
			RedactionRequiredBeforeExternalPersistence: slices.Clone(retention.Redaction.RequiredBeforeExternalPersistence),
		},
		EvidenceRefs: refs,
	}
}

// retention is the constant policy.
var retention = contracts.RetentionPolicy{
	PolicyVersion: contracts.RetentionProtocol,
	ManagedBy:     "platform",
	Visibility: contracts.RetentionVisibility{
		ControlPlaneMetadata: "operator", WorkspaceExport: "tenant", RuntimeSnapshot: "internal", RuntimeLogs: "operator",
	},
	Redaction: contracts.RetentionRedaction{
		RequiredBeforeExternalPersistence: []string{"runtime_snapshot", "runtime_logs"},
		ForbiddenPlaintext: []string{
			"provider_credentials", "tool_secrets", "attach_tokens", "artifact_access_tokens", "raw_environment",
		},
	},
}
