package wiring

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
)

// TestScopesOfEarlierVersionsAreKeptOrSetAside starts on the folders that an
// earlier version left.
func TestScopesOfEarlierVersionsAreKeptOrSetAside(t *testing.T) {
	sh := newTestServer(t)
	for old, now := range map[string]string{
		"user_ada":                             "scope-user_ada",
		"workspace_w__org_o__team_t__user_ada": "scope-workspace_w__org_o__team_t__user_ada",
		"project-7":                            "scope-project-7",
		// printf '0:,0:,0:,3:Ada,' | sha256sum | cut -c1-32
		"user_Ada": "scope-principal_75d13b132fc100024d32e3d5df333b63",
		// printf '4:Team,' | sha256sum | cut -c1-32
		"Team":                               "scope-claim_4db721b918146f65d632457d5332b641",
		"user_a_x.com":                       "set-aside-user_a_x.com",
		"org_o__team_t__user_a_b":            "set-aside-org_o__team_t__user_a_b",
		"principal_56c90972ea42d1dcf7a3b117": "set-aside-principal_56c90972ea42d1dcf7a3b117",
	} {
		if err := os.MkdirAll(filepath.Join(sh.Sessions.Dir, "scope-"+old, SessionPrefix+"one"), 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second start changes nothing
			if err := sh.Sessions.migrateScopes(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(filepath.Join(sh.Sessions.Dir, now, SessionPrefix+"one")); err != nil {
			t.Errorf("%s: got %v, want its session in %s", old, err, now)
		}
	}
	for scope, want := range map[string]bool{"user_ada": true, "principal_75d13b132fc100024d32e3d5df333b63": true, "user_a_x.com": false} {
		listed := sh.list(contracts.Principal{Scope: scope}).Sessions
		if got := slices.ContainsFunc(listed, func(s contracts.SessionEntry) bool { return s.SessionID == "one" }); got != want {
			t.Errorf("%s: got its session listed %v, want %v", scope, got, want)
		}
	}
	if _, _, err := sh.Find(t.Context(), httpapi.Wanted{ID: "one", Principal: contracts.Principal{Scope: "user_a_x.com"}}); err == nil {
		t.Error("a scope that was set aside: got its session")
	}
}
