package agent

import "github.com/seed-028515a8/maestro/agent/launcher"

// metadata returns the ids by which a provider's or a gateway's books find the
// work that a session does, as far as they are known: those of the session and
// what a launcher put into the environment.
func metadata(sessionID string, getenv func(string) string) map[string]string {
	known := map[string]string{launcher.Surface: "maestro"}
	if sessionID != "" {
		known["session_id"], known[launcher.Session] = sessionID, sessionID
	}
	for _, id := range launcher.IDs(getenv) {
		known[id.Key] = id.Value
	}
	return known
}
