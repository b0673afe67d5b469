package acp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// A run is one prompt that the program works on. peer.mu guards the fields
// before ctx.
type run struct {
	turn     *turn.Turn
	heard    bool // the program has answered: later updates do not belong to the run
	over     bool
	answered bool             // a response has ended
	finished bool             // a call has ended since the last response
	calls    map[string]*call // by the program's id, including ended ones
	plan     string           // as last published
	filled   string           // the use of the context, as last reported
	cost     float64          // in US dollars, not yet reported by a response
	stopping bool             // the run is being interrupted
	tail     string           // the end of the answer's text

	terminals map[string]*terminal // created and not released by the program

	ctx  context.Context // bounds serving requests of the run
	stop context.CancelFunc
	work sync.WaitGroup // counts its questions, writes and terminals
}

func (p *peer) prompt(ctx context.Context, work contracts.Work) error {
	r := p.begin()
	defer p.finish(r)
	call, err := p.conn.Ask(acp.AgentMethodSessionPrompt, acp.PromptRequest{
		SessionId: acp.SessionId(p.session), Prompt: append(p.blocks(work), p.reminder()...),
	}, func() { // before the reader goes on
		p.mu.Lock()
		defer p.mu.Unlock()
		r.heard = true
	})
	if err != nil {
		if p.proc.Failure() != nil || errors.Is(err, rpc.ErrEnded) { // the process is about to end
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

// begin opens a run. No other run may be open.
func (p *peer) begin() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &run{turn: turn.New(p.a.host, p.model(), p.name), calls: map[string]*call{}, terminals: map[string]*terminal{}}
	r.ctx, r.stop = context.WithCancel(p.life)
	p.run = r
	clear(p.strayed)
	return r
}

// finish closes a run. After it returns, no event of the run is published and
// its terminals have ended.
func (p *peer) finish(r *run) {
	p.mu.Lock()
	p.endTerminals(r)
	p.a.mu.Lock()
	if r.heard { // after an answer nothing needs to be sent
		p.a.broken = ""
	} else {
		p.a.broken = cmp.Or(r.tail, p.a.broken)
	}
	p.a.mu.Unlock()
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

// interrupt ends a run whose ctx has ended: it ends the terminals, and the
// program has some time to stop before it is killed. The hub closes what it
// leaves open.
func (p *peer) interrupt(ctx context.Context, r *run, call *rpc.Call) error {
	p.mu.Lock()
	r.stopping = true
	for _, t := range r.terminals { // their output can still be read, but no new ones can be made
		t.stop()
	}
	p.mu.Unlock()
	late := time.After(p.a.wait.interrupt)
	if p.conn.Notify(acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: acp.SessionId(p.session)}) == nil {
		select {
		case reply := <-call.Reply:
			if errors.Is(reply.Err, rpc.ErrEnded) {
				<-p.over
			} else {
				p.endOpenCalls(r)
			}
			return context.Cause(ctx)
		case <-late:
		}
	}
	p.proc.Kill(errors.New("agent process killed: it did not stop when interrupted"))
	<-p.over
	return context.Cause(ctx)
}

// errCancelled is the code of calls that were open when their run was
// interrupted.
const errCancelled = "cancelled"

// endOpenCalls ends the calls that an interrupted program has left open. It is
// unknown whether they have really ended: Codex lets a command run on. Clients
// are told.
func (p *peer) endOpenCalls(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := map[*call]bool{} // calls with terminals of ours, which have ended
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
	switch _, refused := errors.AsType[*rpc.Error](reply.Err); {
	case refused:
		p.endAnsweredRun(r, contracts.Usage{})
		return failure(ctx, p.withSignInHint(reply.Err))
	case errors.Is(reply.Err, rpc.ErrEnded):
		<-p.over
		return failure(ctx, p.proc.Account())
	case reply.Err != nil: // the answer was too long
		return failure(ctx, reply.Err)
	}
	var result struct {
		Stop  string     `json:"stopReason"`
		Usage *acp.Usage `json:"usage"`
	}
	decode(reply.Result, &result)
	p.endAnsweredRun(r, usage(result.Usage))
	return p.stopped(result.Stop)
}

// endAnsweredRun ends what an answered run has left open, and reports its cost.
func (p *peer) endAnsweredRun(r *run, used contracts.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range r.open() {
		p.abandon(r, c)
	}
	spent := r.cost > 0 || used != contracts.Usage{}
	used.TotalCostUSD, used.ModelID = r.cost, p.model()
	if !r.turn.Open() && (spent || r.finished || !r.answered) { // there is something that only a response can report
		p.logPublish(r.turn.Start(p.life))
	}
	if r.turn.Open() {
		p.logPublish(r.turn.End(p.life, used))
	}
	if r.filled != "" {
		p.status(r.filled)
	}
}

// logPublish logs that an event could not be published. That happens when the
// hub has ended.
func (p *peer) logPublish(err error) {
	if err != nil {
		p.log.Debug("cannot publish an agent event", "error", err)
	}
}

// stopped reports why the program stopped, unless it was done.
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

// usage returns the program's token counts. Thinking is part of the output;
// programs that count it separately are recognized by their total.
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

// blocks returns a prompt in the richest form that the program supports.
func (p *peer) blocks(work contracts.Work) []acp.ContentBlock {
	blocks := []acp.ContentBlock{acp.TextBlock(work.Content)}
	can := p.can.PromptCapabilities
	for _, a := range work.Attachments {
		uri := (&url.URL{Scheme: "file", Path: filepath.ToSlash(p.a.files.Abs(a.Path))}).String()
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
				p.a.notes.AddOnce("The agent takes no images: it is told where they are")
				p.a.publishNotes()
			}
			block := acp.ResourceLinkBlock(filepath.Base(a.Path), uri)
			block.ResourceLink.MimeType = &a.MimeType
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// maxTail bounds the text of an interrupted answer that the program is sent, in
// bytes.
const maxTail = 2 << 10

// reminder tells a program that continues a conversation what clients have seen
// of the answer during which it died, because it may not have stored that. The
// reminder comes last, because programs look for commands at the beginning.
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

// say publishes a piece of text. The caller holds p.mu.
func (p *peer) say(r *run, text string, thinking bool) {
	if text == "" {
		return
	}
	if !r.turn.Open() {
		p.logPublish(r.turn.Start(p.life))
	}
	add := r.turn.Say
	if thinking {
		add = r.turn.Think
	} else {
		r.tail = contracts.TailText(r.tail+text, maxTail)
	}
	for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
		p.logPublish(add(p.life, piece))
	}
}

// endResponse ends the open response before another event. The caller holds p.mu.
func (p *peer) endResponse(r *run) {
	if r.turn.Open() {
		p.logPublish(r.turn.End(p.life, contracts.Usage{ModelID: p.model(), TotalCostUSD: r.cost}))
		r.answered, r.finished, r.cost = true, false, 0
	}
}

// active returns the run that the program works on, nil if there is none. The
// caller holds p.mu.
func (p *peer) active() *run {
	if p.run == nil || p.run.heard || p.run.over {
		return nil
	}
	return p.run
}

// reportStray reports that the program tried something outside a run, once for
// each operation between two runs. The caller holds p.mu.
func (p *peer) reportStray(what string) {
	if p.strayed[what] {
		return
	}
	p.strayed[what] = true
	if !p.greeted { // the hub may not be ready yet
		p.status("The agent wanted to " + what + " before its first run: it was refused")
		return
	}
	p.publish(&contracts.ErrorEvent{
		Message: "The agent wanted to " + what + " outside of a run: it was refused", ErrorType: contracts.ErrorProtocol,
	})
}

// encode returns the JSON of a value that can always be encoded.
func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`null`)
	}
	return text
}
