package acp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// A run is one prompt that the program works on. Its first fields are guarded by
// peer.mu.
type run struct {
	turn     *turn.Turn
	heard    bool // the program has answered: what it says now is not about the run
	over     bool
	answered bool             // a response has ended
	finished bool             // a call has ended since
	calls    map[string]*call // by the program's id; those that ended, too
	plan     string           // as last said
	filled   string           // how full the context is, as last told
	cost     float64          // in US dollars, of what no response has told yet
	stopping bool             // it is being interrupted
	tail     string           // the end of what was said

	terminals map[string]*terminal // that the program has and has not released

	ctx  context.Context // bounds what is served for it
	stop context.CancelFunc
	work sync.WaitGroup // its questions, writes and terminals
}

// prompt serves one prompt.
func (p *peer) prompt(ctx context.Context, work contracts.Work) error {
	r := p.begin()
	defer p.finish(r)
	call, err := p.conn.Ask(acp.AgentMethodSessionPrompt, acp.PromptRequest{
		SessionId: acp.SessionId(p.session), Prompt: append(p.blocks(work), p.reminder()...),
	}, func() { p.hear(r) })
	if err != nil {
		if p.proc.Failure() != nil || errors.Is(err, rpc.ErrEnded) { // it is about to be buried
			<-p.over
			err = p.proc.Account()
		}
		return failure(ctx, err)
	}
	defer call.Forget()
	p.a.remember(p.session)
	select {
	case reply := <-call.Reply:
		return p.replied(ctx, r, reply)
	case <-ctx.Done():
		return p.interrupt(ctx, r, call)
	}
}

// begin opens a run. There is none.
func (p *peer) begin() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &run{turn: turn.New(p.a.host, p.model(), p.name), calls: map[string]*call{}, terminals: map[string]*terminal{}}
	r.ctx, r.stop = context.WithCancel(p.life)
	p.run = r
	clear(p.strayed)
	return r
}

// hear notes that the program has answered.
func (p *peer) hear(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.heard = true
}

// finish closes a run. When it returns, nothing more of it is published, and its
// terminals have ended.
func (p *peer) finish(r *run) {
	p.mu.Lock()
	p.leave(r)
	p.a.cutOff(r.tail, r.heard)
	r.over = true
	for _, c := range r.calls {
		c.close()
	}
	p.mu.Unlock()
	r.stop()
	r.work.Wait()
	p.mu.Lock()
	p.run = nil
	p.mu.Unlock()
}

// halt ends the terminals of a run that is being interrupted. They can still be
// asked about, and no more can be made.
func (p *peer) halt(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.stopping = true
	for _, t := range r.terminals {
		t.stop()
	}
}

// interrupt ends a run that ctx has ended: the program has a moment to do so
// before it is killed. What it leaves open is the hub's to close.
func (p *peer) interrupt(ctx context.Context, r *run, call *rpc.Call) error {
	p.halt(r)
	late := time.NewTimer(p.a.wait.interrupt)
	defer late.Stop()
	if p.conn.Notify(acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: acp.SessionId(p.session)}) == nil {
		select {
		case reply := <-call.Reply:
			if errors.Is(reply.Err, rpc.ErrEnded) {
				<-p.over
			} else {
				p.a.proved()
				p.relinquish(r)
			}
			return context.Cause(ctx)
		case <-late.C:
		}
	}
	p.proc.Kill(errors.New("agent process killed: it did not stop when interrupted"))
	<-p.over
	return context.Cause(ctx)
}

// errCancelled is the code of calls that were open when their run was interrupted.
const errCancelled = "cancelled"

// relinquish ends the calls that an interrupted program has left open. It is not
// known whether they have ended: Codex lets a command run on, which is said.
func (p *peer) relinquish(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := map[*call]bool{} // those whose terminals are ours, and have ended
	for _, t := range r.terminals {
		own[t.shown] = true
	}
	var left []string
	for _, c := range r.open() {
		if c.stage != started || c.questions > 0 { // the hub ends it with its question
			continue
		}
		if c.kind == string(acp.ToolKindExecute) && !own[c] {
			left = append(left, c.label())
		}
		p.end(r, c, &contracts.ToolEnd{CallID: c.id, ErrorCode: errCancelled})
	}
	if len(left) > 0 {
		p.status(abridge.Bytes("The agent has stopped and did not say that these commands have ended. They may still run: "+strings.Join(left, "; "), maxStatus))
	}
}

// replied ends a run that the program has answered.
func (p *peer) replied(ctx context.Context, r *run, reply rpc.Reply) error {
	if _, refused := errors.AsType[*rpc.Error](reply.Err); reply.Err != nil && !refused {
		if errors.Is(reply.Err, rpc.ErrEnded) {
			<-p.over
			return failure(ctx, p.proc.Account())
		}
		return failure(ctx, reply.Err) // an answer that was too long
	}
	p.a.proved()
	if reply.Err != nil {
		p.settle(r, contracts.Usage{})
		return failure(ctx, p.barred(reply.Err))
	}
	var result struct {
		Stop  string     `json:"stopReason"`
		Usage *acp.Usage `json:"usage"`
	}
	if err := decode(reply.Result, &result); err != nil {
		return failure(ctx, fmt.Errorf("the agent's answer cannot be read: %w", err))
	}
	p.settle(r, usage(result.Usage))
	return p.stopped(result.Stop)
}

// settle ends what a run that was answered has left open, and tells what it cost.
func (p *peer) settle(r *run, used contracts.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range r.open() {
		p.abandon(r, c)
	}
	spent := r.cost > 0 || used != contracts.Usage{}
	used.TotalCostUSD, used.ModelID = r.cost, p.model()
	if !r.turn.Open() && (spent || r.finished || !r.answered) { // what only a response can tell
		p.published(r.turn.Start(p.life))
	}
	if r.turn.Open() {
		p.published(r.turn.End(p.life, used))
	}
	if r.filled != "" {
		p.status(r.filled)
	}
}

// published notes that an event could not be shown, which happens when the hub
// has ended.
func (p *peer) published(err error) {
	if err != nil {
		p.log.Debug("publish agent event", "error", err)
	}
}

// stopped tells why the program stopped, unless it was done.
func (p *peer) stopped(reason string) error {
	text := ""
	switch acp.StopReason(reason) {
	case acp.StopReasonEndTurn:
		return nil
	case acp.StopReasonRefusal:
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTool, Message: "The agent refused to go on"}
	case acp.StopReasonCancelled:
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorCancelled, Message: "The agent cancelled the run itself"}
	case acp.StopReasonMaxTokens:
		text = "Stopped: the model's answer reached its limit of tokens"
	case acp.StopReasonMaxTurnRequests:
		text = "Stopped: the agent reached its limit of requests to the model in one run"
	default:
		text = "Stopped: " + abridge.Bytes(cmp.Or(reason, "the agent gives no reason"), 80)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status(text)
	return nil
}

// usage returns the counts of the program. Thinking is part of the output; some
// count it apart, which the total tells.
func usage(u *acp.Usage) (used contracts.Usage) {
	if u == nil {
		return used
	}
	count := func(n *int) int64 {
		if n == nil {
			return 0
		}
		return min(max(int64(*n), 0), maxCount)
	}
	used = contracts.Usage{
		InputTokens: count(&u.InputTokens), OutputTokens: count(&u.OutputTokens),
		CacheReadTokens: count(u.CachedReadTokens), CacheWriteTokens: count(u.CachedWriteTokens),
	}
	thought := count(u.ThoughtTokens)
	if sum := used.InputTokens + used.OutputTokens + used.CacheReadTokens + used.CacheWriteTokens; int64(u.TotalTokens) == sum+thought {
		used.OutputTokens += thought
	}
	return used
}

// blocks returns a prompt in the richest form that the program takes.
func (p *peer) blocks(work contracts.Work) []acp.ContentBlock {
	blocks := []acp.ContentBlock{acp.TextBlock(work.Content)}
	can := p.can.PromptCapabilities
	for _, a := range work.Attachments {
		uri := p.uri(a.Path)
		switch {
		case a.Data != nil && can.Image:
			block := acp.ImageBlock(base64.StdEncoding.EncodeToString(a.Data), a.MimeType)
			block.Image.Uri = &uri
			blocks = append(blocks, block)
		case a.Data == nil && can.EmbeddedContext:
			blocks = append(blocks, acp.ResourceBlock(acp.EmbeddedResourceResource{
				TextResourceContents: &acp.TextResourceContents{Uri: uri, MimeType: &a.MimeType, Text: a.Text},
			}))
		default:
			if a.Data != nil {
				p.a.noteOnce("The agent takes no images: it is told where they are")
				p.a.speak()
			}
			block := acp.ResourceLinkBlock(filepath.Base(a.Path), uri)
			block.ResourceLink.MimeType = &a.MimeType
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// maxTail bounds what a program is told of an answer that it died in, in bytes.
const maxTail = 2 << 10

// cutOff notes what clients have seen of an answer whose program died in it.
// Nothing is to be told any more once the program has answered.
func (a *Agent) cutOff(tail string, answered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case answered:
		a.broken = ""
	case tail != "":
		a.broken = tail
	}
}

// reminder tells a program that goes on with a conversation what clients have
// seen of the answer that it died in: it may not have written that down. It comes
// last, because programs look for their commands at the beginning.
func (p *peer) reminder() []acp.ContentBlock {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.a.broken == "" || !p.resumed {
		return nil
	}
	return []acp.ContentBlock{acp.TextBlock(
		"[Note by the client: your last answer was cut off because your process ended. The user has seen it, up to:\n" + p.a.broken + "]",
	)}
}

// uri names a file that a client named.
func (p *peer) uri(path string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(p.a.files.Abs(path))}).String()
}

// A chunk is a piece of what the program says or thinks.
type chunk struct {
	Content block `json:"content"`
}

// say shows a piece of text. p.mu is held.
func (p *peer) say(r *run, text string, thinking bool) {
	if text == "" {
		return
	}
	if !r.turn.Open() {
		p.published(r.turn.Start(p.life))
	}
	add := r.turn.Say
	if thinking {
		add = r.turn.Think
	} else {
		r.tail = contracts.TailText(r.tail+text, maxTail)
	}
	for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
		p.published(add(p.life, piece))
	}
}

// pause ends the open response, because something else comes. p.mu is held.
func (p *peer) pause(r *run) {
	if r.turn.Open() {
		p.published(r.turn.End(p.life, contracts.Usage{ModelID: p.model(), TotalCostUSD: r.cost}))
		r.answered, r.finished, r.cost = true, false, 0
	}
}

// active returns the run that the program works on, nil if there is none. p.mu is
// held.
func (p *peer) active() *run {
	if p.run == nil || p.run.heard || p.run.over {
		return nil
	}
	return p.run
}

// working returns the run that the program may change something in. Outside of
// one nobody would see it and nobody could stop it. p.mu is held.
func (p *peer) working(what string) (*run, error) {
	r := p.active()
	switch {
	case r == nil:
		p.stray(what)
		return nil, acp.NewInvalidRequest(map[string]any{"details": "it was refused to " + what + " outside of a run"})
	case r.stopping:
		return nil, acp.NewInvalidRequest(map[string]any{"details": "it was refused to " + what + ": the run was interrupted"})
	}
	return r, nil
}

// stray tells that the program wanted something outside of a run, once for each
// thing between two runs. p.mu is held.
func (p *peer) stray(what string) {
	if p.strayed[what] {
		return
	}
	p.strayed[what] = true
	if !p.greeted { // the hub may not have said yet that it is ready
		p.status("The agent wanted to " + what + " before its first run: it was refused")
		return
	}
	p.publish(&contracts.ErrorEvent{
		Message: "The agent wanted to " + what + " outside of a run: it was refused", ErrorType: contracts.ErrorProtocol,
	})
}

// encode is JSON of what can always be encoded.
func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`null`)
	}
	return text
}
