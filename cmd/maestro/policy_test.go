//go:build linux

package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

func TestPolicyIsChosenByCommandAndProfile(t *testing.T) {
	const seed, public = string(contracts.ProfileSeed), string(contracts.ProfilePublic)
	for _, tt := range []struct {
		name   string
		s      settings
		hosted bool
		want   hub.Options
	}{
		{"serve", settings{profile: seed}, false, hub.Options{RequireTokens: true}},
		{"serve --auth off", settings{profile: seed, auth: "off"}, false, hub.Options{}},
		{"serve --auth off --connection-tokens required", settings{profile: seed, auth: "off", connectionTokens: "required"}, false, hub.Options{RequireTokens: true}},
		{"serve --protocol-profile public", settings{profile: public}, false, hub.Options{RequireTokens: true, DrainCancels: true}},
		{"hosted-runner", settings{profile: seed}, true, hub.Options{}},
		{"hosted-runner --connection-tokens required", settings{profile: seed, connectionTokens: "required"}, true, hub.Options{RequireTokens: true}},
		{"hosted-runner --drain-requests cancel", settings{profile: seed, drainRequests: "cancel"}, true, hub.Options{DrainCancels: true}},
		{"hosted-runner --protocol-profile public", settings{profile: public}, true, hub.Options{Quiet: true, DrainCancels: true}},
		{"the same with --drain-requests keep", settings{profile: public, drainRequests: "keep"}, true, hub.Options{Quiet: true}},
	} {
		tt.want.Profile, tt.s.hosted = contracts.Profile(tt.s.profile), tt.hosted
		tt.s.setPolicy()
		if got := tt.s.session; !reflect.DeepEqual(got, tt.want) || tt.s.tools.Hosted != tt.hosted || tt.s.runtime.Hosted != tt.hosted {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestClientsThatKnowNoConnectionTokens does what a client does that was made
// for servers without them.
func TestClientsThatKnowNoConnectionTokens(t *testing.T) {
	made := func(f *fort) (session, connection string) {
		r := f.want(shot{as: "owner", what: "POST /api/headless/connections", body: `{"role":"controller"}`})
		return r.text("session_id"), r.text("connection_id")
	}
	subscribe := func(session, connection string) shot {
		return shot{as: "owner", what: "POST /api/headless/sessions/" + session + "/subscribe", body: `{"connectionId":"` + connection + `","role":"controller"}`}
	}

	runner := startFort(t, "hosted-runner", "--listen", "127.0.0.1:0", "--runner-session-id", "r", "--workspace-root", t.TempDir(), "--agent", "conformance")
	r := runner.want(subscribe(made(runner)))
	by := []string{"X-Maestro-Headless-Connection-Id: " + r.text("connection_id"), "X-Maestro-Headless-Subscriber-Id: " + r.text("subscription_id")}
	runner.want(shot{as: "owner", what: "POST /api/headless/sessions/r/messages", body: `{"type":"init"}`, headers: by})

	server := startFort(t, "serve", "--listen", "127.0.0.1:0", "--state-dir", t.TempDir(), "--agent", "conformance")
	s := subscribe(made(server))
	s.code = contracts.CodeStaleConnection
	if got := server.refuses(s); !strings.Contains(string(got.body), `"metadata":{"missing":"X-Maestro-Headless-Connection-Token"}`) {
		t.Errorf("got %s, want to be told what is missing", got.body)
	}
	if log := server.log.waits(t, 0, "--connection-tokens optional"); strings.Count(log, "--connection-tokens optional") != 1 {
		t.Errorf("got the log\n%s\nwant one line about it", log)
	}
}
