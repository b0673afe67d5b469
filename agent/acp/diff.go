package acp

import (
	"strings"

	"github.com/seed-028515a8/maestro/agent/diff"
)

// unified returns the change of a file as a unified diff, "" if there is none.
func unified(path string, created bool, old, new string) string {
	path = strings.TrimPrefix(path, "/")
	from := "a/" + path
	if created {
		from = "/dev/null"
	}
	return diff.Unified(from, "b/"+path, old, new, diff.Options{})
}
