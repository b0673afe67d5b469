package utility

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

const (
	// maxListings and maxSearchFiles, counted over all of them, bound the
	// listings that are kept.
	maxListings = 16

	// maxListingAge bounds what a listing may miss that no file's time tells,
	// such as a setting of git on which the rules depend.
	maxListingAge = 30 * time.Second
)

// A keptListing is what a directory's search was made of.
type keptListing struct {
	dir     string // relative to the root, links resolved
	files   []string
	depends workspace.Listing // without its files; what makes the listing current
	made    time.Time
}

// A listings keeps the newest listings as long as they are current, so that
// a search for each letter that somebody types lists once. Its methods may be
// called from any goroutine.
type listings struct {
	mu   sync.Mutex
	kept []keptListing // oldest first
}

// get returns the files below dir, if they are known.
func (c *listings) get(ws *workspace.Workspace, dir string, now time.Time) ([]string, bool) {
	c.mu.Lock()
	i := slices.IndexFunc(c.kept, func(k keptListing) bool { return k.dir == dir })
	if i < 0 {
		c.mu.Unlock()
		return nil, false
	}
	found := c.kept[i]
	c.mu.Unlock()
	if now.Sub(found.made) <= maxListingAge && ws.Current(found.depends) {
		return found.files, true
	}
	return nil, false
}

// put keeps a listing in the place of an older one of the same directory.
func (c *listings) put(k keptListing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.depends.Files = nil
	c.kept = slices.DeleteFunc(c.kept, func(old keptListing) bool { return old.dir == k.dir })
	c.kept = append(c.kept, k)
	files := 0
	for _, k := range c.kept {
		files += len(k.files)
	}
	for len(c.kept) > maxListings || files > maxSearchFiles && len(c.kept) > 1 {
		files -= len(c.kept[0].files)
		c.kept = slices.Delete(c.kept, 0, 1)
	}
}
