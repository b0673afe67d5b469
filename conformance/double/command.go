package double

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/conformance/shape"
	"github.com/seed-028515a8/maestro/contracts"
)

// refuse makes a refusal.
func refuse(code contracts.Code, kind contracts.ErrorType, text string) *contracts.Error {
	return &contracts.Error{Code: code, Type: kind, Message: text}
}

func badRequest(text string) *contracts.Error {
	return refuse(contracts.CodeBadRequest, contracts.ErrorProtocol, "Failed to parse command: "+text)
}

// decode reads a message from a client.
func (s *Server) decode(text []byte) (contracts.Command, *contracts.Error) {
	if s.has(FoldsCase) {
		text = bytes.Replace(text, []byte(`"Content"`), []byte(`"content"`), 1)
	}
	v, err := shape.Parse(text)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	m, _ := v.(map[string]any)
	if _, ok := m["type"].(string); !ok {
		return nil, badRequest("Invalid headless command: $.type Expected known headless command type")
	}
	cmd, problems, known := shape.Command(v, !s.strict())
	switch {
	case !known:
		return nil, badRequest("Unknown headless command type")
	case problems != nil:
		return nil, badRequest("Invalid headless command: " + shape.Join(problems))
	}
	if h, ok := cmd.(*contracts.Hello); ok {
		return cmd, s.checkWords(h)
	}
	return cmd, nil
}

// strict reports whether additions are refused (D13).
func (s *Server) strict() bool { return s.opts.Strict || s.has(RefusesMore) }

// checkWords refuses a hello with words that habits do not know.
func (s *Server) checkWords(h *contracts.Hello) *contracts.Error {
	switch {
	case s.has(NoElicitations) && h.Capabilities != nil && slices.Contains(h.Capabilities.ServerRequests, contracts.RequestMCPElicitation):
		return badRequest("Invalid headless command: /capabilities/server_requests Expected union value")
	case s.has(OptOutOnce) && len(unique(h.OptOutNotifications)) != len(h.OptOutNotifications):
		return badRequest("Invalid headless command: /opt_out_notifications Expected array elements to be unique")
	}
	return nil
}

// admit checks that the client may send the command and has it done.
func (c *client) admit(cmd contracts.Command) *contracts.Error {
	r := c.room
	if h, ok := cmd.(*contracts.Hello); ok && (r.bare || c.role != contracts.RoleViewer) {
		return c.again(h)
	}
	viewerPrompts := r.s.has(ViewerMayPrompt) && cmd.CommandType() == "prompt"
	if c.role == contracts.RoleViewer && !viewerPrompts {
		c.violations++
		return refuse(contracts.CodeAccessDenied, contracts.ErrorProtocol, "Viewer headless connections cannot send messages")
	}
	if e := r.claim(c); e != nil && !viewerPrompts && !r.s.has(LoserKeepsDriving) {
		return e
	}
	return c.do(cmd)
}

// again handles a hello after the first.
func (c *client) again(h *contracts.Hello) *contracts.Error {
	if h.Role != "" && c.hello.Role != "" && h.Role != c.role {
		return refuse(contracts.CodeRoleConflict, contracts.ErrorProtocol, "headless connection role cannot change after hello")
	}
	if c.hello.Role == "" {
		c.role = cmp.Or(h.Role, contracts.RoleController) // the first hello on stdio
	}
	if e := checkViewer(c.role, h, viewerForbidden...); e != nil {
		return e
	}
	if e := c.room.s.checkTools(h); e != nil {
		return e
	}
	c.accept(h)
	c.greet()
	return nil
}

// accept stores what a hello said.
func (c *client) accept(h *contracts.Hello) {
	c.hello = *h
	c.hello.Role = c.role
	c.hello.OptOutNotifications = unique(h.OptOutNotifications)
	if len(h.ClientTools) > 0 && c.role == contracts.RoleController {
		c.room.announced = h.ClientTools
	}
	for _, s := range c.subs {
		s.own = false // applies to all of them at once
	}
	if c.room.bare {
		c.room.holder = nil
		if c.role == contracts.RoleController {
			c.room.holder = c
		}
	}
}

// checkViewer refuses a viewer that offers to answer questions of some types.
func checkViewer(role contracts.Role, h *contracts.Hello, kinds ...contracts.RequestType) *contracts.Error {
	if role != contracts.RoleViewer || h.Capabilities == nil {
		return nil
	}
	for _, kind := range kinds {
		if slices.Contains(h.Capabilities.ServerRequests, kind) {
			return refuse(contracts.CodeBadRequest, contracts.ErrorProtocol, "viewer headless connections cannot negotiate "+string(kind)+" requests")
		}
	}
	return nil
}

// do carries out a command of the controller.
func (c *client) do(cmd contracts.Command) *contracts.Error {
	r := c.room
	switch cmd := cmd.(type) {
	case *contracts.Init:
		r.configure(cmd)
	case *contracts.Prompt:
		return r.prompt(c, cmd)
	case *contracts.Interrupt:
		r.stop("Interrupted", "Run interrupted by user", cmd)
	case *contracts.Cancel:
		r.stop("Cancelled", "Run cancelled by user", cmd)
	case *contracts.Shutdown:
		r.shutdown()
	case *contracts.ToolResponse:
		return r.answerApproval(cmd.CallID, "approval", cmd.Approved, cmd.Result, cmd)
	case *contracts.ClientToolResult:
		return r.answerContent(cmd)
	case *contracts.ServerRequestResponse:
		return r.respond(cmd)
	case *contracts.UtilityCommandTerminate, *contracts.UtilityFileWatchStop:
		return c.operate(cmd)
	default:
		return c.utility(cmd)
	}
	return nil
}

// viewerForbidden are the questions that a viewer may not offer to answer on
// stdio and sockets.
var viewerForbidden = []contracts.RequestType{contracts.RequestMCPElicitation, contracts.RequestUserInput, contracts.RequestToolRetry}

// utility refuses an operation, unless there is a workspace and the client
// announced that it wants such.
func (c *client) utility(cmd contracts.Command) *contracts.Error {
	kind := cmd.CommandType()
	op := contracts.OperationCommandExec
	for _, o := range []contracts.UtilityOperation{contracts.OperationFileSearch, contracts.OperationFileWatch, contracts.OperationFileRead} {
		if strings.Contains(kind, string(o)) {
			op = o
		}
	}
	text := kind + " requires " + string(op) + " capability"
	if caps := c.hello.Capabilities; caps != nil && slices.Contains(caps.UtilityOperations, op) {
		if c.room.s.workspace() != "" {
			return c.operate(cmd)
		}
		text = kind + " is not offered here"
	}
	return refuse(contracts.CodeUnsupportedCapability, contracts.ErrorTool, text)
}

// configure applies an init.
func (r *room) configure(cmd *contracts.Init) {
	var applied []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"system_prompt", cmd.SystemPrompt != nil}, {"append_system_prompt", cmd.AppendSystemPrompt != nil},
		{"thinking_level", cmd.ThinkingLevel != ""}, {"approval_mode", cmd.ApprovalMode != ""},
	} {
		if f.set {
			applied = append(applied, f.name)
		}
	}
	r.lastInit = encode("init", cmd)
	text := "Init received with no changes"
	if len(applied) > 0 {
		text = "Initialized: " + strings.Join(applied, ", ")
	}
	if r.bare || !r.s.has(SilentInit) {
		r.publish(&contracts.Status{Message: text})
	}
	if cmd.ApprovalMode != "" {
		r.mode = cmd.ApprovalMode
		r.settleApprovals()
	}
}

// stop interrupts whatever is going on.
func (r *room) stop(word, text string, cmd contracts.Command) {
	if !r.s.has(KeepsRequests) {
		r.cancelQuestions(word + " before request completed")
	}
	applyCommand(&r.state, cmd)
	r.endUtilities(word, everybody)
	if r.run != nil {
		r.endRun(text)
	}
	r.publishSnapshot()
}

func (r *room) shutdown() {
	if r.ending {
		return
	}
	r.ending = true
	r.cancelQuestions("Shutdown before request completed")
	applyCommand(&r.state, &contracts.Shutdown{})
	r.endUtilities("Headless runtime shutdown", everybody)
	if r.run != nil {
		r.endRun("")
	}
	if len(r.programs) == 0 {
		r.finish()
	}
}

// finish closes a session that was shut down, once its commands have exited.
func (r *room) finish() {
	r.publishSnapshot()
	r.end()
}
