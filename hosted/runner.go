package hosted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Session is what the runner needs of its hub.
type Session interface {
	// SessionID returns the Maestro session's id, which never changes.
	SessionID() string

	// Ready reports whether the session takes new attachments. One that was ended
	// does not, and never will.
	Ready() bool

	// Quiesce fences the session, announces the reason, stops what runs and
	// flushes, all within ctx. It is idempotent: after the first call it returns
	// the same facts, except that a failed flush is tried again. An error says
	// that the facts are incomplete; what there is of them still counts.
	Quiesce(ctx context.Context, reason string) (contracts.Quiesced, error)

	// Conclude publishes the final snapshot under the frozen cursor and lets
	// streams end within five seconds, for which it does not wait. drained says
	// how it ended. It is called once the manifest is on the disk, and again if
	// a drain that was interrupted is tried again.
	Conclude(drained bool)
}

// A Runner is one hosted process. It is safe for concurrent use.
type Runner struct {
	// Static after New.
	config      Config
	session     Session
	sessionFile string
	log         *slog.Logger
	incomplete  bool // restored from a session that was not on the disk: never ready
	continued   bool // restored from one that was: it has a past, whatever happens now

	drains sync.WaitGroup // the goroutine of a running drain; at most one

	// Guarded by mu, which is never held while the session is called or a file
	// is touched.
	mu        sync.Mutex
	closed    bool
	draining  bool
	flight    *flight                // the running drain; nil if none
	last      *contracts.DrainAnswer // of the last drain that left a manifest; shared, nobody changes it
	drainedAt time.Time              // when last was made
}

// Options say what a runner is.
type Options struct {
	// Config must have been resolved.
	Config Config
	// Session is the hub of the one session.
	Session Session
	// Restored is what the session started from; nil for a new one.
	Restored *contracts.Restored
	// SessionFile is the path of the session's log on disk, for the manifest.
	// Empty leaves it out.
	SessionFile string
	// Log is told why a manifest could not be written; the client is only told
	// that. Nil discards it.
	Log *slog.Logger
}

// New returns a runner that is ready unless it was restored from a session that
// was not on the disk. It makes the snapshot root: a runner that could not
// write its manifest should not start.
func New(opts Options) (*Runner, error) {
	if opts.Config.WorkspaceRoot == "" || opts.Config.RunnerSessionID == "" {
		return nil, errors.New("hosted runner: configuration is not resolved")
	}
	if opts.Config.FlushTimeout <= 0 {
		opts.Config.FlushTimeout = defaultFlushTimeout
	}
	r := &Runner{config: opts.Config, session: opts.Session, sessionFile: opts.SessionFile, log: opts.Log}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
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

// Close waits for a running drain, which takes no longer than the flush timeout
// and the time to write a manifest. Drains asked for afterwards are refused.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.drains.Wait()
}

// Identity returns what anybody may know. The runner is ready when it does not
// drain, its session is whole and its workspace is still a directory.
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
		id.DrainStatus, id.DrainManifestPath = r.last.Status, r.last.ManifestPath
		id.DrainedAt = stamp(r.drainedAt)
	}
	return id
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// stamp is a time on the wire.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
