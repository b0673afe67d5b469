package utility

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/workspace"
)

const (
	defaultSearchLimit = 50
	maxSearchLimit     = 500
	maxQueryChars      = 4096

	// maxSearchFiles and maxListingBytes (of their paths) bound a listing, and
	// maxSearchTime bounds how long a search waits for it. Beyond a bound, the
	// results are truncated.
	maxSearchFiles  = 1_000_000
	maxListingBytes = 128 << 20
	maxSearchTime   = 2 * time.Second
)

// search serves utility_file_search.
func (h *Host) search(ctx context.Context, cmd *contracts.UtilityFileSearch) error {
	rel, cwd, err := h.workingDir(cmd.SearchID, cmd.Cwd)
	if err != nil {
		return err
	}
	res := &contracts.UtilityFileSearchResults{
		SearchID: cmd.SearchID, Query: strings.TrimSpace(cmd.Query), Cwd: cwd,
		Results: []contracts.FileMatch{},
	}
	if utf8.RuneCountInString(res.Query) > maxQueryChars {
		return refuse(contracts.CodeBadRequest, cmd.SearchID, "Search query is too long")
	}
	if res.Query != "" {
		if err := h.find(ctx, res, rel, searchLimit(cmd)); err != nil {
			return err
		}
	}
	return h.publish(ctx, res)
}

func searchLimit(cmd *contracts.UtilityFileSearch) int {
	if cmd.Limit == nil {
		return defaultSearchLimit
	}
	return int(min(max(1, *cmd.Limit), maxSearchLimit))
}

// find fills in the results.
func (h *Host) find(ctx context.Context, res *contracts.UtilityFileSearchResults, rel string, limit int) error {
	select {
	case h.searching <- struct{}{}:
		defer func() { <-h.searching }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	listing, dir, err := h.list(ctx, rel)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, workspace.ErrOutside):
		return outside(res.SearchID, res.Cwd)
	case err != nil:
		return refuse(contracts.CodeNotFound, res.SearchID, "Working directory not found: "+res.Cwd)
	}
	matches, more := h.best(res.Query, rel, listing, dir, limit)
	left := maxResultBytes
	for _, m := range matches {
		m.Path = validText([]byte(m.Path)) // a file name may be any bytes
		if left -= wireBytes(m.Path) + len(`{"path":"","score":10000},`); left < 0 {
			more = true
			break
		}
		res.Results = append(res.Results, m)
	}
	res.Truncated = more || !listing.complete
	return nil
}

// best returns the best matches among the existing files of a listing below
// dir, at most limit, and whether there are more. at is the workspace path of
// dir.
func (h *Host) best(text, at string, f *listing, dir string, limit int) (matches []contracts.FileMatch, more bool) {
	q := newQuery(text)
	if !f.unsure {
		return q.rank(&f.index, dir, limit)
	}
	for window := limit + 1; ; window *= 4 {
		matches, more := q.rank(&f.index, dir, window)
		matches = slices.DeleteFunc(matches, func(m contracts.FileMatch) bool { return !h.isThere(at, m.Path) })
		if len(matches) > limit || !more {
			return matches[:min(limit, len(matches))], len(matches) > limit
		}
	}
}
