package auth

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// ask returns the principal that Options.Authenticate names. missing is the refusal
// without Authenticate.
func (g *Authenticator) ask(r *http.Request, missing error) (contracts.Principal, error) {
	if g.opts.Authenticate == nil {
		return contracts.Principal{}, g.countFailure(r, missing)
	}
	before, _ := g.signOuts.of("")
	p, err := g.opts.Authenticate(r)
	if p.Role == contracts.RoleController { // as in a JWT: it limits nothing
		p.Role = ""
	}
	if err == nil {
		if problem := unfit(p); problem != "" {
			g.opts.Log.Error("a principal cannot be used", "principal", p.ID[:min(len(p.ID), contracts.MaxIDBytes)], "why", problem)
			return contracts.Principal{}, errors.New("unusable principal")
		}
		_, last := g.signOuts.of(p.ID)
		switch {
		case p.Expired(g.opts.Now()):
			err = errExpired
		case last > before: // Authenticate may not have known yet
			err = errWrong
		case last > 0:
			p.Credential = cmp.Or(p.Credential, p.ID) + after(last)
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

// SignOut ends what Options.Authenticate has accepted of a principal: Alive is false for it,
// and its tickets and cookies are not valid any more. What Authenticate accepts later is
// valid. SignOut does not end connections.
func (g *Authenticator) SignOut(principalID string) {
	if g.opts.Authenticate != nil {
		g.signOuts.add(principalID)
	}
	for _, p := range []*passes{&g.tickets, &g.logins, &g.cookies.passes} {
		p.forget(principalID)
	}
	_ = g.cookies.save() // has been logged
}

// signOuts are the calls of SignOut, for requests that were accepted before and have not
// become connections yet. The credential of a principal that is accepted later names the
// call.
type signOuts struct {
	mu    sync.Mutex
	count uint64
	last  map[string]uint64 // number of the last call, by principal ID; at most maxSignOuts
}

// maxSignOuts bounds the principals in signOuts. At the bound all are forgotten.
const maxSignOuts = 4096

func (s *signOuts) add(principalID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || len(s.last) >= maxSignOuts {
		s.last = map[string]uint64{}
	}
	s.count++
	s.last[principalID] = s.count
}

// of returns how many calls there were, and the number of the last one for a principal, 0 if
// there was none.
func (s *signOuts) of(principalID string) (count, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.last[principalID]
}

// after ends the credential of a principal that was accepted after a call of SignOut.
func after(call uint64) string { return "#" + strconv.FormatUint(call, 10) }

// signedOut reports whether SignOut was called after Options.Authenticate accepted p.
func (g *Authenticator) signedOut(p contracts.Principal) bool {
	_, last := g.signOuts.of(p.ID)
	return last > 0 && p.ID != g.owner.ID && !isShare(p) && !strings.HasSuffix(p.Credential, after(last))
}
