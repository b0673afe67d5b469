package auth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// An Authenticator in front of a server: Wrap goes around all routes, Authorize into those
// that need a credential.
func Example() {
	g, err := auth.New(auth.Options{Token: "correct-horse-battery-staple"})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /api/headless/ws-tickets", g.Tickets())
	mux.Handle("/api/headless/sessions/{id}/shares", g.Shares())
	mux.Handle("/api/headless/sessions/{id}/shares/{share_id}", g.Shares())
	mux.Handle("/login", g.Login())
	mux.Handle("/logout", g.Logout())
	mux.HandleFunc("GET /who", func(w http.ResponseWriter, r *http.Request) {
		p, err := g.Authorize(r)
		if err != nil {
			httperr.Write(w, err)
			return
		}
		fmt.Fprintf(w, "scope %q, role %q, session %q", p.Scope, p.Role, p.SessionID)
	})
	server := g.Wrap(mux)

	ask := func(method, path, key string) string {
		r := httptest.NewRequest(method, "http://localhost:8787"+path, nil)
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		return w.Body.String()
	}
	share := ask("POST", "/api/headless/sessions/main/shares", "correct-horse-battery-staple")
	_, share, _ = strings.Cut(share, `"token":"`)
	share, _, _ = strings.Cut(share, `"`)
	fmt.Println(ask("GET", "/who", "correct-horse-battery-staple"))
	fmt.Println(ask("GET", "/who", share))
	// Output:
	// scope "", role "", session ""
	// scope "", role "viewer", session "main"
}
