package mcp

import (
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// variable matches ${NAME} and ${NAME:-text}. Any other dollar sign is literal.
var variable = lazyregexp.New(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// expand replaces variables with their values. As in a shell, the text after :-
// is used if the variable is unset or empty. A variable that is unset and has
// no such text is an error: otherwise the program would start with an
// incomplete configuration and fail later with a less clear error.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var missing error
	text = variable().ReplaceAllStringFunc(text, func(match string) string {
		parts := variable().FindStringSubmatch(match)
		value, set := lookup(parts[1])
		if fallback, ok := strings.CutPrefix(parts[2], ":-"); ok && value == "" {
			return fallback
		}
		if !set && missing == nil {
			missing = fmt.Errorf("the variable %s is not set", parts[1])
		}
		return value
	})
	if missing == nil && len(text) > maxPartBytes {
		missing = fmt.Errorf("is longer than %d bytes", maxPartBytes)
	}
	return text, missing
}
