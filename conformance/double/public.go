package double

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// public reports whether newer fields are left out.
func (s *Server) public() bool { return s.opts.Profile == contracts.ProfilePublic }

// scripted reports whether the agent is that of the published contract (6.2),
// whose prompts have no response and whose answers are not checked.
func (s *Server) scripted() bool { return s.public() && !s.opts.Plain }

// beReady starts the session with its state alone: nothing is published.
func (r *room) beReady() {
	text := "Ready"
	r.state.Model, r.state.Provider, r.state.IsReady, r.state.LastStatus = "gpt-5.4", "openai", true, &text
	r.state.SessionID = contracts.String(r.id)
}

// respondUnchecked resolves a request whether or not there is one.
func (r *room) respondUnchecked(cmd *contracts.ServerRequestResponse) {
	q := r.waiting(cmd.RequestID)
	if q == nil {
		q = &contracts.ServerRequest{RequestID: cmd.RequestID, CallID: cmd.RequestID, RequestType: cmd.RequestType}
	}
	reason := cmd.Reason
	if reason == "" && cmd.Result != nil {
		reason = cmd.Result.Error
	}
	verdict := map[contracts.RequestType]contracts.Verdict{contracts.RequestApproval: contracts.VerdictDenied,
		contracts.RequestClientTool: contracts.VerdictCompleted, contracts.RequestMCPElicitation: contracts.VerdictAnswered,
		contracts.RequestUserInput: contracts.VerdictAnswered, contracts.RequestToolRetry: contracts.VerdictRetried}[cmd.RequestType]
	if cmd.RequestType == contracts.RequestApproval && cmd.Approved != nil && *cmd.Approved {
		verdict = contracts.VerdictApproved
	}
	r.resolve(q, verdict, reason, contracts.ResolvedByUser)
}
