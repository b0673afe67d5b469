package double

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	wellKnown = "/.well-known/evalops/remote-runner/"
	protocols = "evalops.remote-runner."
)

// A Runner binds a server to one session and one workspace (section 5).
type Runner struct {
	ID          string // of the runner session
	SessionID   string // the bound session; empty means that of Manifest, else ID
	Owner       string // generation; empty for none
	WorkspaceID string // metadata; empty for none
	AgentRunID  string // metadata; empty for none
	Workspace   string // a directory
	Snapshots   string // where manifests go, relative to Workspace; empty is the default
	Manifest    string // to restore from; empty for a fresh start

	started   uint64 // the cursor it began with
	unready   bool   // restored from something incomplete
	draining  bool
	drained   *reply
	drainedAt string
}

// A manifest is what this server needs of one to restore from it.
type manifest struct {
	Protocol string `json:"protocol_version"`
	Session  string `json:"maestro_session_id"`
	Runtime  struct {
		Flush  string `json:"flush_status"`
		Error  string `json:"error"`
		Cursor uint64 `json:"cursor"`
	} `json:"runtime"`
	Export struct {
		Mode  string `json:"mode"`
		Paths []struct {
			Relative string `json:"relative_path"`
		} `json:"paths"`
	} `json:"workspace_export"`
	Snapshot struct {
		Cursor   uint64          `json:"cursor"`
		LastInit json.RawMessage `json:"last_init"`
	} `json:"snapshot"`
}

// Host makes the server a hosted runner. It is called once, before the server
// serves. A manifest that cannot be restored is an error.
func (s *Server) Host(h Runner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	workspace, err := filepath.EvalSymlinks(h.Workspace)
	if err != nil {
		return err
	}
	h.Workspace, s.runner = workspace, &h
	if h.Manifest == "" {
		h.SessionID = cmp.Or(h.SessionID, h.ID)
		s.open(h.SessionID, false).state.Cwd = workspace
		h.started = s.rooms[h.SessionID].head
		return nil
	}
	return s.restore(&h)
}

func (s *Server) restore(h *Runner) error {
	text, err := os.ReadFile(h.Manifest)
	if err != nil {
		return fmt.Errorf("failed to read hosted runner restore manifest: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("invalid_snapshot_manifest: %w", err)
	}
	switch {
	case m.Protocol != protocols+"snapshot-manifest.v1" || m.Export.Mode != "local_path_contract" || m.Session == "":
		return errors.New("invalid_snapshot_manifest: not a manifest of this protocol")
	case h.SessionID != "" && h.SessionID != m.Session:
		return errors.New("invalid_snapshot_manifest: the session is another than the configured one")
	}
	for _, p := range m.Export.Paths {
		if !filepath.IsLocal(p.Relative) {
			return errors.New("workspace_violation: " + p.Relative)
		}
	}
	h.SessionID = m.Session
	r := s.open(h.SessionID, false)
	r.log, r.lastInit = nil, m.Snapshot.LastInit
	r.head = max(m.Runtime.Cursor, m.Snapshot.Cursor)
	r.floor, r.restored, h.started = r.head, true, r.head
	status, fault := "Restored from snapshot", ""
	switch m.Runtime.Flush {
	case "completed":
	case "skipped":
		status, fault = "Restore incomplete: runtime flush skipped", "runtime flush was skipped; no runtime activity was persisted"
	default:
		status, fault = "Restore interrupted before runtime flush completed", "runtime flush failed before restore"
	}
	r.state.Cwd, r.state.LastStatus, r.state.IsReady = h.Workspace, &status, fault == ""
	if fault != "" {
		fault = cmp.Or(m.Runtime.Error, fault)
		r.state.LastError, r.state.LastErrorType, h.unready = &fault, contracts.ErrorProtocol, true
	}
	return nil
}

// boundTo refuses another session than the bound one.
func (s *Server) boundTo(id string) *contracts.Error {
	if s.runner == nil || id == s.runner.SessionID {
		return nil
	}
	e := refuse(contracts.CodeRuntimeOwnedElsewhere, "", "Hosted runner is bound to Maestro session "+s.runner.SessionID)
	e.Metadata = s.runner.about()
	e.Metadata["requested_maestro_session_id"] = id
	return e
}

// about is who the runner is, for error bodies and manifests.
func (h *Runner) about() map[string]string {
	m := map[string]string{"runner_session_id": h.ID, "owner_instance_id": h.Owner, "workspace_id": h.WorkspaceID,
		"agent_run_id": h.AgentRunID, "maestro_session_id": h.SessionID}
	maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
	return m
}

// accepting refuses what a runner that drains, or never was ready, does not do.
func (r *room) accepting(text string) *contracts.Error {
	h := r.s.runner
	if h == nil || !h.draining && !h.unready {
		return nil
	}
	e := refuse(contracts.CodeRuntimeNotReady, "", text)
	e.Metadata = h.about()
	if h.draining {
		e.Metadata["draining"] = "true"
	}
	return e
}

// hosted returns the one session to attach to.
func (s *Server) hosted(id string) (*room, *contracts.Error) {
	r := s.rooms[s.runner.SessionID]
	if r == nil {
		return nil, refuse(contracts.CodeStaleSession, "", "Headless session not found")
	}
	if e := r.accepting("hosted runner is not accepting new attachments"); e != nil {
		return nil, e
	}
	r.expire()
	return r, s.boundTo(id)
}

func (c *call) identity() reply {
	h := c.s.runner
	if h == nil || h.Owner == "" && c.s.has(OwnerlessIdentity) {
		return c.s.no(refuse(contracts.CodeNotFound, "", "hosted runner identity unavailable"))
	}
	body := map[string]any{"protocol_version": protocols + "identity.v1", "runner_session_id": h.ID,
		"ready": !h.draining && !h.unready, "draining": h.draining}
	if h.Owner != "" {
		body["owner_instance_id"] = h.Owner
	}
	if h.drainedAt != "" {
		body["drain_status"], body["drained_at"] = "drained", h.drainedAt
	}
	return c.s.uncached(body)
}

// uncached answers what is not to be kept.
func (s *Server) uncached(body map[string]any) reply {
	a := ok(body)
	a.header = http.Header{}
	if !s.has(CachedIdentity) {
		a.header.Set("Cache-Control", "no-store")
	}
	return a
}

func (c *call) readyz() reply {
	h := c.s.runner
	ready, draining := h == nil || !h.draining && !h.unready, h != nil && h.draining
	body := map[string]any{"ok": ready, "ready": ready, "draining": draining}
	if c.s.has(PlainHealth) {
		body = map[string]any{"ok": ready}
	}
	if ready {
		return ok(body)
	}
	a := c.s.no(refuse(contracts.CodeRuntimeNotReady, "", "hosted runner is not ready"))
	a.body = append(a.body[:len(a.body)-1], append([]byte(","), encodeValue(body)[1:]...)...)
	return a
}

// A drainOrder is the body of drain.
type drainOrder struct {
	Reason      string   `json:"reason"`
	RequestedBy string   `json:"requested_by"`
	ExportPaths []string `json:"export_paths"`
}

// drain ends the work, writes it down and says where. It holds the lock all
// the time, so there is one drain.
func (c *call) drain() reply {
	h := c.s.runner
	if h == nil {
		return c.s.no(refuse(contracts.CodeNotFound, "", "hosted runner drain unavailable"))
	}
	var order drainOrder
	if len(c.body) > 0 {
		if e := c.object(&order); e != nil {
			return c.s.no(e)
		}
	}
	exports, e := h.exports(order.ExportPaths)
	if e != nil {
		return c.s.no(e)
	}
	if h.drained != nil && !c.s.has(DrainsAgain) {
		again := *h.drained
		again.header = maps.Clone(again.header)
		again.header.Set("X-Maestro-Drain-Replayed", "true")
		return again
	}
	h.draining = true
	a, err := c.s.drainTo(h, strings.TrimSpace(order.Reason), strings.TrimSpace(order.RequestedBy), exports)
	if err != nil {
		return c.s.no(refuse(contracts.CodeRuntimeFailed, "", err.Error()))
	}
	h.drained = &a
	return a
}

// exports resolves the paths to be exported.
func (h *Runner) exports(paths []string) ([]map[string]string, *contracts.Error) {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	var list []map[string]string
	for i, p := range paths {
		if p == "" || strings.ContainsRune(p, 0) {
			return nil, badBody(fmt.Sprintf("export_paths[%d] must be a non-empty string", i))
		}
		joined := p
		if !filepath.IsAbs(p) {
			joined = filepath.Join(h.Workspace, p)
		}
		real, err := filepath.EvalSymlinks(joined)
		relative, outside := filepath.Rel(h.Workspace, cmp.Or(real, joined))
		if outside != nil || !filepath.IsLocal(relative) {
			return nil, refuse(contracts.CodeWorkspaceViolation, "", "Export path escapes hosted runner workspace root: "+p)
		}
		info, statErr := os.Stat(joined)
		if err != nil || statErr != nil {
			return nil, refuse(contracts.CodeBadRequest, "", "Export path is unavailable: "+p)
		}
		kind := "other"
		if info.IsDir() {
			kind = "directory"
		} else if info.Mode().IsRegular() {
			kind = "file"
		}
		list = append(list, map[string]string{"input": p, "path": real, "relative_path": relative, "type": kind})
	}
	return list, nil
}

// drainTo does the work of a drain.
func (s *Server) drainTo(h *Runner, reason, by string, exports []map[string]string) (reply, error) {
	r := s.rooms[h.SessionID]
	if r == nil {
		return reply{}, errors.New("the session has ended")
	}
	active := r.head > h.started
	if active {
		r.publish(&contracts.Status{Message: "Hosted runner is draining: " + cmp.Or(reason, "platform_requested_drain")})
	}
	r.cancelQuestions("Runtime drained before request completed")
	r.quiet()
	if r.run != nil {
		r.endRun("Run interrupted by drain")
	}
	given := map[string]string{"reason": reason, "requested_by": by}
	maps.DeleteFunc(given, func(_, v string) bool { return v == "" })
	m := r.manifest(active, exports)
	answer := map[string]any{"protocol_version": protocols + "drain.v1", "status": "drained", "runner_session_id": h.ID, "manifest": m}
	for key, value := range given {
		m[key], answer[key] = value, value
	}
	path, err := h.write(m)
	if err != nil {
		return reply{}, err
	}
	answer["manifest_path"], h.drainedAt = path, stamp(time.Now())
	r.sayDrained()
	return s.uncached(answer), nil
}

// quiet ends all utilities and waits for that, with the lock open meanwhile.
func (r *room) quiet() {
	r.endUtilities("Runtime drained", everybody)
	for len(r.programs) > 0 {
		r.s.mu.Unlock()
		time.Sleep(lookTime)
		r.s.mu.Lock()
	}
}

// manifest describes the session as of the cursor that its last snapshot will
// have.
func (r *room) manifest(active bool, exports []map[string]string) map[string]any {
	h := r.s.runner
	runtime := map[string]any{"flush_status": "skipped", "session_id": r.id}
	if active {
		runtime = map[string]any{"flush_status": "completed", "session_id": r.id, "protocol_version": contracts.ProtocolVersion, "cursor": r.head + 1}
	}
	m := map[string]any{"protocol_version": protocols + "snapshot-manifest.v1", "created_at": stamp(time.Now()),
		"workspace_root": h.Workspace, "runtime": runtime,
		"workspace_export": map[string]any{"mode": "local_path_contract", "paths": exports},
		"snapshot":         json.RawMessage(r.quiesced(r.head + 1)), "retention_policy": json.RawMessage(retention)}
	for key, value := range h.about() {
		if key != "owner_instance_id" {
			m[key] = value
		}
	}
	return m
}

// sayDrained publishes the last snapshot, after which streams end.
func (r *room) sayDrained() {
	text := "Drained"
	r.state.IsReady, r.state.LastStatus = false, &text
	r.publishSnapshot()
	r.frozen = true
	for _, k := range r.clients {
		for _, sub := range k.subs {
			for _, t := range sub.streams {
				if !r.s.has(StreamsLiveOn) {
					t.finish()
				}
			}
		}
	}
}

// quiesced is the snapshot of a session that nobody is attached to.
func (r *room) quiesced(cursor uint64) []byte {
	st := r.state
	drained := "Drained"
	st.SessionID, st.LastStatus = contracts.String(r.id), &drained
	st.Connections = []contracts.ConnectionState{}
	return r.encodeSnapshot(cursor, st)
}

var unsafeInName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// write puts a manifest where it appears only when it is complete.
func (h *Runner) write(manifest map[string]any) (string, error) {
	dir := cmp.Or(h.Snapshots, filepath.Join(".maestro", "runner-snapshots"))
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(h.Workspace, dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, unsafeInName.ReplaceAllString(h.ID+"-"+stamp(time.Now()), "_")+".json")
	if err := os.WriteFile(path+".part", encodeValue(manifest), 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(path+".part", path)
}

const retention = `{"policy_version":"evalops.remote-runner.retention.v1","managed_by":"platform",` +
	`"visibility":{"control_plane_metadata":"operator","workspace_export":"tenant","runtime_snapshot":"internal","runtime_logs":"operator"},` +
	`"redaction":{"required_before_external_persistence":["runtime_snapshot","runtime_logs"],` +
	`"forbidden_plaintext":["provider_credentials","tool_secrets","attach_tokens","artifact_access_tokens","raw_environment"]}}`
