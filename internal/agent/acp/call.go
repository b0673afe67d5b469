package acp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/memory"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
)

const (
	// maxCalls bounds the calls of one run, including ended ones: their ids are
	// kept to recognize late updates. maxOpen bounds the calls that have not
	// ended.
	maxCalls = 4096
	maxOpen  = 128

	// maxKey bounds a stored id of the program, in bytes. A longer id is stored
	// as its digest.
	maxKey = 256

	// maxShown bounds each stored text of a call, in bytes: its content, to find
	// what is new in the next version, and its result. Longer texts are cut.
	maxShown = 1 << 20

	// maxInput bounds the input of a call shown to clients, in bytes.
	maxInput = 128 << 10

	// Bounds of other texts of a call, in bytes. A longer text ends with an
	// ellipsis.
	maxKind  = 60
	maxLabel = 200          // a title as a label, and other names
	maxTitle = 4 * maxLabel // a stored title
	maxPath  = 1 << 10      // a path or a URL

	maxLocations = 20
)

// A stage is the progress of a call.
type stage int

const (
	held    stage = iota // reported by the program, not yet announced
	asking               // a question about it is open, which announces it
	started              // announced and running
	ended
)

// A call is a tool call of the program. peer.mu guards it.
type call struct {
	id        string // our id, because programs count from one in each run
	stage     stage
	hold      *time.Timer     // announces the call; nil unless the call is held
	questions int             // open questions about it; the call ends after them
	asked     <-chan struct{} // closed when the newest question has ended; nil if there was none
	title     string
	clipped   bool // the title was longer
	kind      string
	locations []location
	elsewhere int // locations beyond the bound
	input     json.RawMessage
	omitted   int // bytes of an input that was too long
	status    acp.ToolCallStatus
	content   []toolContent // the newest version; nil after it was published
	early     bool          // the content came before the call began
	purpose   string        // the text of early content, which describes the call's purpose
	result    string
	shown     string // content as published
	spoke     bool   // output was published

	sent    [sha256.Size]byte // hash over all that the program sent about the call; see take
	altered bool              // the title, the kind or a path is not shown as it was sent
}

// A location is a place in a file that a call refers to.
type location struct {
	Path string `json:"path"`
	Line *int   `json:"line,omitempty"`
}

// A callUpdate is the program's update of a call. Absent members do not change.
type callUpdate struct {
	ID        string                `json:"toolCallId"`
	Title     string                `json:"title"`
	Kind      string                `json:"kind"`
	Status    acp.ToolCallStatus    `json:"status"`
	Content   list[json.RawMessage] `json:"content"`
	Locations list[location]        `json:"locations"`
	Input     json.RawMessage       `json:"rawInput"`
	Output    json.RawMessage       `json:"rawOutput"`
}

// closed reports whether a call with this status has ended.
func closed(s acp.ToolCallStatus) bool {
	return s == acp.ToolCallStatusCompleted || s == acp.ToolCallStatusFailed
}

// open returns the calls that have not ended, in the order in which they were
// made.
func (r *run) open() []*call {
	var open []*call
	for _, c := range r.calls {
		if c.stage != ended {
			open = append(open, c)
		}
	}
	slices.SortFunc(open, func(a, b *call) int { return strings.Compare(a.id, b.id) })
	return open
}

// takeCall handles a call, or its update. If a call with the same id as a new
// one has ended, this is another call unless it only repeats the end.
func (p *peer) takeCall(r *run, raw json.RawMessage, begins bool) {
	var u callUpdate
	decode(raw, &u)
	if c := r.calls[key(u.ID)]; begins && c != nil && c.stage == ended && !closed(u.Status) {
		delete(r.calls, key(u.ID))
	}
	c := p.find(r, &u)
	if c == nil || c.stage == ended {
		return
	}
	c.take(raw)
	c.merge(&u)
	// A terminal of the program's own is nothing to show: Codex reports one for a
	// command that it has yet to ask about.
	shows := slices.ContainsFunc(c.content, func(t toolContent) bool {
		return t.Terminal == "" || r.terminals[t.Terminal] != nil
	})
	switch {
	case c.stage == started:
		p.progress(r, c)
	case c.stage == held && (closed(c.status) || c.status == acp.ToolCallStatusInProgress && shows):
		p.announce(r, c)
	case c.stage == held && !c.lacksInput() && p.a.host.ApprovalMode() == contracts.ApprovalAuto:
		p.announce(r, c) // no question would be asked
	case c.stage == held:
		p.arm(r, c)
	}
}

// find returns the call of u, or a new one. It returns nil if there are too
// many calls.
func (p *peer) find(r *run, u *callUpdate) *call {
	if c := r.calls[key(u.ID)]; c != nil {
		return c
	}
	if len(r.calls) == maxCalls || len(r.calls) >= maxOpen && len(r.open()) >= maxOpen {
		p.proc.Kill(fmt.Errorf("agent process killed: it made more than %d calls in one run, or has more than %d open", maxCalls, maxOpen))
		return nil
	}
	p.endResponse(r) // earlier text precedes the call, whenever the call is announced
	c := &call{id: turn.ID("call_"), kind: "other"}
	r.calls[key(u.ID)] = c
	return c
}

// key returns an id of the program in the form in which it is stored.
func key(id string) string {
	if len(id) <= maxKey {
		return id
	}
	return memory.Digest(id)
}

// show returns a text as clients are shown it.
func (c *call) show(text string, limit int) string {
	s := shown(text, limit)
	c.altered = c.altered || s != text
	return s
}

// take adds a message of the program to the hash over all of them.
func (c *call) take(raw []byte) {
	sum := sha256.New()
	sum.Write(c.sent[:])
	sum.Write(raw)
	sum.Sum(c.sent[:0])
}

func (c *call) merge(u *callUpdate) {
	if u.Title != "" {
		c.title, c.clipped = c.show(u.Title, maxTitle), len(u.Title) > maxTitle
	}
	c.kind = cmp.Or(c.show(u.Kind, maxKind), c.kind)
	c.status = cmp.Or(u.Status, c.status)
	if u.Content.kept != nil {
		c.content = contents(u.Content)
		c.early = c.status == "" || c.status == acp.ToolCallStatusPending
	}
	if all := u.Locations; all.kept != nil {
		c.locations = slices.Clone(all.kept[:min(len(all.kept), maxLocations)])
		c.elsewhere = len(all.kept) - len(c.locations) + all.more
		for i := range c.locations {
			c.locations[i].Path = c.show(c.locations[i].Path, maxPath)
		}
	}
	if !isNull(u.Input) {
		c.input, c.omitted = u.Input, 0
	}
	if len(c.input) > maxInput {
		c.input, c.omitted = nil, len(c.input)
	}
	if !isNull(u.Output) {
		c.result = strings.Clone(abridge.Bytes(resultText(u.Output), maxShown))
	}
}

// lacksInput reports whether the input of a call is missing. Models write it
// piece by piece, and programs report the call with the first piece.
func (c *call) lacksInput() bool {
	return c.omitted == 0 && (isNull(c.input) || string(c.input) == "{}")
}

// readOnly are the kinds of calls that change nothing.
var readOnly = []acp.ToolKind{acp.ToolKindRead, acp.ToolKindSearch, acp.ToolKindThink}

// arm holds a call back for some time, because a question about it may come
// that announces it.
func (p *peer) arm(r *run, c *call) {
	wait := p.a.wait.settle
	switch {
	case c.lacksInput() && c.status != acp.ToolCallStatusInProgress:
		wait = p.a.wait.input
	case slices.Contains(readOnly, acp.ToolKind(c.kind)), c.status == acp.ToolCallStatusInProgress && len(c.content) > 0:
		wait = p.a.wait.glance
	}
	c.release()
	c.hold = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.stage == held && p.active() == r {
			p.announce(r, c)
		}
	})
}

// close ends a call without an event.
func (c *call) close() {
	c.stage = ended
	c.release()
	c.input, c.content, c.purpose, c.result, c.shown = nil, nil, "", "", "" // only its id is still needed
}

// release stops the timer that announces a held call.
func (c *call) release() {
	if c.hold != nil {
		c.hold.Stop()
		c.hold = nil
	}
}

// announce publishes a call that needs no question.
func (p *peer) announce(r *run, c *call) {
	p.endResponse(r)
	args, _, _ := c.args(nil, false)
	p.publish(&contracts.ToolCall{CallID: c.id, Tool: c.kind, Args: args})
	p.begun(r, c)
}

// begun publishes the start of a call, and its content so far.
func (p *peer) begun(r *run, c *call) {
	c.release()
	c.stage = started
	p.publish(&contracts.ToolStart{CallID: c.id})
	p.progress(r, c)
}

// progress publishes what is new in a running call, and its end.
func (p *peer) progress(r *run, c *call) {
	if c.content != nil {
		text := strings.Clone(abridge.Bytes(render(c.content), maxShown))
		if c.early {
			c.purpose, text = text, abridge.Bytes(render(c.content, "diff"), maxShown)
		}
		fresh := text
		if more, ok := strings.CutPrefix(text, c.shown); ok {
			fresh = more
		} else if text != "" {
			fresh = "\n" + text // content is replaced, but output only grows
		}
		c.shown = text
		p.output(c, fresh)
		for _, content := range c.content {
			if content.Terminal != "" {
				p.follow(r, c, content.Terminal)
			}
		}
		c.content = nil
	}
	if closed(c.status) && c.questions == 0 {
		if !c.spoke { // the result or, without one, the purpose, is better than nothing
			p.output(c, cmp.Or(c.result, c.purpose))
		}
		p.end(r, c, &contracts.ToolEnd{CallID: c.id, Success: c.status == acp.ToolCallStatusCompleted})
	}
}

// output publishes output of a running call.
func (p *peer) output(c *call, text string) {
	for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
		c.spoke = true
		p.publish(&contracts.ToolOutput{CallID: c.id, Content: piece})
	}
}

// end ends an announced call.
func (p *peer) end(r *run, c *call, end *contracts.ToolEnd) {
	r.turn.Finished(c.kind, end.Success, c.label())
	r.finished = true
	c.close()
	p.publish(end)
}

// abandon ends a call that the program left open. The hub ends a call with an
// open question.
func (p *peer) abandon(r *run, c *call) {
	switch {
	case c.stage == held:
		c.status = acp.ToolCallStatusFailed // the program did not report its end
		p.announce(r, c)
	case c.stage == started && c.questions == 0:
		p.end(r, c, &contracts.ToolEnd{CallID: c.id})
	}
}

// label describes the call in a few words. Titles often contain its command.
func (c *call) label() string {
	title, _, _ := strings.Cut(mask.Command(c.title), "\n")
	return cmp.Or(abridge.Bytes(title, maxLabel), c.kind)
}

// description describes what the call will do, and where.
func (c *call) description() string {
	text := c.label()
	for _, l := range c.locations {
		if !strings.Contains(text, l.Path) {
			text += " " + abridge.Bytes(l.Path, maxLabel)
		}
	}
	return abridge.Bytes(text, maxTitle)
}

// extras are the args of a call besides its input.
type extras struct {
	Title         string                    `json:"title,omitempty"`
	Kind          string                    `json:"kind,omitempty"`
	Locations     []location                `json:"locations,omitempty"`
	Diff          string                    `json:"diff,omitempty"`
	Options       contracts.ApprovalOptions `json:"options,omitempty"`
	OmittedBytes  int                       `json:"omitted_bytes,omitempty"`
	OmittedPlaces int                       `json:"omitted_locations,omitempty"`

	// Whole is present if approval is requested and not all of the call is shown as it was
	// sent. It is a hash over all that the program sent about the call, so that the digest
	// of the question covers what is not shown.
	Whole string `json:"whole,omitempty"`
}

// args returns a call's input and extras for clients, and which parts were cut. partial
// reports whether anything is not shown as it was sent. options is nil unless approval is
// requested; altered says that the program sent other options. If the args are too long,
// the input is left out first, because the options are needed for the answer and the
// diff shows the change.
func (c *call) args(options contracts.ApprovalOptions, altered bool) (args json.RawMessage, cut []string, partial bool) {
	more := extras{
		Title: mask.Command(c.title), Kind: c.kind, Locations: c.locations, OmittedPlaces: c.elsewhere,
		Options: options, OmittedBytes: c.omitted,
	}
	diffs, everything, whole := "", "", true
	if options != nil { // the approver of a change must see it
		diffs, everything = render(c.content, "diff"), "sha256:"+hex.EncodeToString(c.sent[:])
		whole = !slices.ContainsFunc(c.content, func(t toolContent) bool { return t.long > 0 || t.cut })
	}
	more.Diff = abridge.Bytes(diffs, contracts.MaxTextBytes)
	if altered || c.altered || c.omitted > 0 || c.elsewhere > 0 || more.Diff != diffs || !whole {
		more.Whole = everything
	}
	args = compose(c.input, more)
	if len(args) > contracts.MaxValueBytes {
		more.OmittedBytes += len(c.input)
		more.Whole = everything
		args = compose(nil, more)
	}
	if len(args) > contracts.MaxValueBytes { // escapes take six bytes each
		more.Diff, more.Locations, more.OmittedPlaces = abridge.Bytes(diffs, contracts.MaxValueBytes/16), nil, len(c.locations)+c.elsewhere
		args = compose(nil, more)
	}
	if c.clipped {
		cut = append(cut, "the end of the title")
	}
	if more.OmittedBytes > 0 {
		cut = append(cut, fmt.Sprintf("%d bytes of input", more.OmittedBytes))
	}
	if more.Diff != diffs || !whole {
		cut = append(cut, "a part of the change")
	}
	if more.OmittedPlaces > 0 {
		cut = append(cut, fmt.Sprintf("%d locations", more.OmittedPlaces))
	}
	return args, cut, more.Whole != ""
}

// compose returns the args with secrets masked.
func compose(input json.RawMessage, more extras) json.RawMessage {
	args := map[string]json.RawMessage{}
	if !isNull(input) && json.Unmarshal(input, &args) != nil {
		args = map[string]json.RawMessage{"input": input}
	}
	args["_acp"] = encode(more)
	return mask.Args(encode(args))
}
