package wiring

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/observe"
	"github.com/seed-028515a8/maestro/utility"
)

// Options configures [NewSessions].
type Options struct {
	// Workspace is the directory in which agents and utilities work. Empty means that
	// there is none: clients then get no utilities, and prompts no files.
	Workspace string

	NoUtilities bool // clients get no utilities although there is a workspace

	Revision string // of the program's source

	// Agent and Runtime are the parameters of [agent.Open]. What depends on the session
	// is set in Runtime when a session is opened.
	Agent   string
	Runtime agent.Options

	// NewAgent opens the agents instead of [agent.Open]; nil does not replace it.
	NewAgent func(key hub.Key, o agent.Options) (contracts.Agent, error)

	Session hub.Options     // what depends on the session is set when a session is opened
	Tools   utility.Options // likewise

	RetainBytes   int64         // size of a session's journal; zero means 256 MiB
	RetainAge     time.Duration // age of the entries in it; zero means no limit
	Fsync         bool          // show events only after they are synced to disk
	HistoryMemory int64         // for the newest entries of all sessions; zero means 256 MiB
	MaxKept       int           // sessions of one scope on the disk; zero means 10,000

	Identity      observe.Identity // added to the identity in the environment
	WorkspaceFlag string           // the flag that sets Workspace, for a message to users; empty means none

	Log *slog.Logger // required
}

// DefaultKept is how many sessions of one scope are on the disk at most by default.
const DefaultKept = 10_000

// ServerOptions configures [NewServer].
type ServerOptions struct {
	Options
	Network NetworkOptions

	Dir         string        // parent of the sessions' journals; required without StateRoot
	StateRoot   string        // if Dir is empty, it is a folder for the workspace below this directory
	MaxSessions int           // open sessions; zero means 1,024
	Undo        time.Duration // from the deletion of a session to its removal
	Notify      string        // path of the configuration of notifications; empty for none
	Hecate      wire.Options  // of the logs of Hecate events
	Page        bool          // serve the page for browsers
	Pages       http.Handler  // pages of the operator's own; nil for none
}
