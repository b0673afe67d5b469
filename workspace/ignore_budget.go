package workspace

import (
	"context"
	"sync"

	gitignore "github.com/sabhiram/go-gitignore"
)

// Limits for the rules of one listing. Real files have hundreds of rules. Real
// trees with thousands of ignore files have 100,000 rules, most of them equal.
const (
	maxFileRules = 20_000
	maxRules     = 400_000

	// maxCompiled limits the total text of the regular expressions of different
	// globs. A compiled expression takes some hundred times the memory of its
	// text.
	maxCompiled = 256 << 10
	// compiledCost is counted for every expression in addition to its text.
	compiledCost = 16
)

// A budget counts what the rules of a listing cost. The zero value is unused.
// Its methods may be called from any goroutine.
type budget struct {
	ctx context.Context // of the listing; nil if it never ends

	mu       sync.Mutex
	rules    int                             // read so far
	size     int                             // of the compiled text
	compiled map[string]*gitignore.GitIgnore // by text
	over     bool                            // a rule or an expression was left out
}

// ended reports whether the listing has ended.
func (b *budget) ended() bool { return b.ctx != nil && b.ctx.Err() != nil }

// rule counts one more rule of a file that has already so many. It reports
// false if the file or the listing has reached its limit.
func (b *budget) rule(already int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if already == maxFileRules || b.rules == maxRules {
		b.over = true
		return false
	}
	b.rules++
	return true
}

// matchNothing matches no path.
var matchNothing = gitignore.CompileIgnoreLines()

// compile returns the regular expression of a glob. If the budget is used up,
// it returns matchNothing.
func (b *budget) compile(g *glob) *gitignore.GitIgnore {
	t, ok := translate(g.pattern, g.anchored, g.anywhere, g.fold)
	if !ok {
		return matchNothing
	}
	text := t.out.String()
	b.mu.Lock()
	defer b.mu.Unlock()
	if compiled := b.compiled[text]; compiled != nil {
		return compiled
	}
	if b.size+len(text)+compiledCost > maxCompiled {
		b.over = true
		return matchNothing
	}
	if b.compiled == nil {
		b.compiled = make(map[string]*gitignore.GitIgnore)
	}
	b.size += len(text) + compiledCost
	compiled := gitignore.CompileIgnoreLines(text)
	b.compiled[text] = compiled
	return compiled
}

// spent reports whether a rule or an expression was left out.
func (b *budget) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}
