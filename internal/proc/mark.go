package proc

import (
	"crypto/rand"
	"strings"
	"sync/atomic"
)

// markPrefix begins the name of the variable by which the processes of a server
// know each other. Every server has a name of its own: one that runs in a command
// of another leaves the mark of that alone, so that both find what is theirs.
const markPrefix = "MAESTRO_CHILD_"

var (
	markName = markPrefix + rand.Text()[:12]
	groups   atomic.Uint64 // that were started
)

// marks returns the marks in an environment, which no filter may take away.
func marks(env []string) []string {
	var found []string
	for _, entry := range env {
		if strings.HasPrefix(entry, markPrefix) {
			found = append(found, entry)
		}
	}
	return found
}
