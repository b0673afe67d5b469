package hosted

import (
	"bytes"
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Constant values of a drain request.
const (
	ReasonShutdown = "process_shutdown"   // the process was asked to end
	RequesterSelf  = "maestro_web_server" // the process itself

	// defaultReason is sent to clients if the request has no reason.
	defaultReason = "platform_requested_drain"
)

// maxFlushError bounds the text of a failed flush in a manifest, in bytes.
const maxFlushError = 4 << 10

// A flight is a running drain. answer and err are set before done is closed.
type flight struct {
	done   chan struct{}
	answer *contracts.DrainAnswer
	err    error
}

// Drain stops the session, flushes it and describes it in a manifest, once. A
// call while a drain runs gets its result. A call after a successful drain gets
// the stored result, with replayed true. An interrupted drain can be tried
// again. The answer is shared and must not be changed.
//
// A body that is not a drain request is refused with bad_request, export paths
// that leave the workspace with workspace_violation, and a missing workspace
// with runtime_not_ready; none of these changes anything. If the manifest
// cannot be written, the error is runtime_failed: the runner stays draining,
// and the next call tries again.
//
// ctx bounds the wait of this call, with the code timeout. The drain itself
// goes on, bounded by the flush timeout.
func (r *Runner) Drain(ctx context.Context, body []byte) (answer *contracts.DrainAnswer, replayed bool, err error) {
	req, err := (&contracts.Decoder{}).DrainRequest(body)
	if err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	answer = r.success()
	r.mu.Unlock()
	if answer != nil && len(req.ExportPaths) == 0 {
		return answer, true, nil
	} else if answer == nil && !isDir(r.config.WorkspaceRoot) {
		return nil, false, r.notReady("hosted runner workspace root is unavailable")
	}
	if len(req.ExportPaths) == 0 {
		req.ExportPaths = wholeWorkspace
	}
	if _, err := resolveExports(r.config.WorkspaceRoot, req.ExportPaths, false); err != nil {
		return nil, false, err
	}
	return r.join(ctx, req)
}

// DrainForShutdown drains because the process was asked to end, or joins a
// running drain. It reports whether the last drain was interrupted.
func (r *Runner) DrainForShutdown(ctx context.Context) (interrupted bool, err error) {
	answer, _, err := r.join(ctx, &contracts.DrainRequest{
		Reason: ReasonShutdown, RequestedBy: RequesterSelf, ExportPaths: wholeWorkspace,
	})
	return answer != nil && answer.Status == contracts.DrainInterrupted, err
}

// success returns the result of the successful drain, or nil. The caller holds
// mu.
func (r *Runner) success() *contracts.DrainAnswer {
	if r.last != nil && r.last.Status == contracts.Drained {
		return r.last
	}
	return nil
}

// join waits for the running drain. If there is none, it starts one, unless one
// was successful.
func (r *Runner) join(ctx context.Context, req *contracts.DrainRequest) (answer *contracts.DrainAnswer, replayed bool, err error) {
	r.mu.Lock()
	f := r.flight
	if answer := r.success(); answer != nil {
		r.mu.Unlock()
		return answer, true, nil
	}
	if f == nil && r.closed {
		r.mu.Unlock()
		return nil, false, &contracts.Error{Code: contracts.CodeGoingAway, Message: "hosted runner is closing"}
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		r.flight, r.draining = f, true
		r.drains.Go(func() { r.runFlight(f, req) }) // ends with the flush timeout; Close waits for it
	}
	r.mu.Unlock()
	select {
	case <-f.done:
		return f.answer, false, f.err
	case <-ctx.Done():
		return nil, false, &contracts.Error{Code: contracts.CodeTimeout, Message: "hosted runner is still draining"}
	}
}

func (r *Runner) runFlight(f *flight, req *contracts.DrainRequest) {
	answer, err := r.attempt(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.last = answer
	}
	f.answer, f.err = answer, err
	r.flight = nil
	close(f.done)
}

// attempt stops the session and writes a manifest.
func (r *Runner) attempt(req *contracts.DrainRequest) (*contracts.DrainAnswer, error) {
	d := &drained{config: &r.config, session: r.session.SessionID(), sessionFile: r.sessionFile, request: req}
	r.quiesce(d)
	var err error
	if d.exports, err = resolveExports(r.config.WorkspaceRoot, req.ExportPaths, true); err != nil {
		return nil, err
	}
	root := r.config.WorkspaceRoot
	d.git = gitState(context.Background(), root, filepath.Join(root, ownDir), r.config.SnapshotRoot)
	d.at = time.Now()
	manifest, err := r.writeManifest(d)
	if err != nil {
		r.log.Error("drain manifest not written", "snapshot_root", r.config.SnapshotRoot, "err", err)
		return nil, &contracts.Error{
			Code: contracts.CodeRuntimeFailed, Message: "hosted runner manifest could not be written", Metadata: r.metadata(),
		}
	}
	r.session.Conclude(d.status() == contracts.Drained)
	return &contracts.DrainAnswer{
		ProtocolVersion: contracts.DrainProtocol, Status: d.status(), RunnerSessionID: r.config.RunnerSessionID,
		RequestedBy: req.RequestedBy, Reason: req.Reason, ManifestPath: d.path, Manifest: *manifest,
	}, nil
}

// quiesce makes the session stop and flush, and records the outcome.
func (r *Runner) quiesce(d *drained) {
	ctx, cancel := context.WithTimeout(context.Background(), r.config.FlushTimeout)
	defer cancel()
	d.Quiesced = r.session.Quiesce(ctx, cmp.Or(d.request.Reason, defaultReason))
	d.FlushError = abridge.Head(d.FlushError, maxFlushError)
	switch {
	case d.FlushError != "":
		d.flush = contracts.FlushFailed
	case d.Active, r.continued:
		d.flush = contracts.FlushCompleted
	default:
		d.flush = contracts.FlushSkipped
	}
}

// writeManifest writes the manifest and records its path.
func (r *Runner) writeManifest(d *drained) (*contracts.Manifest, error) {
	dir, err := r.config.openSnapshotRoot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // it was only read
	name, err := manifestName(dir, r.config.RunnerSessionID, d.at)
	if err != nil {
		return nil, err
	}
	d.path = filepath.Join(r.config.SnapshotRoot, name)
	manifest, err := d.manifest()
	if err != nil {
		return nil, err
	}
	text, err := contracts.EncodeBody(manifest)
	if err != nil {
		return nil, err
	}
	return manifest, writeFile(dir, name, append(bytes.Clone(text), '\n'))
}
