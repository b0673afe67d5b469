package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// The forms of scopes. A scope names a folder, also on file systems that ignore
// case, and stands in logs. No scope has two of these forms, so that no
// principal can be given the scope of another.
const (
	principalScope = "principal_" // and a hash: the tuple has no plain form
	claimedScope   = "claim_"     // and a hash: the claim has no plain form
	maxScope       = 64           // characters
)

var (
	// plainPart is a part of a tuple that stands in a scope as it is. It contains
	// no underscore, so that the parts of the scope can be told apart.
	plainPart = lazyregexp.New(`^[a-z0-9.-]+$`)

	// plainClaim is the plain form of a scope that a claim names.
	plainClaim = lazyregexp.New(`^[a-z0-9_-][a-z0-9._-]*$`)

	// legalClaim is what a claim may say.
	legalClaim = lazyregexp.New(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

	hashedScope = lazyregexp.New(`^(?:principal|claim)_[0-9a-f]{32}$`)
)

// scopeKey returns the scope of a principal, by what its issuer says of it. Distinct
// tuples have distinct scopes.
func scopeKey(workspace, org, team, user string) string {
	var parts []string
	plain := !strings.HasSuffix(user, ".") // which some file systems leave out
	for _, part := range [][2]string{{"workspace_", workspace}, {"org_", org}, {"team_", team}, {"user_", user}} {
		if part[1] != "" {
			parts = append(parts, part[0]+part[1])
			plain = plain && plainPart().MatchString(part[1])
		}
	}
	if scope := strings.Join(parts, "__"); plain && len(scope) <= maxScope {
		return scope
	}
	return principalScope + hashOf(workspace, org, team, user)
}

// scopeOfClaim returns the scope that a legal claim names. Distinct claims have
// distinct scopes, none of which is also that of a tuple.
func scopeOfClaim(claim string) string {
	if plainClaim().MatchString(claim) && !strings.HasSuffix(claim, ".") && !likeTuple(claim) {
		return claim
	}
	return claimedScope + hashOf(claim)
}

// likeTuple reports whether a claim has a form that is for others.
func likeTuple(claim string) bool {
	return strings.HasPrefix(claim, "user_") || strings.Contains(claim, "__user_") ||
		strings.HasPrefix(claim, principalScope) || strings.HasPrefix(claim, claimedScope)
}

// hashOf returns 128 bits of the SHA-256 of the texts as netstrings: each after
// its length, so that no two lists look alike.
func hashOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(text), text) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// oldTuple is what the scope of a tuple looked like in earlier versions, if
// only that tuple had it.
var oldTuple = lazyregexp.New(`^(?:workspace_([A-Za-z0-9.-]+)__)?(?:org_([A-Za-z0-9.-]+)__)?(?:team_([A-Za-z0-9.-]+)__)?user_([A-Za-z0-9.-]+)$`)

// CurrentScope returns what a scope of an earlier version is called now. Those
// versions gave different principals one scope; for such a scope ok is false,
// because nobody can say whose it is. A current scope is returned as it is.
func CurrentScope(old string) (now string, ok bool) {
	switch parts := oldTuple().FindStringSubmatch(old); {
	case hashedScope().MatchString(old):
		return old, true
	case parts != nil:
		return scopeKey(parts[1], parts[2], parts[3], parts[4]), true
	case !validScope(old) || likeTuple(old):
		return "", false
	}
	return scopeOfClaim(old), true
}

// validScope reports whether s can be the scope that a claim or a file names.
func validScope(s string) bool { return len(s) <= maxScope && legalClaim().MatchString(s) }
