package web

import (
	"cmp"
	"path"
	"regexp"
	"testing"
)

var (
	named    = regexp.MustCompile(`(?:href|src)="(/assets/[^"]*)"`)
	imported = regexp.MustCompile(`(?:from|import) ?"([^"]*\.js)"`) // not import("..."), which loads later
)

// A first visit loads the page, what it names, and what its scripts import, in all at
// most 200 KiB with gzip. Highlighting and terminals are loaded when they are needed.
func TestFirstVisitFitsItsBudget(t *testing.T) {
	const budget = 200 << 10
	total, scripts := 0, 0
	seen := map[string]bool{}
	var load func(name string)
	load = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		a, ok := assets()[name]
		if !ok {
			t.Fatalf("got no %s, which a first visit loads", name)
		}
		total += cmp.Or(len(a.gzipped), len(a.text))
		refers := named
		if path.Ext(name) == ".js" {
			scripts++
			refers = imported
		}
		for _, found := range refers.FindAllStringSubmatch(string(a.text), -1) {
			load("/assets/" + path.Base(found[1]))
		}
	}
	load("/")
	if scripts < 2 {
		t.Errorf("got %d scripts, want the theme and the page at least", scripts)
	}
	if total > budget {
		t.Errorf("got %d bytes with gzip, want at most %d", total, budget)
	}
	t.Logf("%d bytes in %d files", total, len(seen))
}
