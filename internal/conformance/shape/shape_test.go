package shape_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/shape"
)

func parse(t *testing.T, text string) any {
	t.Helper()
	v, err := shape.Parse([]byte(text))
	if err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return v
}

func TestParseRefusesWhatIsNotOneCleanText(t *testing.T) {
	for _, text := range []string{"", "{", "{} {}", "{}x", `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, "\"\xff\"",
		strings.Repeat("[", contracts.MaxDepth+1) + strings.Repeat("]", contracts.MaxDepth+1)} {
		if v, err := shape.Parse([]byte(text)); err == nil {
			t.Errorf("parse %.40q: got %v, want an error", text, v)
		}
	}
	deep := strings.Repeat("[", contracts.MaxDepth) + strings.Repeat("]", contracts.MaxDepth)
	for _, text := range []string{`{"a":[1,null,"\"[{"]}`, `[]`, `7`, deep} {
		if _, err := shape.Parse([]byte(text)); err != nil {
			t.Errorf("parse %.40q: got %v, want no error", text, err)
		}
	}
}

func TestEventShapesAreClosedAndExact(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"status","message":"x"}`:                                                                             "",
		`{"type":"status"}`:                                                                                           "/message Required property",
		`{"type":"status","message":7}`:                                                                               "/message Expected string",
		`{"type":"status","message":null}`:                                                                            "/message Expected string",
		`{"type":"status","message":"x","mood":1}`:                                                                    "/mood Unexpected property",
		`{"type":"greeting"}`:                                                                                         "/type Expected known message type",
		`{"type":"error","message":"x","fatal":0,"error_type":"odd"}`:                                                 "/error_type Expected union value; /fatal Expected boolean",
		`{"type":"utility_command_resized","command_id":"c","columns":1.0,"rows":2}`:                                  "/columns Expected integer without fraction or exponent",
		`{"type":"session_info","session_id":null,"cwd":"/","git_branch":null}`:                                       "",
		`{"type":"session_info","cwd":"/","git_branch":null}`:                                                         "/session_id Required property",
		`{"type":"tool_call","call_id":"c","tool":"t","args":null,"requires_approval":true}`:                          "",
		`{"type":"hello_ok","protocol_version":"v","controller_connection_id":null}`:                                  "",
		`{"type":"hello_ok","protocol_version":"v","connection_id":null}`:                                             "/connection_id Expected string",
		`{"type":"hello_ok","protocol_version":"v","opt_out_notifications":["status","status"]}`:                      "/opt_out_notifications Expected array elements to be unique",
		`{"type":"connection_info","connections":null}`:                                                               "/connections Expected array",
		`{"type":"utility_file_search_results","search_id":"s","query":"","cwd":"/","results":[{}],"truncated":true}`: "/results/0/path Required property; /results/0/score Required property",
	} {
		if got := shape.Join(shape.Event(parse(t, text), contracts.ProfileSeed)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestEnvelopesAreCheckedInside(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"message","cursor":1,"message":{"type":"status","message":"x"}}`:                 "",
		`{"type":"message","cursor":1,"message":{"type":"status"}}`:                               "/message/message Required property",
		`{"type":"message","cursor":-1,"message":{"type":"status","message":"x"}}`:                "/cursor Expected non-negative integer",
		`{"type":"message","cursor":1,"session_id":"s","message":{"type":"status","message":""}}`: "/session_id Unexpected property",
		`{"type":"heartbeat","cursor":1}`:                                                         "",
		`{"type":"ws.odd"}`:                                                                       "/type Expected known frame type",
		`{"type":"reset","reason":"lost","snapshot":1}`:                                           "/reason Expected union value; /snapshot Expected object",
	} {
		if got := shape.Join(shape.Frame(parse(t, text), contracts.ProfileSeed)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestSnapshotIsCheckedWithItsInit(t *testing.T) {
	snap := contracts.Snapshot{SessionID: "s", LastInit: json.RawMessage(`{"type":"init","mood":1}`)}
	text, err := json.Marshal(map[string]any{"type": "snapshot", "snapshot": snap})
	if err != nil {
		t.Fatal(err)
	}
	got := shape.Join(shape.Frame(parse(t, string(text)), contracts.ProfileSeed))
	for _, want := range []string{"/snapshot/last_init/mood Unexpected property", "/snapshot/state/connections Expected array"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want it to contain %q", got, want)
		}
	}
}

func TestAdditionsAreToleratedOnlyWhenOpen(t *testing.T) {
	v := parse(t, `{"type":"init","system_prompt":null,"mood":{"a":1}}`)
	if got := shape.Join(shape.OpenBody("Init", v, contracts.ProfileSeed)); got != "" {
		t.Errorf("got %q, want no problem", got)
	}
	if got, want := shape.Join(shape.Body("Init", v, contracts.ProfileSeed)), "/mood Unexpected property; /system_prompt Expected string"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := shape.Join(shape.OpenBody("Prompt", parse(t, `{"type":"prompt","Content":"x"}`), contracts.ProfileSeed)), "/content Required property"; got != want {
		t.Errorf("got %q, want %q in spite of Content", got, want)
	}
	for block, want := range map[string]string{`{"type":"text","text":"x"}`: "", `{"type":"text"}`: "/content/0/text Required property",
		`{"type":"image","data":"aa","mimeType":"image/png"}`: "", `{"type":"text","text":"x","data":""}`: "/content/0/data Unexpected property",
		`{"type":{}}`: "/content/0/type Expected union value", `7`: "/content/0/type Expected union value"} {
		v := parse(t, `{"type":"client_tool_result","call_id":"c","is_error":false,"content":[`+block+`]}`)
		if got := shape.Join(shape.Body("ClientToolResult", v, contracts.ProfileSeed)); got != want {
			t.Errorf("block %s: got %q, want %q", block, got, want)
		}
	}
}

func TestBodiesAreClosedAndExact(t *testing.T) {
	for text, want := range map[string]string{
		`{"ok":true}`:            "",
		`{"ok":true,"path":"/"}`: "/path Unexpected property",
		`{"ok":1}`:               "/ok Expected boolean",
		`{}`:                     "/ok Required property",
	} {
		if got := shape.Join(shape.Body(shape.LivenessBody, parse(t, text), contracts.ProfileSeed)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	const answer = `{"success":true,"connection_id":"c","controller_connection_id":null,"disconnected_subscription_ids":[%s]}`
	for ids, want := range map[string]string{`"s"`: "", "7": "/disconnected_subscription_ids/0 Expected string"} {
		if got := shape.Join(shape.Body("DisconnectAnswer", parse(t, strings.Replace(answer, "%s", ids, 1)), contracts.ProfileSeed)); got != want {
			t.Errorf("%s: got %q, want %q", ids, got, want)
		}
	}
	if got := shape.Join(shape.Body(shape.RefusalBody, parse(t, `{"error":"x","code":"y"}`), contracts.ProfileSeed)); !strings.Contains(got, "/error_type Required property") {
		t.Errorf("got %q, want an error_type to be missed", got)
	}
}

func TestSnapshotsInBodiesAreCheckedToo(t *testing.T) {
	const text = `{"ok":true,"success":true,"accepted":true,"cursor":1,"execution":"dreamt","published_messages":0,"message":"","snapshot":{"cursor":1}}`
	got := shape.Join(shape.Body("MessageAnswer", parse(t, text), contracts.ProfileSeed))
	for _, want := range []string{"/execution Expected union value", "/snapshot/session_id Required property"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want it to contain %q", got, want)
		}
	}
	if got := shape.Join(shape.Body("Snapshot", parse(t, `{"state":7}`), contracts.ProfileSeed)); !strings.Contains(got, "/state Expected object") {
		t.Errorf("got %q, want the state to be looked at", got)
	}
}

func TestManifestsMayHoldMoreThanIsKnown(t *testing.T) {
	m := map[string]any{}
	for _, key := range []string{"protocol_version", "runner_session_id", "maestro_session_id", "created_at", "workspace_root"} {
		m[key] = "x"
	}
	m["protocol_version"], m["future"], m["reason"] = "evalops.remote-runner.snapshot-manifest.v1", 1, nil
	m["runtime"] = map[string]any{"flush_status": "completed", "session_id": "s", "shoe_size": 43}
	m["workspace_export"] = map[string]any{"mode": "local_path_contract", "paths": []any{}}
	m["snapshot"], m["retention_policy"] = nil, nil
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := shape.Join(shape.OpenBody("Manifest", parse(t, string(text)), contracts.ProfileSeed))
	if strings.Contains(got, "future") || strings.Contains(got, "shoe_size") || strings.Contains(got, "/reason") || !strings.Contains(got, "/snapshot") {
		t.Errorf("got %q, want a problem with the snapshot and none with what is unknown or null", got)
	}
}

// described renders problems with the rules of those that the published schemas
// allow.
func described(problems []shape.Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = strings.TrimSpace(p.Rule + " " + p.String())
	}
	return strings.Join(texts, "; ")
}

func TestPublishedSchemasLeaveKeysOutAndOpen(t *testing.T) {
	const public = contracts.ProfilePublic
	event := func(v any) []shape.Problem { return shape.Event(v, public) }
	refusal := func(v any) []shape.Problem { return shape.Body(shape.RefusalBody, v, public) }
	for _, c := range []struct {
		check      func(any) []shape.Problem
		text, want string
	}{
		{event, `{"type":"ready","protocol_version":"v","model":"m","provider":"p","session_id":null}`, ""},
		{event, `{"type":"ready","protocol_version":"v","model":"m","provider":"p","session_id":null,"executor_type":"live"}`, "A47:additive /executor_type Unexpected property"},
		{event, `{"type":"hello_ok","protocol_version":"v","server_capabilities":{}}`, "A47:additive /server_capabilities Unexpected property"},
		{event, `{"type":"hello_ok","server_capabilities":{}}`, "/protocol_version Required property; A47:additive /server_capabilities Unexpected property"},
		{event, `{"type":"utility_command_exited","command_id":"c","success":true}`, "0.2:both /exit_code Required property; 0.2:both /signal Required property"},
		{event, `{"type":"utility_command_exited","command_id":"c","success":true,"exit_code":"0","signal":null}`, "/exit_code Expected number"},
		{event, `{"type":"utility_command_resized","command_id":"c","columns":1.0,"rows":2}`, "R41 /columns Expected integer without fraction or exponent"},
		{refusal, `{"error":"x","hint":"y"}`, "A73 /error_type Required property; A73 /code Required property; 1.4:retryable /retryable Required property; 1.4:details /details Required property"},
		{refusal, `{"code":"x","error_type":"x","retryable":false,"details":[]}`, "/error Required property"},
	} {
		if got := described(c.check(parse(t, c.text))); got != c.want {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
	if got := described(shape.Body("MessageAnswer", parse(t, `{"success":true,"mood":1}`), public)); strings.Contains(got, "/success") || strings.Contains(got, "mood") ||
		strings.Count(got, "1.12:answer ") != 7 {
		t.Errorf("got %q, want seven keys that may be missing", got)
	}
	if got := described(shape.Body("ConnectionAnswer", parse(t, `{"mood":1,"snapshot":{"mood":2}}`), public)); strings.Contains(got, " /mood") || !strings.Contains(got, "/snapshot/mood Unexpected property") {
		t.Errorf("got %q, want the snapshot to be closed and the answer open", got)
	}
	if got := described(shape.Body("DisconnectAnswer", parse(t, `{"mood":1}`), public)); !strings.Contains(got, "; /mood Unexpected property") {
		t.Errorf("got %q, want the keys of a disconnect's answer to be exact (A13)", got)
	}
	state := described(shape.Body("Snapshot", parse(t, `{"protocolVersion":"v","session_id":"s","cursor":1,"last_init":null,"state":{}}`), public))
	for _, want := range []string{"R73:list /state/pending_requests Required property", "; /state/pending_approvals Required property"} {
		if !strings.Contains(state, want) {
			t.Errorf("got %q, want it to contain %q", state, want)
		}
	}
}
