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

// showPrompt publishes who sent a prompt that the agent is about to get.
func (tx *tx) showPrompt(p *contracts.KeptPrompt) {
	ev := &contracts.PromptAccepted{
		PromptID: p.PromptID, Content: abridge.Head(p.Content, contracts.MaxPromptBytes),
		Attachments: fileNames(p.Attachments), Author: p.Author, Timestamp: timestamp(tx.now),
	}
	ev.Truncated = len(ev.Content) < len(p.Content)
	tx.publish(ev)
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

// showAnswer publishes who answered a request, after its resolution.
func (tx *tx) showAnswer(by *contracts.Author, ev *contracts.ServerRequestResolved) {
	tx.publish(&contracts.RequestAnswered{
		RequestID: ev.RequestID, CallID: ev.CallID, Resolution: ev.Resolution, Author: *by, Timestamp: timestamp(tx.now),
	})
}

// showControl publishes that the lease moved. Each connection may be nil.
func (tx *tx) showControl(from, to *connection, why contracts.LeaseReason) {
	ev := &contracts.ControlChanged{Reason: why, Timestamp: timestamp(tx.now)}
	if from != nil {
		ev.From = from.author()
	}
	if to != nil {
		ev.To = to.author()
	}
	tx.publish(ev)
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
