package workspace

import (
	"context"
	"sync"

	gitignore "github.com/sabhiram/go-gitignore"
)

// Bounds of the rules of one listing. Real files have hundreds of rules, and real
// trees with thousands of files of them a hundred thousand, most of them the same.
const (
	maxFileRules = 20_000
	maxRules     = 400_000

	// maxCompiled bounds the regular expressions of different globs, by what they
	// are compiled from: each takes some hundreds of times that.
	maxCompiled = 256 << 10
	// compiledCost is what even the shortest costs.
	compiledCost = 16
)

// A budget is how much the rules of a listing may still cost. Its zero value is
// all of it, and its methods may be called from any goroutine.
type budget struct {
	ctx context.Context // of the listing, for its end; nil for none

	mu       sync.Mutex
	rules    int                             // that were read
	size     int                             // of what was compiled
	compiled map[string]*gitignore.GitIgnore // by what it was compiled from
	over     bool                            // something was left out
}

// ended reports whether the time of the listing is over.
func (b *budget) ended() bool { return b.ctx != nil && b.ctx.Err() != nil }

// rule takes one rule of a file that has so many already. It reports false if
// there may be no more.
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

// nothing is what no path matches.
var nothing = gitignore.CompileIgnoreLines()

// compile returns the regular expression of a glob, or nothing if there may be no
// more of them.
func (b *budget) compile(g *glob) *gitignore.GitIgnore {
	t, ok := translate(g.pattern, g.anchored, g.anywhere, g.fold)
	if !ok {
		return nothing
	}
	text := t.out.String()
	b.mu.Lock()
	defer b.mu.Unlock()
	if compiled := b.compiled[text]; compiled != nil {
		return compiled
	}
	if b.size+len(text)+compiledCost > maxCompiled {
		b.over = true
		return nothing
	}
	if b.compiled == nil {
		b.compiled = make(map[string]*gitignore.GitIgnore)
	}
	b.size += len(text) + compiledCost
	compiled := gitignore.CompileIgnoreLines(text)
	b.compiled[text] = compiled
	return compiled
}

// spent reports whether something was left out.
func (b *budget) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}
