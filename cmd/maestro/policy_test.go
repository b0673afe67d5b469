//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestPolicyIsChosenByCommandAndProfile(t *testing.T) {
	const seed, public = string(contracts.ProfileSeed), string(contracts.ProfilePublic)
	for _, tt := range []struct {
		name   string
		s      settings
		hosted bool
		want   policy
	}{
		{"serve", settings{profile: seed}, false, policy{requireTokens: true}},
		{"serve --auth off", settings{profile: seed, auth: "off"}, false, policy{}},
		{"serve --auth off --connection-tokens required", settings{profile: seed, auth: "off", connectionTokens: "required"}, false, policy{requireTokens: true}},
		{"serve --protocol-profile public", settings{profile: public}, false, policy{requireTokens: true, drainCancels: true}},
		{"hosted-runner", settings{profile: seed}, true, policy{}},
		{"hosted-runner --connection-tokens required", settings{profile: seed, connectionTokens: "required"}, true, policy{requireTokens: true}},
		{"hosted-runner --drain-requests cancel", settings{profile: seed, drainRequests: "cancel"}, true, policy{drainCancels: true}},
		{"hosted-runner --protocol-profile public", settings{profile: public}, true, policy{quiet: true, drainCancels: true}},
		{"the same with --drain-requests keep", settings{profile: public, drainRequests: "keep"}, true, policy{quiet: true}},
	} {
		tt.want.profile, tt.want.hosted = contracts.Profile(tt.s.profile), tt.hosted
		if got := tt.s.policy(tt.hosted); got != tt.want {
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
	if log := server.log.text(t); strings.Count(log, "--connection-tokens optional") != 1 {
		t.Errorf("got the log\n%s\nwant one line about it", log)
	}
}
