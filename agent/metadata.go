package agent

import "github.com/seed-028515a8/maestro/agent/launcher"

// metadata returns the known ids by which a provider or gateway attributes the
// work of a session: those of the session and those that a launcher put into
// the environment.
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
