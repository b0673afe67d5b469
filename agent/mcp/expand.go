package mcp

import (
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// variable is ${NAME} or ${NAME:-text}. Anything else with a dollar sign is left
// as it is.
var variable = lazyregexp.New(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// expand puts in the values of variables. As in a shell, the text after :- counts
// if there is no variable or it is empty. A variable that is needed and not set
// is an error: a program that starts with half of its configuration fails later
// and says less.
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
