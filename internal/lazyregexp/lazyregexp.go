// Package lazyregexp compiles regular expressions at their first use. Compiling
// those of package variables at every start of the program would take half a
// millisecond.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression. The function
// panics if the expression cannot be compiled. Goroutines may share it.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
