package mcp

import "maps"

// HeadersFor returns the headers of a server for another program that connects
// to it in a session: the configured ones and, for the platform's server, the
// session's id. They do not include a per-request id.
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
