package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/session"
)

// outputPeriod is the minimum time between two updates of a tool's output. ACP
// has no way to append output, so each update sends all of the stored output.
const outputPeriod = 100 * time.Millisecond

// An attachment is the editor's connection to one session.
type attachment struct {
	// Static.
	peer    *peer
	id      acp.SessionId
	client  *client.Client
	request json.RawMessage // id of the request that attached
	answer  sessionAnswer   // to that request
	unused  []struct{}      // MCP servers that the editor offers for the agent
	ctx     context.Context
	stop    context.CancelCauseFunc
	cursor  atomic.Uint64 // of the latest update of the session
	over    chan struct{} // closed when follow has ended
	asking  sync.WaitGroup

	// Owned by the goroutine of follow, after newAttachment.
	greeted bool                  // the request that attached was answered
	present bool                  // the history before the connection has been sent
	gap     bool                  // updates were missed before the next state
	fold    *session.State        // the state as of the last update
	calls   map[string]*call      // calls that have not ended; at most session.MaxTools
	dirty   time.Time             // when unsent output first arrived; zero if there is none
	running bool                  // between the start and the end of a run
	failed  *contracts.ErrorEvent // an error of the run, unless the run went on after it
	holder  string                // connection in control, as last sent to the editor

	mu    sync.Mutex                    // guards the following
	away  bool                          // there is no connection
	turn  *turn                         // the editor's open prompt; nil without one
	asked map[string]context.CancelFunc // functions that withdraw the editor's open questions, by id
}

func newAttachment(p *peer, c *client.Client, id acp.SessionId) *attachment {
	a := &attachment{
		peer: p, id: id, client: c, over: make(chan struct{}),
		fold: session.New(), calls: map[string]*call{}, asked: map[string]context.CancelFunc{},
	}
	a.ctx, a.stop = context.WithCancelCause(p.ctx)
	return a
}

var errDetached = errors.New("detached from the session")

// end detaches and waits for the end of follow.
func (a *attachment) end() {
	a.stop(errDetached)
	<-a.over
}

// follow sends the session's updates to the editor until the session or a.ctx
// ends.
func (a *attachment) follow() {
	defer close(a.over)
	defer a.asking.Wait()
	defer a.client.Close(false) // ends the calls that wait for an answer
	defer a.peer.drop(a)
	defer a.peer.contain()
	for {
		u, err := a.next()
		switch {
		case errors.Is(err, errFlush):
			a.flush()
		case err != nil:
			a.ended(err)
			return
		default:
			a.take(u)
		}
	}
}

var errFlush = errors.New("output waits to be shown")

// next returns the next update, or errFlush when output has waited for
// outputPeriod.
func (a *attachment) next() (client.Update, error) {
	if a.dirty.IsZero() {
		return a.client.Next(a.ctx)
	}
	left := time.Until(a.dirty.Add(outputPeriod))
	if left <= 0 {
		return client.Update{}, errFlush
	}
	ctx, cancel := context.WithTimeoutCause(a.ctx, left, errFlush)
	defer cancel()
	return a.client.Next(ctx)
}

// ended tells the editor that the session has ended.
func (a *attachment) ended(err error) {
	if e, ok := errors.AsType[*client.CloseError](err); ok && e.Code == 1000 {
		err = errors.New("the session has ended")
	}
	wanted := a.ctx.Err() != nil
	a.stop(err)
	switch {
	case !a.greeted:
		a.greeted = true
		a.peer.refuse(a.request, refusal(explain(err, string(a.id))))
	case !wanted:
		a.notice("Detached from this session: " + err.Error())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turn != nil { // no more updates will come
		a.finish("", err)
	}
}

// greet answers the request that attached.
func (a *attachment) greet() {
	if a.greeted {
		return
	}
	a.greeted = true
	a.answer.Meta = a.meta()
	a.peer.answer(a.request, a.answer)
	if len(a.unused) > 0 {
		a.notice(textUnused)
	}
	if !a.peer.View && !a.peer.Approve {
		a.update(acp.SessionAvailableCommandsUpdate{
			SessionUpdate: "available_commands_update", AvailableCommands: commands,
		})
	}
}

func (a *attachment) take(u client.Update) {
	if u.Cursor > 0 {
		a.cursor.Store(u.Cursor)
	}
	switch u.Kind {
	case client.KindEvent:
		a.show(u)
		a.fold.Apply(u.Event)
	case client.KindSnapshot, client.KindReset:
		a.restore(u)
	case client.KindConnected:
		a.gap = u.Attached.Resume != "replay"
		a.present = false // until hello_ok the state is an old one, and its holder may be this client
		a.connected(true)
	case client.KindDisconnected:
		a.connected(false)
	case client.KindControl:
		if ask, ok := u.Control.(*contracts.ControlRequest); ok {
			name := ask.ConnectionID
			if ask.ClientInfo != nil {
				name = abridge.Head(ask.ClientInfo.Name, maxName)
			}
			a.notice(fmt.Sprintf("%s asks for control: send /%s to give it up.", name, commandRelease))
		}
	}
	if _, caughtUp := u.Event.(*contracts.HelloOK); caughtUp {
		a.flush()
		a.present = true
		a.greet()
	}
	if a.present && mattersToQuestions(u) {
		a.reconcile()
	}
}

// connected records whether the server is reachable. If the editor waits for a
// prompt, it is told when the server is not.
func (a *attachment) connected(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !is && !a.away && a.turn != nil {
		a.notice(textAway)
	}
	a.away = !is
}

const textUnused = "The editor's MCP servers are not used: the agent has those that its server was given with --mcp-config."

const textAway = "The server cannot be reached just now. This goes on as soon as it can."

// update sends a session update to the editor. If the write fails, the editor
// has gone and the attachment stops.
func (a *attachment) update(what any) {
	err := a.peer.conn.Notify(acp.ClientMethodSessionUpdate, struct {
		SessionID acp.SessionId `json:"sessionId"`
		Update    any           `json:"update"`
		Meta      meta          `json:"_meta"`
	}{a.id, what, a.meta()})
	if err != nil {
		a.stop(err)
	}
}

// A meta tells the editor the attachment's position in the session and whether it is in
// control. ACP leaves the content of _meta to agents.
type meta struct {
	Maestro struct {
		Epoch     string `json:"epoch"`
		Cursor    uint64 `json:"cursor"` // of the latest event that was read
		InControl bool   `json:"inControl"`
	} `json:"maestro"`
}

func (a *attachment) meta() (m meta) {
	at := a.client.Attached()
	m.Maestro.Epoch, m.Maestro.Cursor, m.Maestro.InControl = at.Epoch, a.cursor.Load(), at.ControllerLeaseGranted
	return m
}
