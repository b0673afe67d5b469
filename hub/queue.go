package hub

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// A queueOrder is the queue after a prompt was moved or cancelled, or after the queue
// was held or resumed.
type queueOrder struct {
	IDs  []string `json:"ids"`
	Held bool     `json:"held,omitempty"`
}

// mayWait reports whether a prompt goes to the queue. It does so also if it can start at
// once, because one entry of the journal then holds the prompt and the id of its command:
// a client that repeats the command after a crash neither loses nor doubles the prompt.
func mayWait(cmd *contracts.Prompt) bool {
	return cmd.When == contracts.PromptNext || cmd.When == contracts.PromptSteer
}

// newPrompt returns the prompt of a command with a new id.
func (tx *tx) newPrompt(c *connection, cmd *contracts.Prompt) *contracts.KeptPrompt {
	return &contracts.KeptPrompt{
		PromptID: newID("prompt_"), Content: cmd.Content, Attachments: cmd.Attachments,
		Author: *c.author(), Timestamp: timestamp(tx.now), When: contracts.PromptNext,
	}
}

// enqueue adds a prompt to the end of the queue. A prompt that is to steer becomes an
// ordinary one if the agent does not take any.
func (tx *tx) enqueue(c *connection, cmd *contracts.Prompt, n note) error {
	n.Queued = tx.newPrompt(c, cmd)
	if cmd.When == contracts.PromptSteer && tx.mayTakeSteering() {
		n.Queued.When = contracts.PromptSteer
	}
	if len(tx.work.queue.Prompts) == contracts.MaxQueued {
		return errQueueFull
	}
	if err := tx.work.checkRoom(n.Queued); err != nil {
		return err
	}
	tx.claim(c)
	tx.noteQueue(n)
	tx.startQueued()
	return nil
}

var errQueueFull = &contracts.Error{
	Code: contracts.CodeRateLimited, Type: contracts.ErrorProtocol,
	Message: fmt.Sprintf("The queue is full: it holds at most %d prompts and %d bytes",
		contracts.MaxQueued, contracts.MaxQueuedBytes),
}

func steers(p contracts.KeptPrompt) bool { return p.When == contracts.PromptSteer }

// checkRoom refuses a new or edited prompt if the queue would have too many bytes.
func (w *work) checkRoom(p *contracts.KeptPrompt) error {
	size := promptBytes(p)
	if size > contracts.MaxQueuedBytes {
		return &contracts.Error{
			Code: contracts.CodePayloadTooLarge, Type: contracts.ErrorProtocol,
			Message: fmt.Sprintf("A prompt in the queue may have at most %d bytes", contracts.MaxQueuedBytes),
		}
	}
	for _, other := range w.queue.Prompts {
		if other.PromptID != p.PromptID {
			size += promptBytes(&other)
		}
	}
	if size > contracts.MaxQueuedBytes {
		return errQueueFull
	}
	return nil
}

func promptBytes(p *contracts.KeptPrompt) int {
	size := len(p.Content)
	for _, path := range p.Attachments {
		size += len(path)
	}
	return size
}

// changeQueue executes a command about the queue.
func (tx *tx) changeQueue(c *connection, cmd contracts.Command, n note) error {
	prompts, held := slices.Clone(tx.work.queue.Prompts), tx.work.queue.Held
	switch cmd := cmd.(type) {
	case *contracts.QueueEdit:
		i, err := findPrompt(prompts, cmd.PromptID)
		if err != nil {
			return err
		}
		edited := prompts[i]
		edited.Content, edited.Author, edited.Timestamp = cmd.Content, *c.author(), timestamp(tx.now)
		if err := tx.work.checkRoom(&edited); err != nil {
			return err
		}
		n.Queued = &edited
	case *contracts.QueueMove:
		i, err := findPrompt(prompts, cmd.PromptID)
		if err != nil {
			return err
		}
		moved := prompts[i]
		to := len(prompts)
		if cmd.Before != nil {
			if to, err = findPrompt(prompts, *cmd.Before); err != nil {
				return err
			}
		}
		prompts = slices.Insert(prompts, to, moved)
		if to <= i {
			i++
		}
		prompts = slices.Delete(prompts, i, i+1)
	case *contracts.QueueCancel:
		i, err := findPrompt(prompts, cmd.PromptID)
		if err != nil {
			return err
		}
		prompts = slices.Delete(prompts, i, i+1)
	case *contracts.QueueResume:
		held = false
	}
	if n.Queued == nil {
		n.Order = orderOf(prompts, held)
	}
	tx.claim(c)
	tx.noteQueue(n)
	tx.startQueued()
	return nil
}

func findPrompt(prompts []contracts.KeptPrompt, id string) (int, error) {
	i := slices.IndexFunc(prompts, func(p contracts.KeptPrompt) bool { return p.PromptID == id })
	if i < 0 {
		return 0, &contracts.Error{
			Code: contracts.CodeRequestNotFound, Type: contracts.ErrorProtocol,
			Message: "The queue has no prompt " + abridge.Head(id, contracts.MaxIDBytes),
		}
	}
	return i, nil
}

func orderOf(prompts []contracts.KeptPrompt, held bool) *queueOrder {
	order := &queueOrder{IDs: []string{}, Held: held && len(prompts) > 0}
	for _, p := range prompts {
		order.IDs = append(order.IDs, p.PromptID)
	}
	return order
}

// holdQueue keeps the prompts of the queue from starting until queue_resume.
func (tx *tx) holdQueue() {
	if q := &tx.work.queue; len(q.Prompts) > 0 && !q.Held {
		tx.noteQueue(note{Order: orderOf(q.Prompts, true)})
	}
}

// noteQueue writes a change of the queue to the journal, makes it and publishes it.
func (tx *tx) noteQueue(n note) {
	tx.work.applyQueue(n)
	tx.noteWith(n, tx.work.shownQueue())
}

// applyQueue makes the change of the queue that a note holds, if any.
func (w *work) applyQueue(n note) {
	q := &w.queue
	if n.Queued != nil {
		if i, err := findPrompt(q.Prompts, n.Queued.PromptID); err == nil {
			q.Prompts = slices.Clone(q.Prompts)
			q.Prompts[i] = *n.Queued
		} else {
			q.Prompts = append(slices.Clone(q.Prompts), *n.Queued)
		}
	}
	if n.Order != nil {
		var prompts []contracts.KeptPrompt
		for _, id := range n.Order.IDs {
			if i, err := findPrompt(q.Prompts, id); err == nil {
				prompts = append(prompts, q.Prompts[i])
			}
		}
		q.Prompts, q.Held = prompts, n.Order.Held
	}
	if n.RunEnded && slices.ContainsFunc(q.Prompts, steers) {
		q.Prompts = slices.Clone(q.Prompts)
		for i := range q.Prompts {
			q.Prompts[i].When = contracts.PromptNext
		}
	}
}

// takePrompt removes a prompt from the queue, because an agent gets it. It reports
// whether the prompt was in the queue. On disk, prompt_accepted is what removes it: an
// accepted prompt is therefore never in the queue, and no other is missing.
func (w *work) takePrompt(id string) bool {
	q := &w.queue
	i, err := findPrompt(q.Prompts, id)
	if err != nil {
		return false
	}
	q.Prompts = slices.Delete(slices.Clone(q.Prompts), i, i+1)
	q.Held = q.Held && len(q.Prompts) > 0
	return true
}

// correctQueue publishes the queue if the events of an earlier process say otherwise: it
// may have ended between the note and the event of a change.
func (tx *tx) correctQueue() {
	known, now := tx.log.events.People(), tx.work.shownQueue()
	if known.QueueHeld != now.Held || !slices.EqualFunc(known.Queue, now.Prompts, equalQueued) {
		tx.publish(now)
	}
}

func equalQueued(a, b contracts.QueuedPrompt) bool {
	return a.PromptID == b.PromptID && a.Timestamp == b.Timestamp && a.When == b.When
}

// shownQueue returns the queue as clients see it.
func (w *work) shownQueue() *contracts.QueueChanged {
	ev := &contracts.QueueChanged{Held: w.queue.Held}
	for _, p := range w.queue.Prompts {
		shown := contracts.QueuedPrompt{
			PromptID: p.PromptID, Content: abridge.Head(p.Content, contracts.MaxPromptRecord),
			Attachments: fileNames(p.Attachments), Author: p.Author, Timestamp: p.Timestamp, When: p.When,
		}
		shown.Truncated = len(shown.Content) < len(p.Content)
		ev.Prompts = append(ev.Prompts, shown)
	}
	return ev
}

// startQueued begins a run with the first prompt of the queue, unless the queue is held
// or the session has other work to do before.
func (tx *tx) startQueued() {
	q := tx.work.queue
	if len(q.Prompts) == 0 || q.Held || tx.work.run != nil || tx.life.phase != phaseOpen || tx.awaitsAnswer() {
		return
	}
	next := q.Prompts[0]
	tx.opts.Observer.Accepted(&contracts.Prompt{Content: next.Content}, "", tx.now)
	tx.startPrompt(&next, encodePrompt(next.Content), note{})
}

// awaitsAnswer reports whether the agent goes on with a run of an earlier process when
// an open question is answered.
func (tx *tx) awaitsAnswer() bool {
	if _, resumes := tx.opts.Agent.(Resumer); !resumes || tx.info.Forgets {
		return false
	}
	return slices.ContainsFunc(tx.work.table.Pending(), func(row contracts.KeptRequest) bool {
		return tx.work.waiters[row.Request.RequestID] == nil
	})
}

// mayTakeSteering reports whether the active run can still take prompts.
func (tx *tx) mayTakeSteering() bool {
	return tx.info.Steers && tx.work.run != nil && tx.work.run.stop == nil
}

// Steering implements [contracts.Host].
func (a *host) Steering(context.Context) (taken []contracts.Work) {
	h := (*Hub)(a)
	var steering []contracts.KeptPrompt
	h.update(func(tx *tx) {
		if !tx.mayTakeSteering() || tx.life.phase != phaseOpen {
			return
		}
		for _, p := range tx.work.queue.Prompts {
			if steers(p) {
				steering = append(steering, p)
			}
		}
		for i := range steering {
			tx.publish(tx.acceptedPrompt(&steering[i]))
			tx.leaveQueue(&steering[i])
			tx.publishEncoded(encodePrompt(steering[i].Content))
		}
	})
	if h.Err() != nil { // the next process has the prompts
		return nil
	}
	for i := range steering {
		taken = append(taken, h.workOf(&steering[i]))
	}
	return taken
}
