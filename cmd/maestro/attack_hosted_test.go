//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	drainRoute    = "POST /.well-known/evalops/remote-runner/drain"
	identityRoute = "GET /.well-known/evalops/remote-runner/identity"
)

// hostedAttacks are made on a runner, by its clients and by others.
func hostedAttacks() []attack {
	no, denied, elsewhere, bad, escape := contracts.CodeUnauthenticated, contracts.CodeAccessDenied, contracts.CodeRuntimeOwnedElsewhere, contracts.CodeBadRequest, contracts.CodeWorkspaceViolation
	learn := func(_ *testing.T, f *fort) { f.words["control"], f.words["token"] = f.keys["control"], f.keys["owner"] }
	drain := func(code contracts.Code, bodies ...string) (shots []shot) {
		for _, body := range bodies {
			shots = append(shots, shot{as: "control", what: drainRoute, body: body, code: code})
		}
		return shots
	}
	export := func(paths ...string) (bodies []string) {
		for _, p := range paths {
			text, err := json.Marshal(p)
			if err != nil {
				panic(err)
			}
			bodies = append(bodies, `{"export_paths":[`+string(text)+`]}`, `{"exportPaths":[".",`+string(text)+`]}`)
		}
		return bodies
	}
	var otherSession, unnamed, misnamed []shot
	for _, s := range surface {
		if strings.Contains(s.what, "/shares") {
			continue // are not the runner's business
		}
		if strings.Contains(s.what+s.body, "{main}") {
			o := s
			o.what, o.body = strings.ReplaceAll(s.what, "{main}", "side"), strings.ReplaceAll(s.body, "{main}", "side")
			o.as, o.code = "owner", elsewhere
			otherSession = append(otherSession, o)
		}
		if !strings.Contains(s.what, "metrics") && !strings.Contains(s.what, "tickets") && !strings.Contains(s.what, "whoami") { // not about a session
			s.as, s.code, s.headers = "owner", elsewhere, []string{"X-Maestro-Owner-Instance-Id: gen_8"}
			misnamed = append(misnamed, s)
		}
	}
	for _, s := range []shot{
		{what: "POST /api/headless/connections", body: `{}`}, {what: "POST /api/headless/sessions", body: `{}`}, {what: "POST /api/headless/sessions/{main}/subscribe", body: `{}`},
		{what: "GET /api/headless/sessions/{main}/events"}, {what: "WS /api/headless/ws"}, {what: "WS /api/headless/sessions/{main}/ws"},
	} {
		s.as, s.code = "owner", denied
		unnamed = append(unnamed, s)
	}
	nameless := func(_ *testing.T, f *fort) { f.always = nil }
	return []attack{
		{name: "no credential", on: "hosted", shots: everywhere(shot{code: no})},
		{name: "drain without a credential", on: "hosted", shots: withHeaders(shot{what: drainRoute, body: `{"reason":"x"}`, code: no}, "X-One: y", "Authorization: Basic eDp5", "X-Forwarded-For: 127.0.0.1", "User-Agent: kube-probe/1.30")},
		{name: "drain with the ordinary token", on: "hosted", shots: []shot{{as: "owner", what: drainRoute, body: `{"reason":"x"}`, code: denied}, {as: "alice", what: drainRoute, code: denied}, {as: "vic", what: drainRoute, code: denied}, {as: "bea", what: drainRoute, code: denied}}},
		{name: "drain with a wrong token", on: "hosted", arm: func(_ *testing.T, f *fort) { f.keys["forger"] = f.keys["control"] + "x" }, shots: []shot{{as: "forger", what: drainRoute, code: no}}},
		{name: "drain with the control token elsewhere", on: "hosted", arm: learn, shots: append(withHeaders(shot{what: drainRoute, code: no},
			"X-Maestro-Api-Key: {control}", "Authorization: {control}"), shot{what: drainRoute, headers: []string{"Cookie: maestro_session_{port}={control}"}, code: denied}, shot{what: drainRoute + "?token={control}", code: no},
			shot{what: drainRoute, headers: []string{"Authorization: Bearer {token}", "Authorization: Bearer {control}"}, code: bad})},
		{name: "control token as a client's", on: "hosted", shots: []shot{{as: "control", what: "GET /api/headless/sessions", code: no}, {as: "control", what: sendToMain, body: shutdown, code: no}, {as: "control", what: "WS /api/headless/ws", code: no}, {as: "control", what: "GET /metrics", code: no}}},
		{name: "drain from another page", on: "hosted", shots: append(withHeaders(shot{as: "control", what: drainRoute, code: denied}, otherPage...),
			withHeaders(shot{as: "control", what: drainRoute, code: denied}, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Host: evil.example")...)},
		{name: "drain by another method", on: "hosted", shots: every(shot{as: "control", code: contracts.CodeMethodNotAllowed}, strings.Replace(drainRoute, "POST", "GET", 1), strings.Replace(drainRoute, "POST", "PUT", 1), strings.Replace(drainRoute, "POST", "DELETE", 1))},
		{name: "drain that exports what lies above", on: "hosted", shots: drain(escape, export("..", "../", "inside/../..", "./..", "inside/deep/../../../x", "../../../../../../etc/passwd", "up", "up/x")...)},
		{name: "drain that exports an absolute path", on: "hosted", shots: drain(escape, export("/etc", "/etc/passwd", "/", "//etc", "/proc/self/environ", "/tmp", "/dev/zero", "/nowhere/at/all")...)},
		{name: "drain that exports through a link", on: "hosted", shots: drain(escape, export("out", "out/passwd", "root", "root/etc", "up/..", "root/proc/self/root", "deep/../../..")...)},
		{name: "drain that exports nonsense", on: "hosted", shots: append(drain(bad, export("nowhere", "inside/nowhere", "loop", "inside/deep/x/../..", "", " ", "a\x00b", strings.Repeat("x", 5000), "..\\..", "%2e%2e", "file:///etc")...),
			drain(bad, `[]`, `"x"`, `{"export_paths":"x"}`, `{"export_paths":[1]}`, `{"reason":7}`, `{"reason":"a","reason":"b"}`, `{"export_paths":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`}`,
				`{"export_paths":[`+strings.Repeat(`".",`, 2000)+`"."]}`)...)},
		{name: "drain of too much", on: "hosted", shots: drain(contracts.CodePayloadTooLarge, `{"reason":"`+strings.Repeat("x", contracts.MaxDrainBytes)+`"}`, strings.Repeat(" ", 10<<20))},
		{name: "another session", on: "hosted", shots: otherSession},
		{name: "another session, bound to it", on: "hosted", shots: []shot{
			{as: "bea", what: stateOfMain, code: denied}, {as: "bea", what: sendToMain, body: shutdown, code: denied}, {as: "bea", what: "POST /api/headless/connections", body: `{"sessionId":"{main}"}`, code: denied},
			{as: "bea", what: "POST /api/headless/connections", body: `{}`, code: elsewhere}, {as: "bea", what: "WS /api/headless/ws?sessionId={main}", code: denied}, {as: "bea", what: "WS /api/headless/ws", code: elsewhere}}},
		{name: "another session's list", on: "hosted", strike: func(t *testing.T, f *fort) {
			if r := f.want(shot{as: "bea", what: "GET /api/headless/sessions"}); strings.Contains(string(r.body), `"plan"`) {
				t.Errorf("got %s for a credential that is for another session, want none", r.body)
			}
		}},
		{name: "what a runner is, told to strangers", on: "hosted", strike: func(t *testing.T, f *fort) {
			for _, s := range []shot{
				{what: identityRoute}, {what: "GET /readyz"}, {what: "GET /healthz"}, {what: "GET /api/headless/sessions/side"}, {what: "POST /api/headless/connections", body: `{"sessionId":"side"}`},
				{what: "WS /api/headless/ws?sessionId=side"}, {what: "WS /api/headless/sessions/side/ws"}, {what: "WS /api/headless/ws", headers: []string{"X-Maestro-Owner-Instance-Id: gen_8"}}, {what: drainRoute},
			} {
				r := f.fire(s)
				for _, word := range []string{"ws_sentinel", "run_sentinel", "plan", f.dirs[0]} {
					if strings.Contains(fmt.Sprintf("%s %v", r.body, r.header), word) {
						t.Errorf("%s: got %s, want no word of %s to a stranger", s.what, r.body, word)
					}
				}
			}
		}},
		{name: "wrong owner", on: "hosted", arm: nameless, shots: append(misnamed, withHeaders(shot{as: "owner", what: "POST /api/headless/connections", body: `{}`, code: elsewhere},
			"X-Maestro-Owner-Instance-Id: GEN_9", "X-Maestro-Owner-Instance-Id: gen_9x", "X-Maestro-Owner-Instance-Id: *", "X-Maestro-Owner-Instance-Id: gen_8\nX-Maestro-Owner-Instance-Id: gen_9")...)},
		{name: "no owner", on: "hosted", arm: nameless, shots: unnamed},
		{name: "credential for another audience", on: "hosted", shots: []shot{{as: "mallory", what: stateOfMain, code: denied}, {as: "mallory", what: "WS /api/headless/ws", code: denied}, {as: "mallory", what: drainRoute, code: denied}}},
		{name: "workspace of another", on: "hosted", shots: []shot{
			{as: "owner", what: "POST /api/headless/connections", body: `{"workspaceRoot":"/"}`, code: elsewhere}, {as: "owner", what: "POST /api/headless/sessions", body: `{"workspaceRoot":"/etc"}`, code: elsewhere},
			{as: "owner", what: "POST /api/headless/sessions/{main}/subscribe", body: `{"workspaceRoot":".."}`, code: bad}, {as: "owner", what: "POST /api/headless/connections", body: `{"workspaceRoot":"/etc/passwd"}`, code: bad}}},
		{name: "rebound name", on: "hosted", shots: append(withHeaders(shot{as: "owner", what: stateOfMain, code: denied}, strangeHosts[:4]...), withHeaders(shot{what: identityRoute, code: denied}, strangeHosts[:4]...)...)},
		{name: "files behind the workspace", on: "hosted", attaches: true, strike: func(t *testing.T, f *fort) {
			own := []string{"X-Maestro-Headless-Connection-Id: {conn}", "X-Maestro-Headless-Connection-Token: {secret}"}
			for _, path := range []string{"/etc/passwd", "../x", "out/passwd", "root/etc/passwd", "up/x", "inside/../../x", "/proc/self/environ"} {
				r := f.fire(shot{as: "owner", what: sendToMain, body: `{"type":"utility_file_read","read_id":"r","path":"` + path + `"}`, headers: own})
				if r.status < 400 {
					t.Errorf("%s: got %d %.300s, want a refusal", path, r.status, r.body)
				}
			}
		}},
		{name: "link swapped while a drain looks at it", on: "", strike: swapWhileDraining},
	}
}

// swapWhileDraining lets a link point inside and outside in turn while drains
// export what is behind it. One of them may succeed; whatever it describes has
// to lie inside.
func swapWhileDraining(t *testing.T, _ *fort) {
	f := hostedFort(t)
	root := f.dirs[0]
	if err := os.WriteFile(filepath.Join(root, "inside", "passwd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // ends with the test
		swap, link := filepath.Join(root, "swap.new"), filepath.Join(root, "swap")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := os.Symlink([]string{"inside", "/etc"}[i%2], swap); err != nil {
				t.Error(err)
				return
			}
			if err := os.Rename(swap, link); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	escaped, passed := 0, 0
	for range 1000 {
		r := f.fire(shot{as: "control", what: drainRoute, body: `{"export_paths":["swap/passwd","swap"]}`})
		var body contracts.DrainAnswer
		switch r.status {
		case 403:
			escaped++
		case 400, 500: // it was missing just then, or changed once the session had stopped
		case 200:
			passed++
			if err := json.Unmarshal(r.body, &body); err != nil {
				t.Fatal(err)
			}
			for _, p := range body.Manifest.WorkspaceExport.Paths {
				if rel, err := filepath.Rel(root, p.Path); err != nil || !filepath.IsLocal(rel) || !filepath.IsLocal(p.RelativePath) {
					t.Errorf("got %+v in the manifest, want it inside", p)
				}
			}
		default:
			t.Fatalf("got %d %s", r.status, r.body)
		}
	}
	if escaped == 0 {
		t.Error("got no refusal at all: the link was never seen to point outside")
	}
	t.Logf("%d drains refused, %d passed", escaped, passed)
}

// restoreAttacks are manifests that somebody has changed.
func restoreAttacks() []attack {
	var mu sync.Mutex
	var manifest []byte
	whole := func(t *testing.T) map[string]any { // of a runner that was drained once
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if manifest == nil {
			f := hostedFort(t)
			r := f.want(shot{as: "control", what: drainRoute, body: `{"export_paths":["inside"]}`})
			var answer struct{ Manifest json.RawMessage }
			if err := json.Unmarshal(r.body, &answer); err != nil {
				t.Fatal(err)
			}
			manifest = answer.Manifest
		}
		var m map[string]any
		if err := json.Unmarshal(manifest, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	exporting := func(path string) func(map[string]any) {
		return func(m map[string]any) {
			m["workspace_export"].(map[string]any)["paths"].([]any)[0].(map[string]any)["relative_path"] = path
		}
	}
	none := func(map[string]any) {}
	var list []attack
	for _, r := range []struct {
		name, says string
		change     func(map[string]any)
		path       string // of the manifest, which is otherwise right
	}{
		{"that exports what lies above", "workspace_violation", exporting("../x"), ""},
		{"that exports an absolute path", "workspace_violation", exporting("/etc/passwd"), ""},
		{"that exports through a link", "workspace_violation", exporting("out/passwd"), ""},
		{"that exports through a link and back", "workspace_violation", exporting("inside/../up/../etc"), ""},
		{"of another version", "invalid_snapshot_manifest", func(m map[string]any) { m["protocol_version"] = "v0" }, ""},
		{"of another session", "bound to plan", func(m map[string]any) { m["maestro_session_id"] = "stolen" }, ""},
		{"without a session", "invalid_snapshot_manifest", func(m map[string]any) { delete(m, "maestro_session_id") }, ""},
		{"with a cursor beyond all", "invalid_snapshot_manifest", func(m map[string]any) {
			m["runtime"].(map[string]any)["cursor"] = json.Number("18446744073709551615")
		}, ""},
		{"that is not JSON", "invalid_snapshot_manifest", nil, ""},
		{"that lies above the workspace", "restore-manifest", none, "../manifest.json"},
		{"that is a folder", "restore manifest", none, "inside"},
		{"that is a device", "restore manifest", none, "/dev/zero"},
		{"that is not there", "restore manifest", none, "nowhere.json"},
	} {
		list = append(list, attack{name: "manifest " + r.name, strike: func(t *testing.T, _ *fort) {
			workspace := t.TempDir()
			for link, target := range map[string]string{"out": "/etc", "up": ".."} {
				if err := os.Symlink(target, filepath.Join(workspace, link)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(workspace, "inside"), 0o700); err != nil {
				t.Fatal(err)
			}
			text := []byte("not JSON")
			if r.change != nil {
				m := whole(t)
				r.change(m)
				var err error
				if text, err = json.Marshal(m); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(workspace, "manifest.json"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			before := len(files(t, workspace))
			cmd := program(t, "hosted-runner", "--listen", "127.0.0.1:0", "--runner-session-id", "mrs_42", "--workspace-root", workspace, "--maestro-session-id", "plan",
				"--restore-manifest", cmp.Or(r.path, "manifest.json"), "--ready-stdout", "--exit-on-stdin-eof")
			out, err := cmd.CombinedOutput()
			if got := exitCode(t, err); got != exitFailure || !strings.Contains(string(out), r.says) || strings.Contains(string(out), "baseUrl") {
				t.Errorf("got exit code %d and %.500s, want %d and %q before it listens", got, out, exitFailure, r.says)
			}
			if after := len(files(t, workspace)); after != before {
				t.Errorf("got %v in the workspace, want nothing new", files(t, workspace))
			}
		}})
	}
	return append(list, attack{name: "runner named like a path", strike: func(t *testing.T, _ *fort) {
		above := t.TempDir()
		workspace := filepath.Join(above, "a", "b", "workspace")
		if err := os.MkdirAll(workspace, 0o700); err != nil {
			t.Fatal(err)
		}
		before := files(t, above)
		f := startFort(t, patient("hosted-runner", "--listen", "127.0.0.1:0", "--runner-session-id", "../../../x", "--workspace-root", workspace, "--maestro-session-id", "plan")...)
		f.keys["control"] = f.secretFile(f.ready.ControlTokenFile)
		r := f.want(shot{as: "control", what: drainRoute})
		if path := r.text("manifest_path"); filepath.Dir(path) != filepath.Join(workspace, ".maestro", "runner-snapshots") {
			t.Errorf("got the manifest at %s, want it in its folder", path)
		}
		for _, path := range files(t, above) {
			if !slices.Contains(before, path) && !strings.HasPrefix(path, filepath.Join(workspace, ".maestro")) {
				t.Errorf("got %s, want everything in the runner's folder", path)
			}
		}
	}})
}

// files lists everything below dir.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
