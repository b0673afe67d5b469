package hub

import (
	"context"

	"github.com/seed-028515a8/maestro/contracts"
)

// Stream writes the session's events to conn until conn fails, ctx ends or the hub
// closes conn. The client cannot send on conn. An error before anything was written
// is a refusal; conn is then still open.
//
// A stream that names a subscription continues it and ends an older stream of the
// same subscription (A61). Any other stream gets a viewer connection of its own,
// which ends with it and never gets the lease (A36).
func (h *Hub) Stream(ctx context.Context, conn Conn, req contracts.StreamRequest, by contracts.Caller) (err error) {
	defer h.contain(conn, &err)
	unhook := context.AfterFunc(ctx, func() { conn.Close(errGoingAway) })
	defer unhook()
	b, err := h.enterStream(conn, &req, &by)
	if err != nil {
		return err
	}
	defer func() { h.detach(b, true) }()
	r := &reader{hub: h, conn: b.sub.conn, box: b, resumable: true}
	return r.read(func([]byte) {}) // a stream sends no frames
}

// enterStream attaches in a temporary goroutine, for the same reason as
// [reader.enter].
func (h *Hub) enterStream(conn Conn, req *contracts.StreamRequest, by *contracts.Caller) (b *mailbox, err error) {
	done := make(chan struct{}) // closed when the stream is attached
	go func() {                 // ends at once
		defer close(done)
		defer h.contain(conn, &err)
		b, err = h.attachStream(conn, *req, *by)
	}()
	<-done
	return b, err
}

// attachStream attaches conn to its subscription.
func (h *Hub) attachStream(conn Conn, req contracts.StreamRequest, by contracts.Caller) (b *mailbox, err error) {
	err = h.request(opRequest, func(tx *tx) error {
		sub, err := tx.streamSubscription(req, by)
		if err != nil {
			return err
		}
		how, why, from := tx.startingPoint(contracts.Attach{Cursor: req.Cursor, Epoch: req.Epoch})
		if req.Cursor == nil && req.SubscriptionID != "" && !sub.needsSnapshot() {
			how, from = resumeReplay, sub.from
			if sub.box != nil { // continue at the position of the older stream
				from = sub.box.cursor.Load()
			}
			if from+1 < tx.journal.First() {
				how, why = resumeReset, contracts.ResetGap
			}
		}
		b = tx.attachBox(sub, conn, transportSSE, from)
		if opening := b.form.AppendOpening(nil); len(opening) > 0 {
			tx.push(b, parcel{frame: opening}) // before everything else
		}
		tx.deliverHeld(sub, max(from, tx.queueStartingState(b, how, why)))
		sub.conn.extendCredential(by.Principal)
		tx.noteActivity(sub.conn)
		if sub.conn.madeByStream() {
			tx.showChangeSoon(sub.conn.id)
		} else {
			tx.showChange(sub.conn.id)
		}
		tx.roster.add(b)
		tx.wake(b)
		return nil
	})
	return b, err
}

// streamSubscription returns the subscription that the stream names, or makes one.
func (tx *tx) streamSubscription(req contracts.StreamRequest, by contracts.Caller) (*subscription, error) {
	if err := tx.checkStream(req, by); err != nil {
		return nil, err
	}
	if req.SubscriptionID != "" {
		return tx.clients.subs[req.SubscriptionID], nil
	}
	tx.makeRoom(contracts.RoleViewer)
	c := tx.newConnection(by.Principal, newToken(), contracts.RoleViewer)
	c.greeted = true
	c.terms.Role, c.terms.OptOuts = contracts.RoleViewer, req.OptOuts
	sub := tx.newSubscription(c)
	sub.implicit = true
	return sub, nil
}

// MayStream returns the refusal that [Hub.Stream] would return now. It changes
// nothing.
func (h *Hub) MayStream(req contracts.StreamRequest, by contracts.Caller) error {
	return h.request(opRequest, func(tx *tx) error { return tx.checkStream(req, by) })
}

func (tx *tx) checkStream(req contracts.StreamRequest, by contracts.Caller) error {
	switch {
	case !tx.credentialValid(by.Principal):
		return errExpired
	case req.SubscriptionID == "":
		return tx.checkRoom(false)
	}
	_, err := tx.ownedSubscription(req.SubscriptionID, by)
	return err
}
