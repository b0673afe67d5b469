package hub

import (
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// A Record is what a list of sessions shows and stores of a session.
type Record struct {
	Digest  Digest `json:"digest"`
	Cursor  uint64 `json:"cursor,omitempty"`
	Pending int    `json:"pending,omitempty"`
	Running bool   `json:"running,omitempty"`

	// Controller holds the lease. It is nil if nobody does. It is not stored.
	Controller *contracts.Author `json:"-"`

	// Questions are open and for people.
	Questions []contracts.InboxQuestion `json:"questions,omitempty"`
}

// Record returns the record of the session now, and how questions ended since the last
// call.
func (h *Hub) Record() (Record, []contracts.InboxEnding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rec := Record{
		Digest: h.state.log.digest, Cursor: h.journal.Visible(),
		Pending: h.state.work.table.Len(), Running: h.state.work.run != nil,
		Questions: h.state.questions(),
	}
	if c := h.state.clients.holder(); c != nil {
		rec.Controller = c.author()
	}
	ended := h.state.log.endings
	h.state.log.endings = nil
	rec.Digest.Failed = rec.Digest.Failed || h.state.life.failed != nil
	return rec, ended
}

// A Digest is what lists show of the events of a session. Checkpoints contain it.
type Digest struct {
	Title   string            `json:"title,omitempty"`  // the beginning of the first prompt
	Author  *contracts.Author `json:"author,omitempty"` // of the last prompt; it does not change
	At      time.Time         `json:"at,omitzero"`      // of the last prompt, question, vote, answer or response
	Tokens  int64             `json:"tokens,omitempty"`
	CostUSD float64           `json:"cost_usd,omitempty"`
	Failed  bool              `json:"failed,omitempty"` // the last run failed

	changes uint64 // number of changes
}

// apply folds an event that was published at a time.
func (d *Digest) apply(ev contracts.Event, at time.Time) {
	switch ev := ev.(type) {
	case *contracts.PromptAccepted:
		d.Author, d.Failed = new(ev.Author), false // a copy, because the digest outlives the event
		d.setTitle(ev.Content)
	case *contracts.RawAgentEvent: // the journals of earlier versions have no other event with the prompt
		if d.Title != "" {
			return
		}
		text, ok := ev.UserMessage()
		if !ok {
			return
		}
		d.setTitle(text)
	case *contracts.ResponseEnd:
		d.Tokens += ev.Usage.TotalTokens
		d.CostUSD += ev.Usage.TotalCostUSD
	case *contracts.ServerRequest, *contracts.ServerRequestResolved, *contracts.RequestVoted:
	default:
		return
	}
	d.At = at
	d.changes++
}

// setTitle makes a title of a prompt unless there is one.
func (d *Digest) setTitle(prompt string) {
	if d.Title == "" {
		d.Title = strings.Clone(contracts.CleanTitle(abridge.Head(prompt, 4*contracts.MaxTitleBytes))) // the prompt may be large
	}
}

func (d *Digest) endRun(failed bool) {
	d.Failed = failed
	d.changes++
}

// shown is what changes in a summary when a list must show it again.
type shown struct {
	digest  uint64 // number of changes
	pending int
	running bool
	failed  bool
	holder  string
}

// noteChange calls Options.Changed if the transaction changed what lists show.
func (tx *tx) noteChange() {
	if tx.opts.Changed == nil {
		return
	}
	now := shown{tx.log.digest.changes, tx.work.table.Len(), tx.work.run != nil, tx.life.failed != nil, tx.clients.controllerID().Get()}
	if now != tx.log.shown {
		tx.log.shown = now
		tx.opts.Changed()
	}
}

// CheckHolder refuses a request unless its connection holds the lease.
func (h *Hub) CheckHolder(by contracts.Caller) error {
	return h.request(opRequest, func(tx *tx) error {
		c, err := tx.identify(by)
		if err == nil {
			err = tx.checkLease(c)
		}
		if err == nil && tx.clients.holder() != c {
			err = errNotHolder
		}
		return err
	})
}

var errNotHolder = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "the connection does not hold the controller lease"}
