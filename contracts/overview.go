package contracts

// A SessionStatus says what a session does, for people who look at many sessions.
type SessionStatus string

// The statuses in the order of an overview: sessions that need somebody come first.
const (
	SessionWaiting SessionStatus = "waiting" // a question waits for an answer
	SessionRunning SessionStatus = "running" // a run is in progress
	SessionFailed  SessionStatus = "failed"  // the last run failed
	SessionIdle    SessionStatus = "idle"    // open, without a run
	SessionAtRest  SessionStatus = "at_rest" // stored, and not open
	SessionDeleted SessionStatus = "deleted" // to be removed; it can be restored until then
)

// SessionStatuses lists every status in the order of an overview.
func SessionStatuses() []SessionStatus {
	return []SessionStatus{SessionWaiting, SessionRunning, SessionFailed, SessionIdle, SessionAtRest, SessionDeleted}
}

// A SessionSummary describes one session in an overview. Tokens and costs are those that
// the agent reported; they are zero if it reported none.
type SessionSummary struct {
	SessionID  string        `json:"session_id"`
	Revision   uint64        `json:"revision"` // rises with every change, also across restarts of the server
	Status     SessionStatus `json:"status"`
	Title      string        `json:"title"`      // set by a client, else the beginning of the first prompt; may be empty
	Author     *Author       `json:"author"`     // of the last prompt; null if it is not known
	Controller *Author       `json:"controller"` // who holds the lease; null if nobody does, or if the session is not open
	UpdatedAt  string        `json:"updated_at"` // of the last prompt, question, answer or response; ISO-8601 UTC
	Pending    int64         `json:"pending_request_count"`
	Tokens     int64         `json:"total_tokens"`
	CostUSD    float64       `json:"total_cost_usd"`
	Cursor     uint64        `json:"cursor"` // newest entry when the summary was made; 0 if it is not known
	Archived   bool          `json:"archived"`
	RemovedAt  string        `json:"removed_at,omitempty"` // when a deleted session will be removed; ISO-8601 UTC
}

// An Overview is one page of the sessions that the caller may reach. Sessions that need
// somebody come first, in the order of SessionStatus, and of these the latest first.
type Overview struct {
	Sessions []SessionSummary `json:"sessions"`
	// Next is the value of after for the next page. It is absent on the last page.
	Next string `json:"next,omitempty"`
	// Loading says that the server is still looking for stored sessions.
	Loading bool `json:"loading,omitempty"`
	// Truncated says that the server has more sessions than it lists.
	Truncated bool `json:"truncated,omitempty"`
}

// An OverviewEvent is one event of the stream of an overview.
type OverviewEvent struct {
	Type string `json:"type" wire:"oneof=sessions|session|removed"`
	// Overview is the first page. The client forgets what it knew.
	Overview *Overview `json:"overview,omitempty"`
	// Session is a new or changed session.
	Session *SessionSummary `json:"session,omitempty"`
	// SessionID is the id of a session that was removed.
	SessionID string `json:"session_id,omitempty"`
}

// A ListName names a list that a socket can follow.
type ListName string

// The lists.
const (
	ListSessions ListName = "sessions" // the overview
	ListInbox    ListName = "inbox"    // the open questions of all sessions
)

// A SessionUpdate is the body of a PATCH of a session. Absent fields do not change.
type SessionUpdate struct {
	Title    *string `json:"title,omitempty"` // cut to MaxTitleBytes; empty: the beginning of the first prompt
	Archived *bool   `json:"archived,omitempty"`
}

// An OverviewQuery selects the sessions of a page.
type OverviewQuery struct {
	Statuses []SessionStatus // empty: all but deleted
	Text     string          // in the title or the id, ignoring case
	Archived bool            // archived sessions instead of the others; deleted ones are listed either way
	After    string          // Overview.Next of the page before
	Limit    int             // sessions of a page, at most MaxOverviewPage
}
