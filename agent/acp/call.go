package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/agent/mask"
	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

const (
	// maxCalls bounds the calls of one run, ended ones included: their ids are
	// kept so that what comes late for them is known to be late. maxOpen bounds
	// those that have not ended.
	maxCalls = 4096
	maxOpen  = 128

	// maxKey bounds an id of the program that is kept, in bytes. Of a longer one
	// its digest is.
	maxKey = 256

	// maxShown bounds each text of a call that is kept, in bytes: that of its
	// content, to tell what is new in the next version, and its result. Longer
	// texts are cut.
	maxShown = 1 << 20

	// maxInput bounds the input of a call that clients are shown, in bytes.
	maxInput = 128 << 10

	// Texts of a call beside its content, in bytes. What is longer ends with a sign
	// that there was more.
	maxKind  = 60
	maxLabel = 200          // of a title as a label, and of other names
	maxTitle = 4 * maxLabel // of a title that is kept
	maxPath  = 1 << 10      // of a path or an address

	maxLocations = 20
)

// A stage is how far a call is.
type stage int

const (
	held    stage = iota // told of by the program, not yet announced
	asking               // a question about it is open, which announces it
	started              // announced and running
	ended
)

// A call is a tool call of the program. It is guarded by peer.mu.
type call struct {
	id        string // ours: programs count from one in each run
	stage     stage
	hold      *time.Timer     // announces the call; nil unless it is held
	questions int             // that are open about it; it does not end before them
	asked     <-chan struct{} // closed when the newest of them has ended; nil if there was none
	title     string
	clipped   bool // the title was longer
	kind      string
	locations []location
	elsewhere int // locations that are too many to be kept
	input     json.RawMessage
	omitted   int // bytes of an input that was too long to be kept
	status    acp.ToolCallStatus
	content   []toolContent // the newest version; nil once it was shown
	early     bool          // it came before the call began
	purpose   string        // the text of early content, which says what the call is for
	result    string
	shown     string // of content, as published
	spoke     bool   // there was output
}

// A location is a place in a file that a call is about.
type location struct {
	Path string `json:"path"`
	Line *int   `json:"line,omitempty"`
}

// A callUpdate is what the program tells of a call: what is absent stays as it is.
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

// closed reports whether a call with this status is over.
func closed(s acp.ToolCallStatus) bool {
	return s == acp.ToolCallStatusCompleted || s == acp.ToolCallStatusFailed
}

// open returns the calls that have not ended, in the order they were made in.
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

// takeCall takes in a new call. One with the id of a call that has ended is
// another, unless it only repeats that end.
func (p *peer) takeCall(r *run, raw json.RawMessage) {
	var u callUpdate
	if decode(raw, &u) != nil {
		return
	}
	if c := r.calls[key(u.ID)]; c != nil && c.stage == ended && !closed(u.Status) {
		delete(r.calls, key(u.ID))
	}
	p.change(r, &u)
}

func (p *peer) takeCallUpdate(r *run, raw json.RawMessage) {
	var u callUpdate
	if decode(raw, &u) == nil {
		p.change(r, &u)
	}
}

// change applies an update to the call that it is about.
func (p *peer) change(r *run, u *callUpdate) {
	c := p.find(r, u)
	if c == nil || c.stage == ended {
		return
	}
	c.merge(u)
	switch {
	case c.stage == started:
		p.progress(r, c)
	case c.stage == held && (closed(c.status) || c.status == acp.ToolCallStatusInProgress && r.shows(c)):
		p.announce(r, c)
	case c.stage == held && !c.bare() && p.a.host.ApprovalMode() == contracts.ApprovalAuto:
		p.announce(r, c) // a question would not be shown
	case c.stage == held:
		p.arm(r, c)
	}
}

// shows reports whether a call has something to show. A terminal of the program's own
// is nothing to show: Codex tells of it with a command that it is yet to ask about.
func (r *run) shows(c *call) bool {
	return slices.ContainsFunc(c.content, func(t toolContent) bool { return t.Terminal == "" || r.terminals[t.Terminal] != nil })
}

// find returns the call that u is about, which is new if the program has not told
// of it before. It is nil if there are too many.
func (p *peer) find(r *run, u *callUpdate) *call {
	if c := r.calls[key(u.ID)]; c != nil {
		return c
	}
	if len(r.calls) == maxCalls || len(r.calls) >= maxOpen && len(r.open()) >= maxOpen {
		p.proc.Kill(fmt.Errorf("agent process killed: it made more than %d calls in one run, or has more than %d open", maxCalls, maxOpen))
		return nil
	}
	p.pause(r) // what was said before is said, whenever the call is announced
	c := &call{id: turn.ID("call_"), kind: "other"}
	r.calls[key(u.ID)] = c
	return c
}

// key is an id of the program as it is kept.
func key(id string) string {
	if len(id) <= maxKey {
		return id
	}
	return digest([]string{id})
}

// merge notes what an update tells.
func (c *call) merge(u *callUpdate) {
	if u.Title != "" {
		c.title, c.clipped = shown(u.Title, maxTitle), len(u.Title) > maxTitle
	}
	c.kind = cmp.Or(shown(u.Kind, maxKind), c.kind)
	c.status = cmp.Or(u.Status, c.status)
	if u.Content.kept != nil {
		c.content = contents(u.Content)
		c.early = c.status == "" || c.status == acp.ToolCallStatusPending
	}
	if all := u.Locations; all.kept != nil {
		c.locations = slices.Clone(all.kept[:min(len(all.kept), maxLocations)])
		c.elsewhere = len(all.kept) - len(c.locations) + all.more
		for i := range c.locations {
			c.locations[i].Path = shown(c.locations[i].Path, maxPath)
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

// bare reports whether the input of a call is not there yet: models write it
// piece by piece, and programs tell of the call when the first one comes.
func (c *call) bare() bool {
	return c.omitted == 0 && (isNull(c.input) || string(c.input) == "{}")
}

// looks reports whether a call is of a kind that changes nothing.
func (c *call) looks() bool {
	switch acp.ToolKind(c.kind) {
	case acp.ToolKindRead, acp.ToolKindSearch, acp.ToolKindThink:
		return true
	}
	return false
}

// arm holds a call back for a moment: a question about it may come, and would
// announce it.
func (p *peer) arm(r *run, c *call) {
	wait := p.a.wait.settle
	switch {
	case c.bare() && c.status != acp.ToolCallStatusInProgress:
		wait = p.a.wait.input
	case c.looks(), c.status == acp.ToolCallStatusInProgress && len(c.content) > 0:
		wait = p.a.wait.glance
	}
	if c.hold != nil {
		c.hold.Stop()
	}
	c.hold = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.stage == held && p.active() == r {
			p.announce(r, c)
		}
	})
}

// close is the end of a call that nobody is told of any more.
func (c *call) close() {
	c.stage = ended
	c.release()
	c.input, c.content, c.purpose, c.result, c.shown = nil, nil, "", "", "" // only its id is needed now
}

// release stops holding a call back.
func (c *call) release() {
	if c.hold != nil {
		c.hold.Stop()
		c.hold = nil
	}
}

// announce shows a call that nobody was asked about.
func (p *peer) announce(r *run, c *call) {
	p.pause(r)
	args, _ := c.args(nil)
	p.publish(&contracts.ToolCall{CallID: c.id, Tool: c.kind, Args: args})
	p.begun(r, c)
}

// begun shows that a call runs, and what it has to show already.
func (p *peer) begun(r *run, c *call) {
	c.release()
	c.stage = started
	p.publish(&contracts.ToolStart{CallID: c.id})
	p.progress(r, c)
}

// progress shows what is new in a call that runs, and its end.
func (p *peer) progress(r *run, c *call) {
	if c.content != nil {
		text := strings.Clone(abridge.Bytes(render(c.content), maxShown))
		if c.early {
			c.purpose, text = text, abridge.Bytes(renderDiffs(c.content), maxShown)
		}
		fresh := text
		if more, ok := strings.CutPrefix(text, c.shown); ok {
			fresh = more
		} else if text != "" {
			fresh = "\n" + text // content is replaced, output only grows
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
		p.conclude(r, c)
	}
}

// output shows output of a call that runs.
func (p *peer) output(c *call, text string) {
	for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
		c.spoke = true
		p.publish(&contracts.ToolOutput{CallID: c.id, Content: piece})
	}
}

// conclude ends a call that runs. A result that nothing was shown of is shown, and
// for want of one what the call was for.
func (p *peer) conclude(r *run, c *call) {
	if !c.spoke {
		p.output(c, cmp.Or(c.result, c.purpose))
	}
	p.end(r, c, &contracts.ToolEnd{CallID: c.id, Success: c.status == acp.ToolCallStatusCompleted})
}

// end ends a call that was announced.
func (p *peer) end(r *run, c *call, end *contracts.ToolEnd) {
	r.turn.Finished(c.kind, end.Success, c.label())
	r.finished = true
	c.close()
	p.publish(end)
}

// abandon ends a call that the program left open. One with an open question is the
// hub's to end, as the question is.
func (p *peer) abandon(r *run, c *call) {
	switch {
	case c.stage == held:
		c.status = acp.ToolCallStatusFailed // it never said that it was done
		p.announce(r, c)
	case c.stage == started && c.questions == 0:
		p.end(r, c, &contracts.ToolEnd{CallID: c.id})
	}
}

// label says in a few words what the call does. Titles often hold its command.
func (c *call) label() string {
	title, _, _ := strings.Cut(mask.Command(c.title), "\n")
	return cmp.Or(abridge.Bytes(title, maxLabel), c.kind)
}

// aim says what the call is about to do, and where.
func (c *call) aim() string {
	text := c.label()
	for _, l := range c.locations {
		if !strings.Contains(text, l.Path) {
			text += " " + abridge.Bytes(l.Path, maxLabel)
		}
	}
	return abridge.Bytes(text, maxTitle)
}

// extras are what the args of a call say beside its input.
type extras struct {
	Title         string                    `json:"title,omitempty"`
	Kind          string                    `json:"kind,omitempty"`
	Locations     []location                `json:"locations,omitempty"`
	Diff          string                    `json:"diff,omitempty"`
	Options       contracts.ApprovalOptions `json:"options,omitempty"`
	OmittedBytes  int                       `json:"omitted_bytes,omitempty"`
	OmittedPlaces int                       `json:"omitted_locations,omitempty"`
}

// args returns what clients are shown of a call, its input and the extras, and
// what of that had to be cut. options is nil unless approval is asked. What does
// not fit is left out, the input first: the options are needed to answer, and a
// change can be seen in the diff.
func (c *call) args(options contracts.ApprovalOptions) (args json.RawMessage, cut []string) {
	more := extras{
		Title: mask.Command(c.title), Kind: c.kind, Locations: c.locations, OmittedPlaces: c.elsewhere,
		Options: options, OmittedBytes: c.omitted,
	}
	diffs, whole := "", true
	if options != nil { // who approves a change must see it
		diffs = renderDiffs(c.content)
		whole = !slices.ContainsFunc(c.content, func(t toolContent) bool { return t.long > 0 })
	}
	more.Diff = abridge.Bytes(diffs, contracts.MaxTextBytes)
	args = compose(c.input, more)
	if len(args) > contracts.MaxValueBytes {
		more.OmittedBytes += len(c.input)
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
	return args, cut
}

// compose returns args without their secrets.
func compose(input json.RawMessage, more extras) json.RawMessage {
	args := map[string]json.RawMessage{}
	if !isNull(input) && json.Unmarshal(input, &args) != nil {
		args = map[string]json.RawMessage{"input": input}
	}
	args["_acp"] = encode(more)
	return mask.Args(encode(args))
}
