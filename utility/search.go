package utility

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

const (
	defaultSearchLimit = 50
	maxSearchLimit     = 500
	maxQueryChars      = 4096

	// maxSearchFiles bounds a listing, and maxSearchTime bounds how long a search
	// waits for it. Beyond a bound, the results are truncated.
	maxSearchFiles = 1_000_000
	maxSearchTime  = 2 * time.Second
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
		limit := min(max(1, given(cmd.Limit, defaultSearchLimit)), maxSearchLimit)
		if err := h.find(ctx, res, rel, int(limit)); err != nil {
			return err
		}
	}
	return h.publish(ctx, res)
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
	q := newQuery(res.Query)
	matches, more := q.rank(&listing.index, dir, limit)
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
