package contracts

import "encoding/json"

// A HistoryKind says what a part of the history is read for.
type HistoryKind string

const (
	HistoryEntries HistoryKind = "entries" // events, as they were sent
	HistoryTurns   HistoryKind = "turns"   // the index of prompts
	HistorySearch  HistoryKind = "search"  // entries that contain a text
)

// A HistoryPage is a part of the stored history. Its lists are in the order of their
// cursors. Only the list of the requested kind is present. A page may have fewer
// members than the limit although there is a page before it.
type HistoryPage struct {
	Epoch   string         `json:"epoch"` // epoch of the newest entries
	Entries []HistoryEntry `json:"entries,omitempty"`
	Turns   []HistoryTurn  `json:"turns,omitempty"`
	Hits    []HistoryHit   `json:"hits,omitempty"`
	Before  *uint64        `json:"before"`        // of the page before this one; null where the history begins
	Gap     bool           `json:"gap,omitempty"` // entries before this page are missing: removed or lost
	Cut     bool           `json:"cut,omitempty"` // the page does not reach the prompt that turns asked for
}

// A HistoryEntry is an event of the past. Adjacent pieces of one text are joined, up
// to 64 KiB. The request {"before": cursor+1, "limit": 1, "full": true} returns the
// entry with its whole output.
type HistoryEntry struct {
	Cursor  uint64          `json:"cursor"`                                    // of the last piece
	At      string          `json:"at"`                                        // ISO-8601 UTC
	Message json.RawMessage `json:"message,omitempty" wire:"body=event,ready"` // absent if it is longer than 512 KiB
	Omitted int64           `json:"omitted,omitempty"`                         // bytes that are left out of an output or of the message
}

// A HistoryTurn is a prompt and its run.
type HistoryTurn struct {
	Cursor     uint64      `json:"cursor"`           // of the prompt
	At         string      `json:"at"`               // ISO-8601 UTC
	Author     *Author     `json:"author,omitempty"` // absent in sessions of earlier versions
	Line       string      `json:"line"`             // the first line of the prompt, at most 200 characters
	Outcome    TurnOutcome `json:"outcome"`
	DurationMS *int64      `json:"duration_ms"`         // null while the run is active
	End        uint64      `json:"end,omitempty"`       // cursor of the end of the run, if it is stored
	Questions  []uint64    `json:"questions,omitempty"` // cursors of the last questions of the run, at most MaxTurnQuestions
}

// A TurnOutcome says how a run ended.
type TurnOutcome string

const (
	TurnRunning   TurnOutcome = "running"
	TurnCompleted TurnOutcome = "completed"
	TurnFailed    TurnOutcome = "failed"    // with an error
	TurnCancelled TurnOutcome = "cancelled" // interrupted, cancelled or ended with the session
)

// A HistoryHit is an entry that contains the text of a search.
type HistoryHit struct {
	Cursor  uint64  `json:"cursor"`
	At      string  `json:"at"`      // ISO-8601 UTC
	Turn    *uint64 `json:"turn"`    // cursor of the prompt before it; null if it is further back than one request reads
	Of      string  `json:"of"`      // type of the message; or message_start, for a prompt of an earlier version
	Excerpt string  `json:"excerpt"` // the text around the first place, at most 200 bytes
}
