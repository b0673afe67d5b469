package hub

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// author returns who acts through the connection.
func (c *connection) author() *contracts.Author {
	a := principalAuthor(c.principal)
	a.ClaimedName, a.ClientInfo, a.ConnectionID = c.terms.DisplayName, c.terms.ClientInfo, c.id
	return a
}

// principalAuthor returns a principal that acts without a connection.
func principalAuthor(p contracts.Principal) *contracts.Author {
	return &contracts.Author{Principal: p.ID, Name: cmp.Or(p.Name, p.ID, "local")}
}

// acceptedPrompt returns the event that says who sent a prompt that the agent is about to
// get.
func (tx *tx) acceptedPrompt(p *contracts.KeptPrompt) *contracts.PromptAccepted {
	ev := &contracts.PromptAccepted{
		PromptID: p.PromptID, Content: abridge.Head(p.Content, contracts.MaxPromptBytes),
		Attachments: fileNames(p.Attachments), Author: p.Author, Timestamp: timestamp(tx.now),
	}
	ev.Truncated = len(ev.Content) < len(p.Content)
	return ev
}

// leaveQueue removes an accepted prompt from the queue if it was there.
func (tx *tx) leaveQueue(p *contracts.KeptPrompt) {
	if tx.work.takePrompt(p.PromptID) {
		tx.publish(tx.work.shownQueue())
	}
}

// fileNames returns the names of attached files without their folders.
func fileNames(paths []string) (names []string) {
	for _, path := range paths[:min(len(paths), contracts.MaxAttachments)] {
		names = append(names, contracts.CleanLabel(filepath.Base(path), contracts.MaxLabelBytes))
	}
	return names
}

// withAuthor returns how a request ended, with the author of the answer; nil means that
// nobody answered.
func (tx *tx) withAuthor(ev *contracts.ServerRequestResolved, by *contracts.Author) *contracts.ServerRequestResolved {
	if by == nil {
		return ev
	}
	answered := *ev
	answered.Author, answered.Timestamp = by, timestamp(tx.now)
	return &answered
}

// controlChanged returns the event that says that the lease moved. Each connection may be
// nil.
func (tx *tx) controlChanged(from, to *connection, why contracts.LeaseReason) *contracts.ControlChanged {
	ev := &contracts.ControlChanged{Reason: why, Timestamp: timestamp(tx.now)}
	if from != nil {
		ev.From = from.author()
	}
	if to != nil {
		ev.To = to.author()
	}
	return ev
}

// correctController publishes control_changed if the lease is not where the events of an
// earlier process say. A holder such as the local client cannot return.
func (tx *tx) correctController() {
	holder, shown := tx.clients.holder(), tx.log.events.People().Controller
	ev := &contracts.ControlChanged{From: shown, Reason: contracts.LeaseExpired, Timestamp: timestamp(tx.now)}
	if holder != nil {
		ev.To, ev.Reason = holder.author(), contracts.LeaseGranted
	}
	if (shown == nil) != (holder == nil) || shown != nil && shown.ConnectionID != holder.id {
		tx.publish(ev)
	}
}

// timestamp returns a time as the wire has it.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
