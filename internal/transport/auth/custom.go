package auth

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// ask returns the principal that Options.Authenticate names. missing is the refusal
// without Authenticate.
func (g *Authenticator) ask(r *http.Request, missing error) (contracts.Principal, error) {
	if g.opts.Authenticate == nil {
		return contracts.Principal{}, g.countFailure(r, missing)
	}
	p, err := g.opts.Authenticate(r)
	if p.Role == contracts.RoleController { // as in a JWT: it limits nothing
		p.Role = ""
	}
	if err == nil {
		if problem := unfit(p); problem != "" {
			g.opts.Log.Error("a principal cannot be used", "principal", p.ID[:min(len(p.ID), contracts.MaxIDBytes)], "why", problem)
			return contracts.Principal{}, errors.New("unusable principal")
		}
		if p.Expired(g.opts.Now()) {
			err = errExpired
		}
	}
	if err != nil {
		switch refusal, refused := errors.AsType[*contracts.Error](err); {
		case !refused:
			err = (&contracts.Error{Code: contracts.CodeUnauthenticated, Message: errWrong.Error()}).WithCause(err)
		case refusal == nil || refusal.Code == "":
			g.opts.Log.Error("a refusal of Authenticate has no code", "err", err)
			return contracts.Principal{}, errors.New("unusable refusal")
		}
		return contracts.Principal{}, g.countFailure(r, err)
	}
	p.Expires = p.Expires.UTC()
	p.Name = cmp.Or(contracts.CleanLabel(p.Name, contracts.MaxLabelBytes), p.ID)
	return p, nil
}

// unfit returns why a principal of Options.Authenticate cannot be used, empty if it can.
func unfit(p contracts.Principal) string {
	reserved := func(prefix string) bool { return strings.HasPrefix(p.ID, prefix) }
	switch {
	case !contracts.ValidID(p.ID):
		return "ID: want 1 to 128 of A-Z a-z 0-9 . _ : -"
	case p.ID == Anonymous || reserved(ownerPrefix) || reserved(shareOwner):
		return "ID: " + Anonymous + ", " + ownerPrefix + "* and " + shareOwner + "* are reserved"
	case p.Scope != "" && (scopeOfClaim(p.Scope) != p.Scope || !validScope(p.Scope)):
		return "Scope: want at most 64 of a-z 0-9 . _ -, without the prefixes that are reserved"
	case p.SessionID != "" && !contracts.ValidID(p.SessionID):
		return "SessionID: malformed"
	case !slices.Contains([]contracts.Role{"", contracts.RoleViewer, contracts.RoleApprover}, p.Role):
		return "Role: want viewer, approver, or controller, which is the same as empty"
	case p.Credential != "" && !contracts.ValidID(p.Credential):
		return "Credential: want empty, or a text as of ID"
	case p.Expires.Unix() >= maxExpires:
		return "Expires: want a time before the year 10000, or zero"
	}
	return ""
}
