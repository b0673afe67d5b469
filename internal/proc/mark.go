package proc

import (
	"crypto/rand"
	"strings"
	"sync/atomic"
)

// markPrefix is the prefix of the variable that marks the processes of a
// server. Every server has its own name: a server that runs in a command of
// another keeps the other's mark, so that both find their processes.
const markPrefix = "MAESTRO_CHILD_"

var (
	markName = markPrefix + rand.Text()[:12]
	groups   atomic.Uint64 // number of groups started
)

// marks returns the marks in an environment, which no filter may remove.
func marks(env []string) []string {
	var found []string
	for _, entry := range env {
		if strings.HasPrefix(entry, markPrefix) {
			found = append(found, entry)
		}
	}
	return found
}
