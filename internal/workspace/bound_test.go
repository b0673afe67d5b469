package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A configuration that includes itself again and again is not read for ever, and
// what it says before that counts.
func TestIncludesAreBounded(t *testing.T) {
	quietGit(t)
	const bomb = "[include]\n" + "path = config\n"
	config := "[core]\nignoreCase = true\n" + bomb + strings.Repeat("path = config\n", 20)
	w := open(t, withRepository(map[string]string{
		".git/config": config, "sub/.git/config": config, ".gitignore": "X\n", "sub/.gitignore": "X\n", "x": "", "sub/x": "", "a": "", "sub/a": "",
	}, ".", "sub"))
	done := make(chan struct{})
	go func() { // ends with the listing
		defer close(done)
		wantFiles(t, w, ".", ".gitignore", "sub/.gitignore", "a", "sub/a")
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("got no listing of repositories that include themselves, want one")
	}
}

// The budget of a configuration is in files and in bytes, and ends with ctx.
func TestConfigurationIsReadWithinItsBounds(t *testing.T) {
	quietGit(t)
	long := "#" + strings.Repeat("x", 1<<19) + "\n"
	for name, c := range map[string]struct {
		files map[string]string
		most  int
	}{
		"files": {map[string]string{".git/config": "[include]\n" + strings.Repeat("path = one\n", 1000), ".git/one": "[a]\nb\n"}, maxConfigFiles + 1},
		"bytes": {map[string]string{".git/config": "[include]\n" + strings.Repeat("path = one\n", 100), ".git/one": long}, maxConfigBytes>>19 + 4},
	} {
		w := open(t, withRepository(c.files, "."))
		v := (&walk{w: w, ctx: t.Context(), limit: 10}).visit()
		got := v.configure(w.Root(), filepath.Join(w.Root(), ".git"))
		if got.files > c.most || got.files < 5 {
			t.Errorf("%s: got %d files read, want at most %d", name, got.files, c.most)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		v = (&walk{w: w, ctx: ctx, limit: 10}).visit()
		if got := v.configure(w.Root(), filepath.Join(w.Root(), ".git")); got.files > 0 {
			t.Errorf("%s: got %d files read after the end, want none", name, got.files)
		}
	}
}

// Of very many rules the first ones count, and the listing says that it is not
// all there is to say.
func TestRulesAreBounded(t *testing.T) {
	quietGit(t)
	many := func(form string, from, n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, form+"\n", from+i)
		}
		return text.String()
	}
	var globs strings.Builder
	for i := range maxCompiled / 32 { // of which no name can be told not to match
		fmt.Fprintf(&globs, "[%c][%c][%c]*\n", 'A'+i%26, 'A'+i/26%26, 'A'+i/26/26)
	}
	for name, files := range map[string]map[string]string{
		"of a file": {".gitignore": "early\n" + many("%d", 0, maxFileRules) + "late\n"},
		"globs":     {".gitignore": globs.String()},
	} {
		files["early"], files["late"], files["x"] = "", "", ""
		w := open(t, files)
		listing, err := w.List(t.Context(), ".", 1000)
		must(t, err)
		if listing.Complete {
			t.Errorf("%s: got a complete listing, want one that says that rules were left out", name)
		}
		if got := strings.Join(listing.Files, " "); name == "of a file" && got != ".gitignore late x" {
			t.Errorf("%s: got %s, want .gitignore late x", name, got)
		}
	}
	b := &budget{ctx: t.Context()}
	for i := range maxRules {
		if !b.rule(i % maxFileRules) {
			t.Fatalf("got no rule %d, want %d of all files", i, maxRules)
		}
	}
	if b.rule(0) || !b.spent() {
		t.Errorf("got more than %d rules, want no more", maxRules)
	}
}

// What globs are compiled to is kept once for all of a listing, and not beyond
// its bound.
func TestGlobsAreCompiledOnceAndWithinTheirBound(t *testing.T) {
	b := &budget{ctx: t.Context()}
	var made int
	for i := range maxCompiled / compiledCost {
		r, ok := parseRule(fmt.Sprintf("*%d*?*", i), false)
		again, _ := parseRule(fmt.Sprintf("*%d*?*", i), false)
		if !ok || r.glob == nil {
			t.Fatal("got no glob, want one")
		}
		text := fmt.Sprintf("%dx", i)
		if r.matches(b, text, text, false) {
			made++
		}
		if first, second := r.glob.compiled.Load(), b.compile(again.glob); first != second {
			t.Fatalf("glob %d: got it compiled twice, want once", i)
		}
	}
	if made != len(b.compiled) || made < 1000 || b.size > maxCompiled || !b.spent() {
		t.Errorf("got %d globs of %d bytes, spent %v; want as many as fit %d bytes", made, b.size, b.spent(), maxCompiled)
	}
}

// Once the time is over no glob is looked at.
func TestGlobsEndWithTheListing(t *testing.T) {
	r, _ := parseRule("a*", false)
	ctx, cancel := context.WithCancel(t.Context())
	b := &budget{ctx: ctx}
	if !r.matches(b, "ab", "ab", false) {
		t.Error("got no match, want one")
	}
	cancel()
	if r.matches(b, "ab", "ab", false) {
		t.Error("got a match after the end, want none")
	}
}
