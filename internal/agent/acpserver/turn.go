package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// cancelPatience is how long a cancelled prompt waits for the server to stop
// the run. After it, the editor is told that the run may go on.
const cancelPatience = 10 * time.Second

// sameBytes is how much of a prompt is compared with the prompts in events,
// where long prompts are cut.
const sameBytes = 1 << 10

// A turn is an open prompt of the editor. attachment.mu guards its fields,
// except the channels and the static ones.
type turn struct {
	request json.RawMessage // id of the request; static
	text    string          // static
	settled chan struct{}   // closed when the server has accepted or refused the prompt
	over    chan struct{}   // closed when the prompt has been answered

	accepted  *uint64               // cursor of the acceptance; nil before
	echoed    bool                  // its run has begun
	ended     bool                  // its run has ended
	failed    *contracts.ErrorEvent // the error of the run, if any
	cancelled bool                  // the editor has cancelled it
}

// begin makes a prompt the editor's open one.
func (a *attachment) begin(request json.RawMessage, text string) (*turn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ctx.Err() != nil:
		return nil, context.Cause(a.ctx)
	case a.turn != nil:
		return nil, failure("a prompt is being worked on: wait for it or cancel it")
	}
	if a.away {
		a.notice(textAway)
	}
	a.turn = &turn{request: request, text: text, settled: make(chan struct{}), over: make(chan struct{})}
	return a.turn, nil
}

// maxSent bounds a command, in bytes of JSON: the server closes the connection
// for more. The rest of its limit is for the envelope.
const maxSent = contracts.MaxSocketBytes - 1<<10

// tell sends a command to the server, unless it is too long.
func (a *attachment) tell(cmd contracts.Command) (contracts.Result, error) {
	text, err := contracts.EncodeCommand(cmd)
	if err == nil && len(text) > maxSent {
		err = &contracts.Error{Code: contracts.CodePayloadTooLarge, Message: fmt.Sprintf("this has %d bytes, and a server takes %d at most: save it in the workspace and link to the file", len(text), maxSent)}
	}
	if err != nil {
		return contracts.Result{}, err
	}
	return a.client.Send(a.ctx, cmd)
}

// sent handles the server's answer to the prompt of a turn.
func (a *attachment) sent(t *turn, result contracts.Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turn != t { // the session has ended meanwhile, or the turn was cancelled and did not wait
		return
	}
	close(t.settled)
	switch {
	case err == nil:
		t.accepted = &result.Cursor
		a.settle(t)
	case t.cancelled:
		a.finish(acp.StopReasonCancelled, nil)
	default:
		a.finish("", err)
	}
}

// settle answers a turn that was accepted and whose run has ended. The caller
// holds a.mu.
func (a *attachment) settle(t *turn) {
	if t.accepted == nil || !t.ended {
		return
	}
	switch failed := t.failed; {
	case t.cancelled, failed != nil && failed.ErrorType == contracts.ErrorCancelled:
		a.finish(acp.StopReasonCancelled, nil)
	case failed != nil:
		a.finish("", errors.New(failed.Message))
	default:
		a.finish(acp.StopReasonEndTurn, nil)
	}
}

// finish answers the open turn. The caller holds a.mu, so that later updates are
// sent after the answer.
func (a *attachment) finish(why acp.StopReason, err error) {
	t := a.turn
	a.turn = nil
	close(t.over)
	if err != nil {
		a.peer.refuse(t.request, refusal(a.explain(err)))
		return
	}
	a.peer.answer(t.request, acp.PromptResponse{StopReason: why})
}

// echo reports whether a prompt in the session is the editor's own, which the
// editor shows by itself.
func (a *attachment) echo(text string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.turn
	if t == nil || t.echoed || abridge.Head(t.text, sameBytes) != abridge.Head(text, sameBytes) {
		return false
	}
	t.echoed = true
	return true
}

// runEnded handles the end of a run at cursor, and reports whether it is the
// run of the open turn.
func (a *attachment) runEnded(cursor uint64, failed *contracts.ErrorEvent) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.turn
	if t == nil || t.ended || !t.echoed && (t.accepted == nil || cursor <= *t.accepted) {
		return false
	}
	t.ended, t.failed = true, failed
	a.settle(t)
	return true
}

// lost ends the turn if the end of its run was missed: the state at cursor is
// idle. Before the acceptance is known, the run may have yet to begin.
func (a *attachment) lost(cursor uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.turn; t != nil && t.accepted != nil && (t.echoed || cursor > *t.accepted) {
		t.ended = true
		a.settle(t)
	}
}

// cancelTurn stops the open turn and returns it, nil if there is none.
func (a *attachment) cancelTurn() *turn {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.turn
	if t != nil && !t.cancelled {
		t.cancelled = true
		a.peer.serving.Go(func() { a.interrupt(t) }) // ends with cancelPatience
	}
	return t
}

// interrupt stops the run of a turn. The turn ends even if that fails, because
// the editor must not wait.
func (a *attachment) interrupt(t *turn) {
	defer a.peer.contain()
	ctx, cancel := context.WithTimeout(a.ctx, cancelPatience)
	defer cancel()
	select {
	case <-t.settled: // otherwise the interrupt could overtake the prompt
	case <-t.over:
		return
	case <-ctx.Done():
	}
	_, err := a.client.Interrupt(ctx)
	if err == nil {
		select {
		case <-t.over:
			return
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turn != t {
		return
	}
	switch {
	case err == nil, a.ctx.Err() != nil:
	case ctx.Err() != nil:
		a.notice("The run may go on: the server did not answer in time.")
	default:
		a.notice("The run goes on: " + a.explain(err).Error())
	}
	a.finish(acp.StopReasonCancelled, nil)
}

// explain adds to a refusal which client is in control, and to a lost answer what
// to do.
func (a *attachment) explain(err error) error {
	e, ok := errors.AsType[*contracts.Error](err)
	switch {
	case !ok && errors.Is(err, client.ErrAnswerLost):
		return failure("the connection was lost before the server answered: look whether the prompt was taken before you send it again")
	case !ok:
		return err
	case e.Code == contracts.CodeControllerLeaseHeld:
		state := a.client.State()
		return &contracts.Error{Code: e.Code, Message: fmt.Sprintf("%s is in control of this session: send /%s to take over", nameOf(&state, holderOf(&state)), commandTake)}
	}
	return err
}

// holderOf returns the id of the connection in control, or "".
func holderOf(st *contracts.State) string { return st.ControllerConnectionID.Get() }

// nameOf returns a name for a connection.
func nameOf(st *contracts.State, id string) string {
	for _, c := range st.Connections {
		if c.ConnectionID == id && c.ClientInfo != nil && strings.TrimSpace(c.ClientInfo.Name) != "" {
			return abridge.Head(c.ClientInfo.Name, maxName) + " (" + id + ")"
		}
	}
	if id == "" {
		return "another client"
	}
	return id
}

// Commands for the session and not for its agent.
const (
	commandTake    = "take"
	commandRelease = "release"
)

var commands = []acp.AvailableCommand{
	{Name: commandTake, Description: "Take control of the session, even from somebody else"},
	{Name: commandRelease, Description: "Give control of the session up"},
}

// command executes a session command and answers its prompt.
func (a *attachment) command(request json.RawMessage, name string) {
	do, done := a.client.TakeControl, "You are in control of the session."
	if name == commandRelease {
		do, done = a.client.ReleaseControl, "Control of the session is free."
	}
	if _, err := do(a.ctx); err != nil {
		a.peer.refuse(request, refusal(a.explain(err)))
		return
	}
	a.chunk(done, false)
	a.peer.answer(request, acp.PromptResponse{StopReason: acp.StopReasonEndTurn})
}

// imageExtensions are those of images that servers can load.
var imageExtensions = []string{".jpeg", ".jpg", ".png", ".webp", ".gif"}

// promptOf converts the editor's prompt. Embedded texts become fenced blocks
// with the name of their file. A link to an image becomes an attachment, and
// any other link becomes its name.
func promptOf(blocks []acp.ContentBlock) (*contracts.Prompt, error) {
	cmd := &contracts.Prompt{}
	var parts []string
	for _, b := range blocks {
		switch {
		case b.Text != nil:
			parts = append(parts, b.Text.Text)
		case b.ResourceLink != nil:
			name, place, local := nameOfURI(b.ResourceLink.Uri)
			if local && slices.Contains(imageExtensions, strings.ToLower(path.Ext(name))) {
				cmd.Attachments = append(cmd.Attachments, name)
			}
			parts = append(parts, "@"+name+place)
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			name, place, _ := nameOfURI(r.Uri)
			parts = append(parts, "\n\n"+name+place+":\n"+fenced("", r.Text)+"\n")
		case b.Image != nil:
			return nil, errors.New("images cannot be sent from here: save it in the workspace and link to the file")
		default:
			return nil, errors.New("a prompt can have text, links to files, and texts of files")
		}
	}
	cmd.Content = strings.Join(parts, "")
	if strings.TrimSpace(cmd.Content) == "" {
		return nil, errors.New("the prompt is empty")
	}
	if len(cmd.Attachments) > contracts.MaxAttachments {
		return nil, errors.New("the prompt links to too many images")
	}
	return cmd, nil
}

// nameOfURI returns the path of a file URI and the position in it, such as
// #L3-5. Other URIs are returned unchanged.
func nameOfURI(uri string) (name, place string, local bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return uri, "", false
	}
	if u.Fragment != "" {
		place = "#" + u.Fragment
	}
	return u.Path, place, true
}
