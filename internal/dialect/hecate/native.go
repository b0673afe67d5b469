package hecate

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Event translates one event of the native session, raw agent events included. cursor is
// its position in the journal. Event ignores an event whose cursor is not after the one
// before. Consecutive chunks of one response, or consecutive outputs of one call, may be
// given as one event with the last cursor.
func (s *Session) Event(at time.Time, cursor uint64, ev contracts.Event) []Draft {
	if cursor <= s.Cursor {
		return nil
	}
	s.Cursor = cursor
	s.clock(at)
	s.translate(ev)
	return s.take()
}

// clock sets the time of the next drafts, which does not go back.
func (s *Session) clock(at time.Time) {
	if at = at.UTC().Round(0); at.After(s.At) {
		s.At = at
	}
}

func (s *Session) take() []Draft {
	drafts := s.drafts
	s.drafts = nil
	return drafts
}

func (s *Session) translate(ev contracts.Event) {
	switch e := ev.(type) {
	case *contracts.Ready:
		s.Model, s.Provider = e.Model, e.Provider
	case *contracts.SessionInfo:
		s.Cwd = e.Cwd
	case *contracts.RawAgentEvent:
		s.rawEvent(e)
	case *contracts.ResponseStart:
		s.responseStart(e.ResponseID)
	case *contracts.ResponseChunk:
		s.responseChunk(e)
	case *contracts.ResponseEnd:
		s.responseEnd(e)
	case *contracts.ToolCall:
		s.propose(e.CallID, e.Tool, e.Args)
	case *contracts.ClientToolRequest:
		s.propose(e.CallID, e.Tool, e.Args)
	case *contracts.ToolStart:
		s.toolStart(e.CallID)
	case *contracts.ToolOutput:
		s.toolOutput(e)
	case *contracts.ToolEnd:
		s.toolEnd(e)
	case *contracts.ServerRequest:
		s.serverRequest(e)
	case *contracts.ServerRequestResolved:
		s.resolved(e)
	case *contracts.ErrorEvent:
		s.errorEvent(e)
	case *contracts.Status:
		s.status(e)
	case *contracts.Compaction:
		s.compaction(e)
	}
}

func (s *Session) rawEvent(e *contracts.RawAgentEvent) {
	switch e.EventKind {
	case "agent_start":
		s.Working = true
		if s.Run != nil { // its end was not seen
			s.lost()
		}
	case "agent_end":
		s.Working = false
		if s.Run != nil {
			s.finish()
		}
	default:
		if text, ok := e.UserMessage(); ok {
			s.prompt(text)
		}
	}
}

func (s *Session) errorEvent(e *contracts.ErrorEvent) {
	if s.Run == nil || e.RequestID != "" { // errors with an id answer a client
		return
	}
	s.Run.Failure = &failure{e.ErrorType, s.clean(e.Message, maxAnswer)}
	if e.ErrorType == contracts.ErrorTransient {
		s.endBlock()
		s.draft("error.upstream", object{{"provider", s.provider()}, {"message", e.Message}, {"retriable", true}})
	}
}

func (s *Session) status(e *contracts.Status) {
	switch {
	case s.Run == nil || e.Message == contracts.StatusWorking:
	case s.Run.Late: // the agent cannot act on the answer, and says so
		s.fail("not_resumed", s.clean(e.Message, maxAnswer))
	default:
		s.draft("maestro.status", object{{"message", e.Message}})
	}
}

func (s *Session) compaction(e *contracts.Compaction) {
	if s.Run != nil {
		s.draft("maestro.compaction", object{{"summary", e.Summary}, {"tokens_before", e.TokensBefore}, {"auto", e.Auto}})
	}
}

// Held reports whether output of tools is held that [Session.Flush] would show.
func (s *Session) Held() bool {
	return s.Run != nil && slices.ContainsFunc(s.Run.Calls, func(c *call) bool {
		return c.Chunks < maxEarly && c.Out.words(maxOutput) > 0
	})
}

// Flush shows output of tools that has been held for 100 ms. Call it when Held reports
// true and no event has come for 100 ms.
func (s *Session) Flush(at time.Time) []Draft {
	s.clock(at)
	if s.Run != nil {
		for _, c := range s.Run.Calls {
			s.showEarly(c)
		}
	}
	return s.take()
}

// Stopping says who asked for the end of the open run, and why. A run that then ends
// without an error was cancelled. reason may be empty. Stopping does nothing if no run is
// open.
func (s *Session) Stopping(by, reason string) {
	if s.Run != nil {
		s.Run.Stop = &stop{by, s.clean(reason, maxAnswer)}
	}
}

// Inserted says that the server has appended an event of its own to a run, such as
// gap.events_pruned, which has the next sequence of the run.
func (s *Session) Inserted(runID string) {
	switch {
	case s.Run != nil && s.Run.ID == runID:
		s.Run.Next++
	case s.Last != nil && s.Last.ID == runID:
		s.Last.Next++
	}
}

// Disconnected says that a part of the execution was not seen: gap.run_disconnected in
// the open run, or in the last one if none is open. There is no draft before the first
// run.
func (s *Session) Disconnected(at time.Time, reason string) []Draft {
	since := s.At
	s.clock(at)
	s.gap(since, reason)
	return s.take()
}

func (s *Session) gap(since time.Time, reason string) {
	data := func(next uint64) object {
		return object{{"since_sequence", next - 1}, {"since_at", since.Format(time.RFC3339Nano)}, {"reason", reason}}
	}
	switch {
	case s.Run != nil:
		s.draft("gap.run_disconnected", data(s.Run.Next))
	case s.Last != nil:
		s.append(s.Last.ID, "gap.run_disconnected", data(s.Last.Next))
		s.Last.Next++
	}
}

// Reset continues from a snapshot after events were lost. The tools that ran and the
// round that was open end as failed. The run ends as failed if nothing of it goes on.
func (s *Session) Reset(at time.Time, snap *contracts.Snapshot) []Draft {
	since := s.At
	s.clock(at)
	st := &snap.State
	s.Cursor = snap.Cursor
	s.Model, s.Provider, s.Cwd = cmp.Or(st.Model, s.Model), cmp.Or(st.Provider, s.Provider), cmp.Or(st.Cwd, s.Cwd)
	if s.Run != nil {
		s.close(plain("events were lost"))
	}
	s.gap(since, "replay_gap")
	s.resync(st)
	return s.take()
}

// resync continues with what the snapshot says is going on.
func (s *Session) resync(st *contracts.State) {
	going := st.IsResponding || st.CurrentResponse != nil || len(st.ActiveTools) > 0 || len(st.PendingRequests) > 0
	if s.Run != nil {
		s.closeRequests(st.PendingRequests)
	}
	if s.Run != nil && !going {
		s.lost()
	}
	if st.CurrentResponse != nil {
		s.responseStart(st.CurrentResponse.ResponseID)
	}
	for _, p := range st.PendingRequests {
		known := func(r request) bool { return r.ID == p.ID }
		if !slices.ContainsFunc(s.Kept, known) && (s.Run == nil || !slices.ContainsFunc(s.Run.Requests, known)) {
			s.serverRequest(&contracts.ServerRequest{
				RequestID: p.ID, RequestType: p.Kind, CallID: p.CallID, Tool: p.Tool, Args: p.Args,
				DisplayName: p.DisplayName, SummaryLabel: p.SummaryLabel, ActionDescription: p.ActionDescription,
			})
		}
	}
}

// closeRequests ends the questions that are not pending any more. How they ended is not
// known.
func (s *Session) closeRequests(pending []contracts.PendingRequest) {
	for _, r := range slices.Clone(s.Run.Requests) {
		if !slices.ContainsFunc(pending, func(p contracts.PendingRequest) bool { return p.ID == r.ID }) {
			s.resolved(&contracts.ServerRequestResolved{
				RequestID: r.ID, Resolution: contracts.VerdictCancelled, ResolvedBy: contracts.ResolvedByRuntime,
				Reason: "the decision was not seen",
			})
		}
	}
}

// lost ends a run whose end was not seen.
func (s *Session) lost() {
	s.fail("run_disconnected", plain("the end of the run was not seen"))
}
