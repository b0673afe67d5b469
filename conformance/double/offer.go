package double

import (
	"encoding/json"
	"regexp"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// offered returns the names of the tools that the agent is offered: those that
// the controller's latest hello announced.
func (r *room) offered() []string {
	var tools []contracts.ClientTool
	switch {
	case r.s.has(HidesTools) || r.holder == nil:
	case r.s.has(KeepsTools):
		tools = r.announced
	case r.s.has(ViewersTools):
		for _, c := range r.clients {
			tools = append(tools, c.hello.ClientTools...)
		}
	default:
		tools = r.holder.hello.ClientTools
	}
	names := []string{}
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return names
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// checkTools refuses tools that no agent could be offered.
func (s *Server) checkTools(h *contracts.Hello) *contracts.Error {
	if len(h.ClientTools) == 0 || s.has(MalformedTools) {
		return nil
	}
	asking := h.Capabilities != nil && slices.Contains(h.Capabilities.ServerRequests, contracts.RequestClientTool)
	if !asking && !s.has(UncalledTools) {
		return refuse(contracts.CodeBadRequest, contracts.ErrorProtocol, "client_tools needs the client_tool capability")
	}
	size, names := 0, map[string]bool{}
	for _, t := range h.ClientTools {
		size += len(t.Name) + len(t.Description) + len(t.InputSchema)
		var schema map[string]any
		if !toolName.MatchString(t.Name) || names[t.Name] || json.Unmarshal(t.InputSchema, &schema) != nil || schema == nil {
			return refuse(contracts.CodeBadRequest, contracts.ErrorProtocol, "a client tool has no name of its own, or no schema")
		}
		names[t.Name] = true
	}
	if len(names) > contracts.MaxClientTools || size > contracts.MaxClientToolBytes {
		return refuse(contracts.CodeBadRequest, contracts.ErrorProtocol, "too many client_tools")
	}
	return nil
}
