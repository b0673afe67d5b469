package hosted

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

const (
	// maxManifestBytes bounds a manifest, most of which is its snapshot.
	maxManifestBytes = 64 << 20

	// maxCursor is the largest integer that all clients can represent exactly.
	maxCursor = 1<<53 - 1
)

// The status and error texts of a restored session.
const (
	statusRestored    = "Restored from snapshot"
	statusNotFlushed  = "Restore interrupted before runtime flush completed"
	statusNotRestored = "Restore incomplete: runtime flush skipped"
	errorNotFlushed   = "runtime flush failed before restore"
	errorSkipped      = "runtime flush was skipped; no runtime activity was persisted"
)

// LoadManifest reads the manifest at path and returns it with the initial state
// of the session. root is the current workspace, absolute and without symbolic
// links; the workspace may have been elsewhere when the manifest was written.
//
// Its errors are for the operator and end the start: invalid_snapshot_manifest
// if the file is not a manifest, workspace_violation if an export path leaves
// the workspace.
func LoadManifest(path, root string) (*contracts.Manifest, *contracts.Restored, error) {
	text, err := readManifest(path)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to read hosted runner restore manifest: %w", err)
	}
	decoder := &contracts.Decoder{}
	m, err := decoder.Manifest(text)
	if err != nil {
		return nil, nil, err
	}
	if m.MaestroSessionID == "" {
		return nil, nil, invalid("/maestro_session_id Expected non-empty string")
	}
	snapshot, err := decoder.Snapshot(m.Snapshot)
	if err != nil {
		return nil, nil, invalid("snapshot: %w", err)
	}
	if err := checkExports(root, m.WorkspaceExport.Paths); err != nil {
		return nil, nil, err
	}
	if m.Runtime.FlushStatus == "interrupted" { // as older runners wrote it
		m.Runtime.FlushStatus = contracts.FlushFailed
	}
	restored, err := restore(m, snapshot)
	return m, restored, err
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("invalid_snapshot_manifest: "+format, args...)
}

// readManifest reads a regular file. Without O_NONBLOCK, opening a FIFO would
// wait for a writer.
func readManifest(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxManifestBytes:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxManifestBytes)
	}
	return io.ReadAll(io.LimitReader(f, maxManifestBytes)) // the file may have grown
}

// checkExports refuses paths that leave the current workspace.
func checkExports(root string, paths []contracts.ExportPath) error {
	for _, p := range paths {
		rel := filepath.FromSlash(p.RelativePath)
		at, err := locate(root + string(filepath.Separator) + rel)
		if err == nil && !filepath.IsAbs(rel) {
			if _, ok := inside(root, at.path); ok {
				continue
			}
		}
		return fmt.Errorf("workspace_violation: export path %q leaves the workspace", p.RelativePath)
	}
	return nil
}

// restore returns the initial state of the session from a manifest and its
// snapshot. It changes the snapshot.
func restore(m *contracts.Manifest, snapshot *contracts.Snapshot) (*contracts.Restored, error) {
	r := &contracts.Restored{SessionID: m.MaestroSessionID, Cursor: snapshot.Cursor, Snapshot: snapshot, Requests: keptRequests(m.PendingRequests)}
	if c := m.Runtime.Cursor; c != nil {
		r.Cursor = max(r.Cursor, *c)
	}
	if r.Cursor > maxCursor {
		return nil, invalid("cursor %d is beyond %d", r.Cursor, uint64(maxCursor))
	}
	if m.Queue != nil {
		r.Queue = keptQueue(m.Queue)
	}
	var err error
	if r.LastInit, err = lastInit(snapshot); err != nil {
		return nil, err
	}
	switch m.Runtime.FlushStatus {
	case contracts.FlushCompleted:
		r.Ready, r.LastStatus = true, statusRestored
	case contracts.FlushSkipped:
		r.LastStatus, r.LastError = statusNotRestored, errorSkipped
	default:
		r.LastStatus, r.LastError = statusNotFlushed, errorNotFlushed
	}
	if !r.Ready {
		r.LastErrorType = contracts.ErrorProtocol
		if m.Runtime.Error != "" {
			r.LastError = m.Runtime.Error
		}
	}
	settle(r)
	return r, nil
}

// lastInit decodes the snapshot's init. An init that does not decode is an
// error, because the new agent would run under another policy than the old one.
func lastInit(s *contracts.Snapshot) (*contracts.Init, error) {
	if len(s.LastInit) == 0 || string(s.LastInit) == "null" {
		return nil, nil
	}
	cmd, err := (&contracts.Decoder{}).Command(s.LastInit)
	if err != nil {
		return nil, invalid("last_init: %w", err)
	}
	init, ok := cmd.(*contracts.Init)
	if !ok {
		return nil, invalid("last_init is a %s", cmd.CommandType())
	}
	return init, nil
}

// settle makes the snapshot that of the restored session: no client is
// attached, nothing runs, and only the kept questions are open. It uses the
// questions and not the lists of the drained snapshot, so that a client sees
// exactly those that it can answer.
func settle(r *contracts.Restored) {
	old := r.Snapshot.State
	state := session.New()
	from := &contracts.Snapshot{SessionID: r.SessionID, LastInit: r.Snapshot.LastInit, State: contracts.State{
		ProtocolVersion: old.ProtocolVersion, Model: old.Model, Provider: old.Provider, Cwd: old.Cwd, GitBranch: old.GitBranch,
		SessionID:              contracts.String(r.SessionID),
		TrackedTools:           old.TrackedTools,
		LastStatus:             &r.LastStatus,
		LastResponseDurationMS: old.LastResponseDurationMS,
		LastTTFTMS:             old.LastTTFTMS,
		IsReady:                r.Ready,
	}}
	if !r.Ready {
		from.State.LastError, from.State.LastErrorType = &r.LastError, r.LastErrorType
	}
	state.Restore(from)
	for _, k := range r.Requests {
		state.Apply(k.Request)
	}
	r.Snapshot = state.Snapshot(r.Cursor)
}

// keptRequests decodes the questions that were open when the session was
// drained. It drops invalid ones and those of unknown types.
func keptRequests(open []contracts.OpenRequest) []contracts.KeptRequest {
	var kept []contracts.KeptRequest
	for _, o := range open {
		if k, err := keptRequest(o); err == nil {
			kept = append(kept, k)
		}
	}
	return kept
}

// keptQueue returns the queue of a drained session without invalid prompts.
func keptQueue(from *contracts.KeptQueue) contracts.KeptQueue {
	kept := contracts.KeptQueue{Held: from.Held}
	for _, p := range from.Prompts {
		known := slices.ContainsFunc(kept.Prompts, func(k contracts.KeptPrompt) bool { return k.PromptID == p.PromptID })
		if p.PromptID != "" && len(p.PromptID) <= contracts.MaxIDBytes && !known && len(kept.Prompts) < contracts.MaxQueued {
			kept.Prompts = append(kept.Prompts, p)
		}
	}
	return kept
}

func keptRequest(o contracts.OpenRequest) (contracts.KeptRequest, error) {
	event, err := (&contracts.Decoder{}).Event(o.Request)
	if err != nil {
		return contracts.KeptRequest{}, err
	}
	request, ok := event.(*contracts.ServerRequest)
	if !ok || request.RequestID == "" || request.CallID == "" {
		return contracts.KeptRequest{}, errors.New("not a question that can be answered")
	}
	k := contracts.KeptRequest{Request: request, Digest: o.Digest, Needed: int(o.VotesNeeded), Votes: o.Votes}
	if k.Opened, err = time.Parse(time.RFC3339, o.OpenedAt); err == nil && o.Deadline != "" {
		k.Deadline, err = time.Parse(time.RFC3339, o.Deadline)
	}
	return k, err
}
