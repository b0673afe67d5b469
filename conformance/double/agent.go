package double

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A run is one accepted prompt that is not over.
type run struct {
	cancel  chan struct{} // closed when it is interrupted
	open    string        // the open response, or empty
	chunks  int
	started time.Time
	call    string // that waits for approval; empty for none
	tools   contracts.ToolsSummary
}

// prompt starts a run.
func (r *room) prompt(c *client, cmd *contracts.Prompt) *contracts.Error {
	if r.run != nil && !r.s.has(TwoRuns) {
		r.kept = cmd
		return refuse(contracts.CodeRuntimeBusy, contracts.ErrorProtocol, "Headless runtime is already processing a prompt")
	}
	name, args, triggered := trigger(cmd.Content)
	if r.s.has(ApprovalsOnly) && name != "approval" {
		name, triggered = "", false
	}
	if triggered && !json.Valid(args) {
		return badRequest("the trigger's argument is not JSON")
	}
	applyCommand(&r.state, cmd)
	r.runs++
	r.run = &run{cancel: make(chan struct{}), started: time.Now()}
	for _, path := range cmd.Attachments {
		r.publish(&contracts.ErrorEvent{Message: "Attachment not readable: " + path, ErrorType: contracts.ErrorTool})
	}
	if r.s.opts.Plain {
		r.plain(c, cmd.Content)
		return nil
	}
	switch name {
	case "hang": // ends by interrupt
	case "stream":
		var a struct {
			Chunks  int `json:"chunks"`
			DelayMS int `json:"delay_ms"`
		}
		_ = json.Unmarshal(args, &a) // of the suite's making
		r.respondStart()
		go r.stream(r.run, a.Chunks, time.Duration(a.DelayMS)*time.Millisecond) // ends with its chunks or its run
	case "burst":
		var a struct{ Count, Bytes int }
		_ = json.Unmarshal(args, &a)
		for range a.Count {
			r.publish(&contracts.Status{Message: strings.Repeat("b", a.Bytes)})
		}
		r.endRun("")
	case "client_tools":
		names, _ := json.Marshal(r.offered()) // of texts
		r.publish(&contracts.Status{Message: "Client tools: " + string(names)})
		r.endRun("")
	case "approval", "server_request":
		r.askFor(c, args)
		r.endRun("")
	default:
		r.publish(&contracts.Status{Message: "Prompt: " + cmd.Content})
		r.endRun("")
	}
	return nil
}

// trigger takes a trigger apart.
func trigger(content string) (name string, args []byte, ok bool) {
	rest, ok := strings.CutPrefix(content, "__maestro_conformance_")
	if !ok {
		return "", nil, false
	}
	name, text, ok := strings.Cut(rest, "__:")
	return name, []byte(text), ok
}

func (r *room) askFor(c *client, args []byte) {
	q := &contracts.ServerRequest{RequestType: contracts.RequestApproval}
	_ = json.Unmarshal(args, q)
	q.CallID = q.RequestID
	r.ask(c, q)
}

func (r *room) respondStart() {
	r.run.open = fmt.Sprintf("resp_%d", r.runs)
	r.publish(&contracts.ResponseStart{ResponseID: r.run.open})
}

// stream speaks chunk by chunk.
func (r *room) stream(run *run, chunks int, delay time.Duration) {
	for i := range chunks {
		select {
		case <-run.cancel:
			return
		case <-time.After(delay):
		}
		r.s.mu.Lock()
		if r.run != run {
			r.s.mu.Unlock()
			return
		}
		run.chunks++
		r.publish(&contracts.ResponseChunk{ResponseID: run.open, Content: fmt.Sprintf("chunk %d ", i)})
		r.s.mu.Unlock()
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.run == run {
		r.endRun("")
	}
}

// endRun ends the active run: its response, and what interrupted it, if
// something did.
func (r *room) endRun(interrupted string) {
	run := r.run
	r.run = nil
	close(run.cancel)
	if interrupted != "" && r.s.has(NeverEndsInterrupted) {
		return
	}
	if run.open == "" && r.s.scripted() {
		r.state.IsResponding = false
		return
	}
	if run.open == "" {
		r.run = run
		r.respondStart()
		r.run = nil
	}
	run.tools.ToolsUsed = append([]string{}, run.tools.ToolsUsed...)
	end := &contracts.ResponseEnd{ResponseID: run.open, ToolsSummary: run.tools,
		DurationMS: time.Since(run.started).Milliseconds(),
		Usage:      contracts.Usage{InputTokens: 3, OutputTokens: int64(run.chunks), TotalTokens: 3 + int64(run.chunks), ModelID: "double", Provider: "double"}}
	if run.chunks > 0 {
		end.TTFTMS = new(int64)
	}
	if r.s.has(WrongTotal) {
		end.Usage.TotalTokens++
	}
	r.publish(end)
	if interrupted != "" && !r.s.has(SilentInterrupt) {
		r.publish(&contracts.ErrorEvent{Message: interrupted, ErrorType: contracts.ErrorCancelled})
	}
	if kept := r.kept; kept != nil && r.s.has(KeepsPrompts) {
		r.kept = nil
		_ = r.prompt(r.holder, kept) // nothing runs
	}
}
