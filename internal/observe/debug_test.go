package observe_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/observe"
)

func TestProfilesAreServedToLocalTools(t *testing.T) {
	for _, path := range []string{
		"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap", "/debug/pprof/cmdline",
		"/debug/pprof/symbol", "/debug/pprof/trace?seconds=0.01", "/debug/pprof/profile?seconds=1",
	} {
		for _, host := range []string{"127.0.0.1:6060", "localhost", "[::1]:6060"} {
			if host != "localhost" && strings.Contains(path, "seconds") {
				continue // one is enough: they take as long as they say
			}
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			observe.Debug().ServeHTTP(w, r)
			if w.Code != http.StatusOK || w.Body.Len() == 0 {
				t.Errorf("%s at %s: got %d and %d bytes, want a profile", path, host, w.Code, w.Body.Len())
			}
		}
	}
}

func TestProfilesAreRefusedToWebPages(t *testing.T) {
	for _, tt := range []struct{ host, header, value string }{
		{"evil.example:6060", "", ""},
		{"127.0.0.1.evil.example", "", ""},
		{"10.0.0.1:6060", "", ""},
		{"", "", ""},
		{"127.0.0.1:6060", "Origin", "https://evil.example"},
		{"127.0.0.1:6060", "Origin", "null"},
		{"127.0.0.1:6060", "Sec-Fetch-Site", "cross-site"},
		{"127.0.0.1:6060", "Sec-Fetch-Site", "same-site"},
	} {
		r := httptest.NewRequest("GET", "/debug/pprof/goroutine?debug=1", nil)
		r.Host = tt.host
		if tt.header != "" {
			r.Header.Set(tt.header, tt.value)
		}
		w := httptest.NewRecorder()
		observe.Debug().ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "goroutine") {
			t.Errorf("%+v: got %d, want 403", tt, w.Code)
		}
	}
}

func TestNothingElseIsServedBesideProfiles(t *testing.T) {
	for _, path := range []string{"/", "/metrics", "/debug/vars"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		observe.Debug().ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
	}
}
