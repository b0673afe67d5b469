package acpserver

import (
	"encoding/json"

	acp "github.com/coder/acp-go-sdk"
)

// Commands for the session and not for its agent.
const (
	commandTake    = "take"
	commandRelease = "release"
)

func commands() []acp.AvailableCommand {
	return []acp.AvailableCommand{
		{Name: commandTake, Description: "Take control of the session, even from somebody else"},
		{Name: commandRelease, Description: "Give control of the session up"},
	}
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
