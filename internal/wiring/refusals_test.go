package wiring

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestRefusalsThatWereNotLoggedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &refusalLog{log: slog.New(slog.NewTextHandler(&out, nil)), now: time.Now}
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = strings.Repeat("x", 1000)
		refuse := func(n int, code contracts.Code) {
			for range n {
				l.request(r, &contracts.Error{Code: code, Message: "no"})
			}
		}
		refuse(5, contracts.CodeStaleSession) // nothing that an operator need look at
		refuse(25, contracts.CodeUnauthenticated)
		time.Sleep(refusalSpan)
		refuse(1, contracts.CodeOverloaded)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != refusalLines+1 || !strings.HasSuffix(lines[refusalLines], "more=15") || strings.Contains(out.String(), strings.Repeat("x", maxLogged+1)) {
			t.Errorf("got %d lines, the last %q, want %d, and 15 more counted", len(lines), lines[len(lines)-1], refusalLines+1)
		}
	})
}
