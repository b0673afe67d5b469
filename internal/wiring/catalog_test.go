package wiring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
)

// newCatalog returns the catalog of a folder with n sessions, of which s-0 was
// used first.
func newCatalog(t *testing.T, n int) (c *catalog, dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		session := filepath.Join(dir, sessionFolder(fmt.Sprint(i)))
		if err := os.Mkdir(session, 0o700); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-n) * time.Minute)
		if err := os.Chtimes(session, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return &catalog{folder: func(scope string) string { return filepath.Join(dir, scope) }, most: 1000}, dir
}

func (c *catalog) ids(t *testing.T, scope string, most int) (ids []string) {
	t.Helper()
	found, err := c.list(scope, most, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range found {
		ids = append(ids, k.SessionID)
	}
	return ids
}

func TestCatalogListsTheLatestFirst(t *testing.T) {
	c, _ := newCatalog(t, 50)
	if got, want := c.ids(t, "", 3), []string{"49", "48", "47"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	c.touch("", "7")
	if err := os.Mkdir(c.folder(sessionFolder("new")), 0o700); err != nil {
		t.Fatal(err)
	}
	c.touch("", "new")
	if got, want := c.ids(t, "", 3), []string{"new", "7", "49"}; !slices.Equal(got, want) {
		t.Errorf("after two were used: got %q, want %q", got, want)
	}
}

// What is not listed is not looked at: it may be a lot.
func TestCatalogLooksAtWhatItListsOnly(t *testing.T) {
	c, dir := newCatalog(t, 50)
	c.ids(t, "", 1)
	for i := range 40 {
		if err := os.Remove(filepath.Join(dir, sessionFolder(fmt.Sprint(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.ids(t, "", 10); len(got) != 10 || c.size != 50 {
		t.Errorf("got %q of %d, want 10 of the 50 that were there", got, c.size)
	}
	if full, err := c.full("", 51); full || err != nil || c.size != 50 {
		t.Errorf("got %t and %v for more than there are, and %d known, want room without a look", full, err, c.size)
	}
	if full, err := c.full("", 50); full || err != nil || c.size != 10 {
		t.Errorf("got %t and %v, and %d known, want room after 40 were removed", full, err, c.size)
	}
}

func TestCatalogForgetsRemovedSessionsAsItListsThem(t *testing.T) {
	c, dir := newCatalog(t, 5)
	c.ids(t, "", 1)
	if err := os.Remove(filepath.Join(dir, sessionFolder("3"))); err != nil {
		t.Fatal(err)
	}
	if got, want := c.ids(t, "", 10), []string{"4", "2", "1", "0"}; !slices.Equal(got, want) || c.size != 4 {
		t.Errorf("got %q and %d known, want %q", got, c.size, want)
	}
}

func TestCatalogIsBounded(t *testing.T) {
	c, dir := newCatalog(t, 1)
	c.most = 100
	for i := range 30 {
		scope := fmt.Sprint("scope-", i)
		for j := range 10 {
			if err := os.MkdirAll(filepath.Join(dir, scope, sessionFolder(fmt.Sprint(j))), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.ids(t, scope, 100); len(got) != 10 || c.size > c.most {
			t.Errorf("%s: got %d sessions and %d known, want 10 and at most %d", scope, len(got), c.size, c.most)
		}
	}
}

// Sessions that an operator removes make room for others.
func TestTooManySessionsAreNotMade(t *testing.T) {
	t.Parallel()
	sh := newTestServer(t)
	sh.Sessions.opts.MaxKept = 3
	for i := range 3 {
		if _, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: fmt.Sprint(i), Create: true}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "more", Create: true})
	if !errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := os.RemoveAll(filepath.Join(sh.Sessions.Dir, sessionFolder("1"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "more", Create: true}); err != nil {
		t.Errorf("after one was removed: got %v, want a session", err)
	}
}

func BenchmarkListing(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			sh := serverWith(b, n)
			p := contracts.Principal{}
			sh.list(p)
			for b.Loop() {
				sh.list(p)
			}
		})
	}
}

func BenchmarkCreating(b *testing.B) {
	for _, n := range []int{100, 9_000} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			sh := serverWith(b, n)
			sh.list(contracts.Principal{})
			for b.Loop() {
				if full, err := sh.Sessions.kept.full("", DefaultKept); full || err != nil {
					b.Fatal(full, err)
				}
			}
		})
	}
}

// serverWith returns a server with that many sessions on the disk.
func serverWith(b *testing.B, n int) *Server {
	b.Helper()
	sh := newTestServer(b)
	for i := range n {
		dir := filepath.Join(sh.Sessions.Dir, sessionFolder(fmt.Sprint(i)))
		store, err := journal.Open(dir, journal.FileOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
	}
	return sh
}
