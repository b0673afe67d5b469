package contracts

import "time"

// Default limits. Each is an option of the package that enforces it.
const (
	MaxLineBytes       = 10 << 20  // a line on stdio, terminator excluded, either way
	MaxSocketBytes     = 1 << 20   // a client frame on a socket, after reassembly
	MaxTextBytes       = 64 << 10  // text in one chunk or output message, also when merged
	MaxValueBytes      = 256 << 10 // an args or event value; longer ones are cut with a marker
	MaxDepth           = 128       // nesting of a JSON text
	MaxIDBytes         = 128       // an id chosen by a client
	MaxSendIDBytes     = 64        // the id of a ws.send
	MaxClientTools     = 64        // tools that one client offers to the agent
	MaxClientToolBytes = 64 << 10  // of their names, descriptions and schemas together
	MaxLabelBytes      = 256       // a client's name or version, and the protocol version it names
	MaxTitleBytes      = 200       // a session's title; a longer one is cut
	MaxOverviewPage    = 500       // sessions of one page of an overview; 100 if the client does not say
	MaxEventBytes      = 1 << 20   // a server message; the hub replaces a longer one by an error event
	MaxAgentCommands   = 256       // commands that an agent offers
	MaxUnanswered      = 32        // unanswered ws.send frames of a client; the server executes one at a time
	MaxViewerFrames    = 50        // frames of a viewer on WebSocket read per second after the burst; later frames wait
	ViewerFrameBurst   = 500       // frames of a viewer read at once
	HelloFrames        = 25        // frames that one hello of a viewer counts as
	MaxStateOutput     = 32 << 10  // characters of output of one tool or command kept in the state
	MaxStateText       = 1 << 20   // text, and thinking, of the response kept in the state
	MaxListed          = 64        // connections listed in the state; the count is always exact
	MaxPromptBytes     = 16 << 10  // content of a prompt_accepted
	MaxPromptRecord    = 4 << 10   // content of one prompt kept in the state
	MaxPeople          = 20        // prompts, and answers, kept in the state
	MaxQueued          = 20        // prompts in the queue
	MaxQueuedBytes     = 1 << 20   // contents and attachment paths of the prompts in the queue, together
	WritePart          = 256 << 10 // bytes that a client must read within the write timeout
	HistoryFrames      = 10        // frames that one ws.history of a viewer counts as
	FollowFrames       = 10        // frames that one ws.follow counts as
	MaxHistoryLimit    = 1000      // entries, turns or hits of a page of the history
	MaxHistoryBytes    = 512 << 10 // messages of a page of the history, and one message in it
	MaxHistoryTurns    = 100       // turns that a page of the history may begin with
	MaxTurnQuestions   = 20        // questions of a turn in an index of prompts
	MaxHistoryOutput   = 16 << 10  // output in an entry of the history; a longer one is cut to its first 8 KiB
	MaxHistoryQuery    = 256       // the text of a search
	MaxAttachments     = 20
	MaxAttachmentBytes = 10 << 20
	MaxAttachmentTotal = 32 << 20
	MaxAttachmentText  = 200_000 // characters of an extracted text
)

// Default durations.
const (
	DefaultHeartbeatInterval = 15 * time.Second
	SilentHeartbeats         = 3 // heartbeat intervals; a client that is silent for longer is disconnected
	DefaultLeaseTTL          = 45 * time.Second
	DefaultSubscriptionTTL   = 30 * time.Second
	DefaultHandshakeTimeout  = 10 * time.Second
	DefaultWriteTimeout      = 10 * time.Second
)
