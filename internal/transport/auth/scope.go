package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// The forms of scopes. A scope is a folder name, also on file systems that
// ignore case, and appears in logs. The forms are disjoint, so that no
// principal can get the scope of another.
const (
	principalScope = "principal_" // followed by a hash; for a tuple without a plain form
	claimedScope   = "claim_"     // followed by a hash; for a claim without a plain form
	maxScope       = 64           // characters
)

var (
	// plainPart matches a part of a tuple that appears in a scope unchanged. It
	// contains no underscore, so that the parts of the scope can be told apart.
	plainPart = lazyregexp.New(`^[a-z0-9.-]+$`)

	// plainClaim matches a claim that is its own scope.
	plainClaim = lazyregexp.New(`^[a-z0-9_-][a-z0-9._-]*$`)

	// legalClaim matches all legal claims.
	legalClaim = lazyregexp.New(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

	hashedScope = lazyregexp.New(`^(?:principal|claim)_[0-9a-f]{32}$`)
)

// scopeKey returns the scope of a principal from its issuer's claims. Distinct
// tuples have distinct scopes.
func scopeKey(workspace, org, team, user string) string {
	var parts []string
	plain := !strings.HasSuffix(user, ".") // some file systems drop a final dot
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

// scopeOfClaim returns the scope for a legal claim. Distinct claims have
// distinct scopes, and none is the scope of a tuple.
func scopeOfClaim(claim string) string {
	if plainClaim().MatchString(claim) && !strings.HasSuffix(claim, ".") && !isReservedForm(claim) {
		return claim
	}
	return claimedScope + hashOf(claim)
}

// isReservedForm reports whether a claim looks like a tuple's scope or a hashed
// scope.
func isReservedForm(claim string) bool {
	return strings.HasPrefix(claim, "user_") || strings.Contains(claim, "__user_") ||
		strings.HasPrefix(claim, principalScope) || strings.HasPrefix(claim, claimedScope)
}

// hashOf returns 128 bits of the SHA-256 of the texts as netstrings. The
// lengths keep distinct lists distinct.
func hashOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(text), text) // a hash cannot fail
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// oldTuple matches a tuple's scope of earlier versions, if only that tuple had
// it.
var oldTuple = lazyregexp.New(`^(?:workspace_([A-Za-z0-9.-]+)__)?(?:org_([A-Za-z0-9.-]+)__)?(?:team_([A-Za-z0-9.-]+)__)?user_([A-Za-z0-9.-]+)$`)

// CurrentScope returns the current form of a scope of an earlier version.
// Earlier versions gave different principals one scope; for such a scope ok is
// false, because its owner is unknown. A current scope is returned unchanged.
func CurrentScope(old string) (now string, ok bool) {
	switch parts := oldTuple().FindStringSubmatch(old); {
	case hashedScope().MatchString(old):
		return old, true
	case parts != nil:
		return scopeKey(parts[1], parts[2], parts[3], parts[4]), true
	case !validScope(old) || isReservedForm(old):
		return "", false
	}
	return scopeOfClaim(old), true
}

// validScope reports whether s can be a scope in a claim or file.
func validScope(s string) bool { return len(s) <= maxScope && legalClaim().MatchString(s) }
