package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/show"
)

var errShareUsage = errors.New("/share takes a role (viewer, approver or controller), and a time such as 8h and a " +
	"name if you like; or list; or revoke and a number")

// share executes /share: it makes, lists or revokes links to the session.
func (a *attachment) share(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	session := a.view.session
	role := contracts.Role(word)
	switch {
	case word == "list" && rest == "":
		askServer(a, "share", func(ctx context.Context) (*contracts.ShareList, error) {
			return a.server.Shares(ctx, session)
		}, a.listShares)
	case word == "revoke":
		return a.revokeShare(session, rest)
	case role == contracts.RoleViewer || role == contracts.RoleApprover || role == contracts.RoleController:
		r := contracts.ShareRequest{Role: role, Label: rest}
		first, label, _ := strings.Cut(rest, " ")
		var e expiry
		if e.Set(first) == nil {
			if err := e.check(); err != nil {
				return fmt.Errorf("/share %s: %w", word, err)
			}
			r.Label, r.ExpiresInSeconds = strings.TrimSpace(label), e.seconds()
		}
		a.createShare(session, r)
	default:
		return errShareUsage
	}
	return nil
}

func (a *attachment) createShare(session string, r contracts.ShareRequest) {
	askServer(a, "share", func(ctx context.Context) (*contracts.ShareAnswer, error) {
		return a.server.CreateShare(ctx, session, r)
	}, func(made *contracts.ShareAnswer) {
		a.local.Line(console.Bold, fmt.Sprintf("-- whoever has this link is %s of this session until %s%s",
			show.OneLine(string(made.Role), 20), clock(made.ExpiresAt), colon(r.Label)))
		a.local.Block(console.Plain, a.shareURL+sharePart+show.InLine(made.Token, show.MaxArgs))
		a.local.Line(console.Dim, "-- in a terminal: maestro attach 'LINK'")
	})
}

func (a *attachment) listShares(list *contracts.ShareList) {
	a.shares = nil
	for i, s := range list.Shares {
		a.shares = append(a.shares, s.ShareID)
		used := ", not used"
		if s.Uses > 0 {
			from := show.OneLine(s.LastUsedFrom, 40)
			used = fmt.Sprintf(", used %d times, last %s from %s", s.Uses, clock(s.LastUsedAt), from)
		}
		role := show.OneLine(string(s.Role), 10)
		a.local.Line(console.Plain, fmt.Sprintf("%2d %-10s until %s%s%s",
			i+1, role, clock(s.ExpiresAt), used, colon(s.Label)))
	}
	if len(list.Shares) == 0 {
		a.local.Line(console.Dim, "-- this session has no shares")
	}
}

// revokeShare revokes a share by its number in the list that was shown last.
func (a *attachment) revokeShare(session, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(a.shares) {
		return errors.New("/share revoke takes a number: /share list shows them")
	}
	id := a.shares[n-1]
	askServer(a, "share", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, a.server.RevokeShare(ctx, session, id)
	}, func(struct{}) {
		a.local.Line(console.Dim, fmt.Sprintf("-- share %d is revoked, and its connections have ended", n))
	})
	return nil
}
