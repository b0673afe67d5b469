package hosted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Session is the part of the hub that the runner uses.
type Session interface {
	// SessionID returns the Maestro session's id, which never changes.
	SessionID() string

	// Ready reports whether the session accepts new attachments. An ended
	// session never does again.
	Ready() bool

	// Quiesce fences the session, announces the reason, stops running work and
	// flushes, all within ctx. It is idempotent: after the first call it returns
	// the same facts, except that it tries a failed flush again.
	Quiesce(ctx context.Context, reason string) contracts.Quiesced

	// Conclude publishes the final snapshot under the frozen cursor and lets
	// streams end within 5 s. It does not wait for them. drained says whether
	// the drain succeeded. It is called after the manifest has been written, and
	// again if an interrupted drain is tried again.
	Conclude(drained bool)
}

// A Runner is one hosted process. It is safe for concurrent use.
type Runner struct {
	// Static after New.
	config      Config
	session     Session
	sessionFile string
	log         *slog.Logger
	incomplete  bool // restored from a session that was not flushed completely: never ready
	continued   bool // restored from a session that was flushed: it has a past, even without new activity

	drains sync.WaitGroup // counts the goroutine of the running drain; at most one

	// Guarded by mu, which is not held while the session is called or a file is
	// used.
	mu       sync.Mutex
	closed   bool
	draining bool
	flight   *flight                // the running drain; nil without one
	last     *contracts.DrainAnswer // of the last drain that wrote a manifest; shared and immutable
}

// Options configures a runner.
type Options struct {
	// Config must have been resolved.
	Config Config
	// Session is the hub of the one session.
	Session Session
	// Restored is the initial state of a restored session; nil for a new one.
	Restored *contracts.Restored
	// SessionFile is the path of the session's journal on disk, for the
	// manifest. It may be empty.
	SessionFile string
	// Log gets the reason why a manifest could not be written, which the client
	// does not get. Nil discards it.
	Log *slog.Logger
}

// New returns a runner. It is ready unless it was restored from a session that
// was not flushed completely. New creates the snapshot root, so that a runner
// that cannot write its manifest does not start.
func New(opts Options) (*Runner, error) {
	if opts.Config.WorkspaceRoot == "" || opts.Config.RunnerSessionID == "" {
		return nil, errors.New("hosted runner: configuration is not resolved")
	}
	opts.Config.FlushTimeout = cmp.Or(max(opts.Config.FlushTimeout, 0), defaultFlushTimeout)
	r := &Runner{
		config: opts.Config, session: opts.Session, sessionFile: opts.SessionFile,
		log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
	}
	if opts.Restored != nil {
		r.continued, r.incomplete = opts.Restored.Ready, !opts.Restored.Ready
	}
	dir, err := r.config.openSnapshotRoot()
	if err != nil {
		return nil, fmt.Errorf("hosted runner snapshot root: %w", err)
	}
	return r, dir.Close()
}

// Close waits for a running drain, at most for the flush timeout and the time
// to write a manifest. Later drains are refused.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.drains.Wait()
}

// Identity returns the runner's public identity. The runner is ready if it does
// not drain, its session is complete and open, and its workspace is a
// directory.
func (r *Runner) Identity() contracts.RunnerIdentity {
	present, open := isDir(r.config.WorkspaceRoot), r.session.Ready()
	r.mu.Lock()
	defer r.mu.Unlock()
	id := contracts.RunnerIdentity{
		ProtocolVersion: contracts.IdentityProtocol,
		RunnerSessionID: r.config.RunnerSessionID,
		OwnerInstanceID: r.config.OwnerInstanceID,
		Ready:           present && !r.draining && !r.incomplete && open,
		Draining:        r.draining,
	}
	if r.last != nil {
		id.DrainStatus, id.DrainManifestPath, id.DrainedAt = r.last.Status, r.last.ManifestPath, r.last.Manifest.CreatedAt
	}
	return id
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// stamp formats a time as on the wire.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
