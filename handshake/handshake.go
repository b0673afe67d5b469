package handshake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// Terms are the result of a negotiation. Every hello makes new terms that replace
// the old ones (R29).
//
// The zero value is for a client that has not said hello on a transport that
// requires it: it may do nothing. Negotiate an empty hello for a client that need
// not say hello.
type Terms struct {
	Role            contracts.Role
	ProtocolVersion string // the client's; empty if it sent none
	Mismatch        bool   // the versions differ, which is allowed and reported (R24)
	ClientInfo      *contracts.ClientInfo
	Capabilities    contracts.Capabilities
	HasCapabilities bool                     // the client sent capabilities, possibly empty
	OptOuts         []contracts.Notification // in the given order, without duplicates
	ClientTools     []contracts.ClientTool   // tools that the client runs for the agent
	DisplayName     string                   // that the user gives themselves, cleaned; empty if none
}

// An Offer holds what is known before the hello.
type Offer struct {
	Established contracts.Role // set by an earlier hello; empty if none
	Fixed       contracts.Role // chosen by the transport's query; empty if none
	Requests    bool           // over HTTP, where every role may list tool_retry, without effect
	Default     contracts.Role // for a hello without a role; empty means controller
}

// forbidden lists the requests that a role may not offer to answer, in the order of
// the checks. A viewer may list approvals and client tools, without effect.
var forbidden = map[contracts.Role][]contracts.RequestType{
	contracts.RoleViewer: {
		contracts.RequestMCPElicitation, contracts.RequestUserInput, contracts.RequestToolRetry,
	},
	contracts.RoleApprover: {
		contracts.RequestClientTool, contracts.RequestMCPElicitation, contracts.RequestToolRetry,
	},
}

// Negotiate returns the terms of h. The refusals are *contracts.Error, checked in
// this order: bad_request if a label is longer than [contracts.MaxLabelBytes] or
// the client's tools are invalid, role_conflict if h asks for another role than it
// has (R26), bad_request if h offers to answer a request that its role may not
// answer (R27). The terms share h's client info and capabilities, so
// h must not change afterwards.
func Negotiate(h *contracts.Hello, o Offer) (Terms, error) {
	if err := checkLabels(h); err != nil {
		return Terms{}, err
	}
	if err := checkTools(h); err != nil {
		return Terms{}, err
	}
	role, err := o.chooseRole(h.Role)
	if err != nil {
		return Terms{}, err
	}
	t := Terms{
		Role:            role,
		ProtocolVersion: h.ProtocolVersion,
		Mismatch:        h.ProtocolVersion != "" && h.ProtocolVersion != contracts.ProtocolVersion,
		ClientInfo:      h.ClientInfo,
		OptOuts:         distinct(h.OptOutNotifications),
		ClientTools:     h.ClientTools,
		DisplayName:     contracts.CleanLabel(h.DisplayName, contracts.MaxLabelBytes),
	}
	if h.Capabilities != nil {
		t.Capabilities, t.HasCapabilities = *h.Capabilities, true
		t.Capabilities.ServerRequests = distinct(h.Capabilities.ServerRequests)
		t.Capabilities.UtilityOperations = distinct(h.Capabilities.UtilityOperations)
	}
	for _, kind := range forbidden[role] {
		if o.Requests && kind == contracts.RequestToolRetry {
			continue
		}
		if slices.Contains(t.Capabilities.ServerRequests, kind) {
			return Terms{}, refuse(contracts.CodeBadRequest,
				string(role)+" headless connections cannot negotiate "+string(kind)+" requests")
		}
	}
	return t, nil
}

// checkLabels limits the length of the texts that all clients are shown.
func checkLabels(h *contracts.Hello) error {
	labels := []string{h.ProtocolVersion, h.DisplayName}
	if h.ClientInfo != nil {
		labels = append(labels, h.ClientInfo.Name, h.ClientInfo.Version)
	}
	for _, label := range labels {
		if len(label) > contracts.MaxLabelBytes {
			return refuse(contracts.CodeBadRequest, fmt.Sprintf("protocol_version, client_info and display_name may have at most %d bytes each", contracts.MaxLabelBytes))
		}
	}
	return nil
}

func checkTools(h *contracts.Hello) error {
	if len(h.ClientTools) == 0 {
		return nil
	}
	if h.Capabilities == nil || !slices.Contains(h.Capabilities.ServerRequests, contracts.RequestClientTool) {
		return refuse(contracts.CodeBadRequest, "client_tools needs the client_tool capability")
	}
	size, names := 0, map[string]bool{}
	for _, tool := range h.ClientTools {
		size += len(tool.Name) + len(tool.Description) + len(tool.InputSchema)
		if !validToolName(tool.Name) || names[tool.Name] {
			return refuse(contracts.CodeBadRequest, "the names of client_tools must differ and have 1 to 64 letters, digits, _ or -")
		}
		names[tool.Name] = true
		var schema map[string]any
		if json.Unmarshal(tool.InputSchema, &schema) != nil || schema == nil {
			return refuse(contracts.CodeBadRequest, "the input_schema of a client tool must be an object")
		}
	}
	if len(h.ClientTools) > contracts.MaxClientTools || size > contracts.MaxClientToolBytes {
		return refuse(contracts.CodeBadRequest, fmt.Sprintf("at most %d client_tools of %d bytes together are allowed", contracts.MaxClientTools, contracts.MaxClientToolBytes))
	}
	return nil
}

// validToolName reports whether every model provider accepts name as a tool name.
func validToolName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// chooseRole returns the role of a client that asked for want, which may be empty.
func (o Offer) chooseRole(want contracts.Role) (contracts.Role, error) {
	for _, has := range []contracts.Role{o.Established, o.Fixed} {
		switch {
		case has == "":
		case want == "":
			want = has // a hello without a role keeps its role (R25)
		case want != has:
			return "", refuse(contracts.CodeRoleConflict, "headless connection role cannot change after hello")
		}
	}
	switch {
	case want != "":
		return want, nil
	case o.Default != "":
		return o.Default, nil
	}
	return contracts.RoleController, nil
}

// CanAnswer reports whether the client may be asked a question of the type. Every
// controller answers approvals, which depend only on the approval mode (section
// 3.6). An approver answers approvals and user input. A viewer answers nothing.
func (t Terms) CanAnswer(kind contracts.RequestType) bool {
	switch t.Role {
	case contracts.RoleController:
		return kind == contracts.RequestApproval || slices.Contains(t.Capabilities.ServerRequests, kind)
	case contracts.RoleApprover:
		return ApproverAnswers(kind)
	}
	return false
}

// ApproverAnswers reports whether an approver may answer a question of the type.
func ApproverAnswers(kind contracts.RequestType) bool {
	return kind == contracts.RequestApproval || kind == contracts.RequestUserInput
}

// CanUse reports whether the client may use a utility operation. Only a controller
// may.
func (t Terms) CanUse(op contracts.UtilityOperation) bool {
	return t.Role == contracts.RoleController && slices.Contains(t.Capabilities.UtilityOperations, op)
}

// Name returns the client's name without surrounding space, or "".
func (t Terms) Name() string {
	if t.ClientInfo == nil {
		return ""
	}
	return strings.TrimSpace(t.ClientInfo.Name)
}

// RawEvents reports whether the client wants the runtime's internal events (R32).
// Viewers may want them.
func (t Terms) RawEvents() bool { return t.Capabilities.RawAgentEvents }

// People reports whether the client wants to see who did what.
func (t Terms) People() bool { return t.Capabilities.People }

// Shown returns the capabilities as other clients see them: without people, which
// clients that did not ask for it need not know. It returns nil if the client sent none.
func (t Terms) Shown() *contracts.Capabilities {
	if !t.HasCapabilities {
		return nil
	}
	shown := t.Capabilities
	shown.People = false
	return &shown
}

// Echo returns the capabilities for hello_ok: nil if the client sent none.
func (t Terms) Echo() *contracts.Capabilities {
	if !t.HasCapabilities {
		return nil
	}
	return &t.Capabilities
}

// distinct returns list without duplicates, or nil if it is empty. The result does
// not share list's memory.
func distinct[T comparable](list []T) []T {
	var out []T
	for _, n := range list {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func refuse(code contracts.Code, message string) *contracts.Error {
	return &contracts.Error{Code: code, Message: message, Type: contracts.ErrorProtocol}
}
