package acpserver

import (
	"context"
	"errors"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/session"
)

// outputPeriod is how often the output of tools is shown. ACP has no way to add
// to it: each time all that is kept of it is sent.
const outputPeriod = 100 * time.Millisecond

// An attachment is the editor in one session.
type attachment struct {
	// Static.
	peer    *peer
	id      acp.SessionId
	client  *client.Client
	welcome func()      // answers the request that attached
	refused func(error) // the same, if it came to nothing
	unused  []struct{}  // MCP servers that the editor has for the agent
	ctx     context.Context
	stop    context.CancelCauseFunc
	over    chan struct{} // closed when follow has ended
	asking  sync.WaitGroup

	// Owned by the goroutine in follow, after newAttachment.
	greeted bool                  // welcome was called
	present bool                  // what was before the connection has been told
	gap     bool                  // the next state comes after something that we have not seen
	fold    *session.State        // as of the last update
	calls   map[string]*call      // that have not ended; at most session.MaxTools
	dirty   time.Time             // since when there is output that was not shown; zero if there is none
	running bool                  // between the beginning and the end of a run
	failed  *contracts.ErrorEvent // the last thing that the run said, unless something came after it
	holder  string                // who is in control, as the editor was told

	mu    sync.Mutex                    // guards the following
	away  bool                          // there is no connection
	turn  *turn                         // what the editor waits for; nil if it does not
	asked map[string]context.CancelFunc // withdraw the questions that were put to the editor, until they are resolved
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

// end detaches, and waits until that is done.
func (a *attachment) end() {
	a.stop(errDetached)
	<-a.over
}

// follow passes on what the session shows until it ends, or a.ctx does.
func (a *attachment) follow() {
	defer close(a.over)
	defer a.asking.Wait()
	defer a.client.Close(false) // with the client, what waits for its answers ends
	defer a.peer.drop(a)
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

// next returns the next update, or errFlush once output has waited long enough.
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

// ended tells whoever waits that the session will say no more.
func (a *attachment) ended(err error) {
	if e, ok := errors.AsType[*client.CloseError](err); ok && e.Code == 1000 {
		err = errors.New("the session has ended")
	}
	wanted := a.ctx.Err() != nil
	a.stop(err)
	switch {
	case !a.greeted:
		a.greeted = true
		a.refused(err)
	case !wanted:
		a.notice("Detached from this session: " + err.Error())
	}
	a.fail(err)
}

// greet answers the request that attached.
func (a *attachment) greet() {
	if a.greeted {
		return
	}
	a.greeted = true
	a.welcome()
	if len(a.unused) > 0 {
		a.notice(textUnused)
	}
	if !a.peer.View {
		a.update(acp.SessionAvailableCommandsUpdate{
			SessionUpdate: "available_commands_update", AvailableCommands: commands(),
		})
	}
}

// take passes on one update.
func (a *attachment) take(u client.Update) {
	switch u.Kind {
	case client.KindEvent:
		a.show(u)
		a.fold.Apply(u.Event)
	case client.KindSnapshot, client.KindReset:
		a.restore(u)
	case client.KindConnected:
		a.gap = u.Attached.Resume != "replay"
		a.present = false // until then the state is an old one, and its holder perhaps ourselves
		a.connected(true)
	case client.KindDisconnected:
		a.connected(false)
	case client.KindControl:
		a.control(u.Control)
	}
	if _, caughtUp := u.Event.(*contracts.HelloOK); caughtUp {
		a.flush()
		a.present = true
		a.greet()
	}
	if a.present && mattersToQuestions(u) {
		a.tellHolder()
		a.reconcile()
	}
}

// connected keeps whether the server can be reached, and says so if the editor
// waits for it.
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

// update tells the editor what happened in the session. A write that fails is
// found by the reader: the editor is gone.
func (a *attachment) update(what any) {
	err := a.peer.notify(acp.ClientMethodSessionUpdate, struct {
		SessionID acp.SessionId `json:"sessionId"`
		Update    any           `json:"update"`
	}{a.id, what})
	if err != nil {
		a.stop(err)
	}
}
