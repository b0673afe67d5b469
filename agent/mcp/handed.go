package mcp

import "maps"

// HeadersFor returns the headers of a server for somebody else who speaks to it in
// a session: those that it has and, if it is the platform's, the session's id. An
// id of each request is not among them.
func (s Server) HeadersFor(sessionID string) map[string]string {
	all := maps.Clone(s.Headers)
	if !s.Platform || sessionID == "" || !headerValue(sessionID) || all[sessionHeader] != "" {
		return all
	}
	if all == nil {
		all = map[string]string{}
	}
	all[sessionHeader] = sessionID
	return all
}
