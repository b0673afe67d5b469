package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/command"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/proc"
)

const (
	shellTool = "bash"

	// maxBriefChars bounds a command in the labels of a request.
	maxBriefChars = 80
)

// A shell is the runtime without a model: each prompt is a command line, run in
// the workspace as a gated tool.
//
//	response_start
//	tool_call, server_request, server_request_resolved   unless policy decides
//	tool_start, tool_output..., tool_end                 or tool_end alone if denied
//	response_chunk, response_end                         what came of it
//
// The response begins first, so that clients see that the agent works. The
// shell keeps no state between runs.
type shell struct {
	unconfigured // the host handles approval
	Options
	host contracts.Host // set by Start
}

// shellArgs are the args of the tool as clients see them.
type shellArgs struct {
	Command string `json:"command"`
	Cwd     string `json:"cwd"`
}

// Start implements [contracts.Agent]. It fails if the workspace does not exist.
func (s *shell) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	switch info, err := os.Stat(s.Dir); {
	case err != nil:
		return contracts.AgentInfo{}, fmt.Errorf("start shell: %w", err)
	case !info.IsDir():
		return contracts.AgentInfo{}, fmt.Errorf("start shell: %s is not a directory", s.Dir)
	}
	s.host = host
	return contracts.AgentInfo{
		Model: "shell", Provider: "local", Executor: contracts.ExecutorLive,
		Requests: []contracts.RequestType{contracts.RequestApproval},
	}, nil
}

func (s *shell) Run(ctx context.Context, work contracts.Work) error {
	line := strings.TrimSpace(work.Content)
	r := s.newRun(turn.ID("call_"), line)
	if err := r.Turn.Start(ctx); err != nil {
		return err
	}
	if problem := unfit(line); problem != "" {
		return r.answer(ctx, problem)
	}
	req := r.request()
	out, err := s.host.Ask(ctx, req, contracts.AskOptions{})
	if err != nil {
		return err
	}
	if !out.Announced {
		if err := s.host.Publish(ctx, &contracts.ToolCall{CallID: req.CallID, Tool: req.Tool, Args: req.Args}); err != nil {
			return err
		}
	}
	return r.decide(ctx, out)
}

// Resume handles the answer to a request that was asked before the server
// restarted. Only the command as shown to clients is left, so it is run only if
// nothing in it was masked and the workspace is the same.
func (s *shell) Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error {
	var args shellArgs
	err := json.Unmarshal(req.Args, &args)
	r := s.newRun(req.CallID, args.Command)
	if err := r.Turn.Start(ctx); err != nil {
		return err
	}
	lost := "" // why an approved command cannot run
	switch {
	case out.Verdict != contracts.VerdictApproved:
	case err != nil || args.Command == "":
		lost = "the command was lost when the server restarted. Send it again."
	case strings.Contains(args.Command, mask.Mark):
		lost = "a secret in the command was not kept when the server restarted. Send it again."
	case args.Cwd != s.Dir:
		lost = "it was approved for " + args.Cwd + ", which is not the workspace any more."
	}
	if lost != "" {
		return r.end(ctx, &contracts.ToolEnd{CallID: r.callID}, "Not run: "+lost)
	}
	return r.decide(ctx, out)
}

// unfit returns what is wrong with a command line, or "".
func unfit(line string) string {
	switch {
	case line == "":
		return "Type a command line, such as `ls`. It runs in the workspace once it is approved."
	case len(line) > command.MaxLine:
		return fmt.Sprintf("Not run: the command line has %d bytes, and at most %d are allowed.", len(line), command.MaxLine)
	case strings.ContainsRune(line, 0):
		return "Not run: the command line contains a NUL character."
	}
	return ""
}

// A shellRun is one command during a run.
type shellRun struct {
	*shell
	*turn.Turn
	callID string
	line   string
	shown  string // line with its secrets masked
}

func (s *shell) newRun(callID, line string) *shellRun {
	return &shellRun{
		shell: s, Turn: turn.New(s.host, "shell", "local"),
		callID: callID, line: line, shown: mask.Command(line),
	}
}

// request returns the approval request for the command.
func (r *shellRun) request() *contracts.ServerRequest {
	args, _ := json.Marshal(shellArgs{Command: r.line, Cwd: r.Dir}) // texts can be encoded
	return &contracts.ServerRequest{
		RequestID: r.callID, RequestType: contracts.RequestApproval, CallID: r.callID,
		Tool: shellTool, DisplayName: "Bash",
		SummaryLabel: r.label(), ActionDescription: "Running " + abridge.Line(r.shown, maxBriefChars),
		Args:   mask.Args(args),
		Reason: "The command can change files and reach the network",
	}
}

// label describes the call in a few words.
func (r *shellRun) label() string { return "Ran " + abridge.Line(r.shown, maxBriefChars) }

// decide runs the command if out allows it, and otherwise says why not.
func (r *shellRun) decide(ctx context.Context, out contracts.Outcome) error {
	if out.Verdict == contracts.VerdictApproved {
		return r.execute(ctx)
	}
	text := "Not run: the request was " + string(out.Verdict) + "."
	if out.Reason != "" {
		text += " Reason: " + out.Reason
	}
	return r.end(ctx, turn.After(r.callID, out.Verdict), text)
}

// execute runs the command. If ctx ends meanwhile, the host closes the call.
func (r *shellRun) execute(ctx context.Context) error {
	if err := r.shell.host.Publish(ctx, &contracts.ToolStart{CallID: r.callID}); err != nil {
		return err
	}
	run := command.Command{Shell: r.Shell, Line: r.line, Dir: r.Dir, Env: proc.Environ(os.Environ(), r.Hosted, r.EnvPass)}
	exit, err := run.Run(ctx, func(text string) error {
		return r.shell.host.Publish(ctx, &contracts.ToolOutput{CallID: r.callID, Content: text})
	})
	end := &contracts.ToolEnd{CallID: r.callID, Success: err == nil && exit.Success()}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.Log.Error("cannot run a command", slog.String("call", r.callID), slog.Any("err", err))
		return r.end(ctx, end, "Could not run the command: "+err.Error())
	}
	return r.end(ctx, end, summarize(exit))
}

// end ends the call and the response.
func (r *shellRun) end(ctx context.Context, end *contracts.ToolEnd, text string) error {
	r.Finished(shellTool, end.Success, r.label())
	if err := r.shell.host.Publish(ctx, end); err != nil {
		return err
	}
	return r.answer(ctx, text)
}

// answer ends the response with a text.
func (r *shellRun) answer(ctx context.Context, text string) error {
	if err := r.Say(ctx, text); err != nil {
		return err
	}
	return r.End(ctx, contracts.Usage{})
}

// summarize says how a command ended. Its output has been published.
func summarize(e command.Exit) string {
	how := fmt.Sprintf("Exit code %d", e.Code)
	if e.Signal != "" {
		how = "Ended by " + e.Signal
	}
	return fmt.Sprintf("%s after %s.", how, e.Took.Round(time.Millisecond))
}
