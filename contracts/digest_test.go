package contracts_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestRequestDigestCoversTheWholeRequest(t *testing.T) {
	long := strings.Repeat("x", contracts.MaxValueBytes)
	req := contracts.ServerRequest{RequestID: "r", RequestType: contracts.RequestApproval, CallID: "c", Tool: "bash", Args: json.RawMessage(`{"command":"` + long + `1"}`)}
	digest := contracts.RequestDigest("s", &req)
	spaced := req
	spaced.Args = json.RawMessage(`{ "command" : "` + long + `1" }`)
	spaced.RequestID, spaced.Reason = "other", "other"
	if got := contracts.RequestDigest("s", &spaced); got != digest {
		t.Errorf("white space changed the digest to %s", got)
	}
	seen := map[string]bool{digest: true, contracts.RequestDigest("s2", &req): true}
	for _, change := range []func(*contracts.ServerRequest){
		func(r *contracts.ServerRequest) { r.RequestType = contracts.RequestUserInput },
		func(r *contracts.ServerRequest) { r.CallID = "c2" },
		func(r *contracts.ServerRequest) { r.Tool = "bas" },
		func(r *contracts.ServerRequest) { r.CallID, r.Tool = "cb", "ash" },
		func(r *contracts.ServerRequest) { r.Args = json.RawMessage(`{"command":"` + long + `2"}`) },
		func(r *contracts.ServerRequest) { r.Args = json.RawMessage(`{"command":"` + long + ` 1"}`) },
	} {
		other := req
		change(&other)
		seen[contracts.RequestDigest("s", &other)] = true
	}
	if len(seen) != 8 {
		t.Errorf("got %d digests of 8 requests", len(seen))
	}
	// The documented form, so that others can compute it.
	small := &contracts.ServerRequest{RequestType: contracts.RequestApproval, CallID: "c", Tool: "bash", Args: json.RawMessage(`{"a":1}`)}
	const want = "sha256:dcb53bac06be43f46ca57cca57981070d9781614167819969a87dff193f1b8b9"
	if got := contracts.RequestDigest("s", small); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDisplayShowsWhatIsHidden(t *testing.T) {
	for _, tt := range []struct {
		tool, args, want string
		escaped          bool
	}{
		{"bash", `{"command":"ls -l \"ü\" 日本 \\u202e\nnext\t1"}`, `bash {"command":"ls -l \"ü\" 日本 \\u202e\nnext\t1"}`, false},
		{"bash", `{ "a" : [1, true, null] }`, `bash {"a":[1,true,null]}`, false},
		{"bash", "{\"command\":\"rm \u202egpj.exe\"}", `bash {"command":"rm \u202egpj.exe"}`, true},
		{"bash", `{"command":"rm \u202egpj.exe"}`, `bash {"command":"rm \u202egpj.exe"}`, true},
		{"b\u200bash", `{"a\u00ad":"\u0000\u001b[2K\u007f\r"}`, `b\u200bash {"a\u00ad":"\u0000\u001b[2K\u007f\u000d"}`, true},
		{"x", `"\u3164\u2800\ufe0f\u00a0\u2028\udb40\udc41"`, `x "\u3164\u2800\ufe0f\u00a0\u2028\udb40\udc41"`, true},
	} {
		got := contracts.DisplayRequest(&contracts.ServerRequest{Tool: tt.tool, Args: json.RawMessage(tt.args)})
		if got != (contracts.Display{Text: tt.want, Escaped: tt.escaped}) {
			t.Errorf("%s %s: got %+v, want %s, escaped %t", tt.tool, tt.args, got, tt.want, tt.escaped)
		}
	}
	long := contracts.DisplayRequest(&contracts.ServerRequest{Tool: "x", Args: json.RawMessage(`"` + strings.Repeat("é", contracts.MaxTextBytes) + `"`)})
	if !long.Cut || len(long.Text) > contracts.MaxTextBytes || len(long.Text) < contracts.MaxTextBytes-4 {
		t.Errorf("got %d bytes, cut %t, want the limit", len(long.Text), long.Cut)
	}
}

func FuzzDisplayIsVisibleAndKeepsItsValue(f *testing.F) {
	f.Add("plain")
	f.Add("\u202e\x00\U000e0041\"\\\n")
	f.Fuzz(func(t *testing.T, s string) {
		args, err := json.Marshal(s)
		if err != nil || len(args) > contracts.MaxTextBytes/8 {
			return
		}
		shown := contracts.DisplayRequest(&contracts.ServerRequest{Tool: "t", Args: args}).Text
		for _, r := range shown {
			if !unicode.IsPrint(r) || unicode.In(r, unicode.Bidi_Control, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
				t.Errorf("%q shows %U", shown, r)
			}
		}
		var back, want string
		if err := json.Unmarshal([]byte(strings.TrimPrefix(shown, "t ")), &back); err != nil {
			t.Fatalf("%q is no JSON: %v", shown, err)
		}
		if _ = json.Unmarshal(args, &want); back != want {
			t.Errorf("%q stands for %q, want %q", shown, back, want)
		}
	})
}
