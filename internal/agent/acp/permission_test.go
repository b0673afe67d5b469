package acp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

const (
	yes  = `{"outcome":{"optionId":"a","outcome":"selected"}}`
	no   = `{"outcome":{"optionId":"r","outcome":"selected"}}`
	none = `{"outcome":{"outcome":"cancelled"}}`
)

// edited is a change of a file as content of a call.
var edited = map[string]any{"content": []any{map[string]any{"type": "diff", "path": "/w/f", "oldText": "a\n", "newText": "b\n"}}}

// elsewhere is a terminal of the program's own as content of a call.
var elsewhere = map[string]any{"content": []any{map[string]any{"type": "terminal", "terminalId": "theirs"}}}

func TestQuestionAndCallAreOne(t *testing.T) {
	begins := calls("c", "Edit f", "edit", "pending", map[string]any{"rawInput": map[string]any{"file": "f", "api_key": "k"}})
	for name, steps := range map[string][]step{
		"call first":          {begins, permits("c", edited), changes("c", "in_progress", nil)},
		"call begun":          {begins, changes("c", "in_progress", nil), permits("c", edited)},
		"terminal begun":      {begins, changes("c", "in_progress", elsewhere), permits("c", edited)},
		"question first":      {permits("c", map[string]any{"title": "Edit f", "kind": "edit", "rawInput": map[string]any{"file": "f", "api_key": "k"}, "content": edited["content"]}), begins},
		"told of again":       {begins, begins, permits("c", edited), begins},
		"answers come at end": {begins, changes("c", "", edited), permits("c", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, setup{})
			s.run(t, append(append([]step{says("I edit.")}, steps...), changes("c", "completed", nil), done)...)
			s.shown(t, "response_start", "response_chunk", "response_end",
				"tool_call", "server_request", "server_request_resolved", "tool_start", "tool_output", "tool_end",
				"response_start", "response_end")
			s.replies(t, yes)
			req := s.host.Asked()[0]
			want := `{"_acp":{"diff":"--- a/w/f\n+++ b/w/f\n@@ -1,1 +1,1 @@\n-a\n+b\n","kind":"edit",` +
				`"options":[{"id":"A","kind":"allow_always","name":"Always"},{"id":"a","kind":"allow_once","name":"Yes"},` +
				`{"id":"R","kind":"reject_always","name":"Never"},{"id":"r","kind":"reject_once","name":"No"}],"title":"Edit f"},"api_key":"***","file":"f"}`
			if string(req.Args) != want {
				t.Errorf("got args\n%s\nwant\n%s", req.Args, want)
			}
			if req.DisplayName != "Edit" || req.SummaryLabel != "Edit f" || req.RequestID != req.CallID {
				t.Errorf("got %+v, want a labelled request", req)
			}
			if !strings.Contains(s.host.Output(), "-a\n+b\n") {
				t.Errorf("got output %q, want the change", s.host.Output())
			}
			if end := hosttest.As[*contracts.ToolEnd](s.host)[0]; !end.Success || end.CallID != req.CallID {
				t.Errorf("got %+v, want the success of the call", end)
			}
		})
	}
}

func TestWhatACallIsForIsNoOutput(t *testing.T) {
	for name, tt := range map[string]struct {
		end  step
		want string
	}{
		"output":    {changes("c", "completed", shows("output")), "output"},
		"result":    {changes("c", "completed", map[string]any{"rawOutput": "result"}), "result"},
		"nothing":   {changes("c", "completed", nil), "what for"},
		"no ending": {done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, setup{})
			s.run(t, calls("c", "ls", "execute", "pending", shows("what for")), permits("c", nil), tt.end, done)
			if got := s.host.Output(); got != tt.want {
				t.Errorf("got output %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDeniedCallDoesNotStart(t *testing.T) {
	s := open(t, setup{})
	s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser}
	}
	s.run(t, calls("c", "rm", "execute", "pending", nil), permits("c", nil), changes("c", "failed", shows("denied")), says("ok"), done)
	s.shown(t, "tool_call", "server_request", "server_request_resolved", "tool_end", "response_start", "response_chunk", "response_end")
	s.replies(t, no)
	if end := hosttest.As[*contracts.ToolEnd](s.host)[0]; end.Success || end.ErrorCode != "governance_denied" {
		t.Errorf("got %+v, want a denial", end)
	}
}

func TestQuestionFitsWhateverItIsAbout(t *testing.T) {
	s := open(t, setup{})
	s.run(t, permits("c", map[string]any{
		"rawInput": map[string]any{"text": strings.Repeat("x", maxInput-100)},
		"content":  []any{map[string]any{"type": "diff", "path": "f", "newText": strings.Repeat("\x01", contracts.MaxTextBytes), "oldText": ""}},
	}), permits("d", map[string]any{"rawInput": []string{"a", "b"}}), done)
	for i, want := range []string{`"omitted_bytes":130`, `"input":["a","b"]`} {
		args := string(s.host.Asked()[i].Args)
		if len(args) > contracts.MaxValueBytes || !strings.Contains(args, want) || !strings.Contains(args, `"id":"a"`) {
			t.Errorf("got args of %d bytes that begin with %.200s, want the options and %s", len(args), args, want)
		}
	}
}

// The digest of a question is over its args.
func TestArgsDifferIfWhatIsNotShownDiffers(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	manyChanges := func(last string) []any {
		change := map[string]any{"type": "diff", "path": "f", "newText": "x"}
		return append(slices.Repeat([]any{change}, maxContent), map[string]any{"type": "diff", "path": last, "newText": "x"})
	}
	for name, member := range map[string]func(end string) map[string]any{
		"input": func(end string) map[string]any {
			return map[string]any{"rawInput": map[string]any{"command": long + end}}
		},
		"title": func(end string) map[string]any { return map[string]any{"title": long + end} },
		"kind":  func(end string) map[string]any { return map[string]any{"kind": long + end} },
		"path": func(end string) map[string]any {
			return map[string]any{"locations": []any{map[string]any{"path": long + end}}}
		},
		"replacement": func(end string) map[string]any {
			return map[string]any{"title": "rm" + map[string]string{"a": "\u202a", "b": "\u202b"}[end]}
		},
		"change": func(end string) map[string]any {
			return map[string]any{"content": []any{map[string]any{"type": "diff", "path": "f", "newText": long + end}}}
		},
		"more changes": func(end string) map[string]any { return map[string]any{"content": manyChanges(end)} },
	} {
		s := open(t, setup{})
		s.run(t, permits("same", member("a")), permits("other", member("b")), permits("third", map[string]any{"title": "short"}), done)
		asked := s.host.Asked()
		first, second, whole := string(asked[0].Args), string(asked[1].Args), string(asked[2].Args)
		if len(first) > contracts.MaxValueBytes || !strings.Contains(first, `"whole":"sha256:`) || first == second {
			t.Errorf("%s: got args %.200q of %d bytes and %.200q, want two that differ", name, first, len(first), second)
		}
		if strings.Contains(whole, `"whole"`) {
			t.Errorf("%s: got args %s, want no hash because all is shown", name, whole)
		}
		if got := s.host.Truncated(); !slices.Equal(got, []bool{true, true, false}) {
			t.Errorf("%s: got %v for truncated", name, got)
		}
	}
}

func TestLongTextsAreCutAndTheApprovalSaysSo(t *testing.T) {
	s := open(t, setup{})
	long := strings.Repeat("n", 150<<10)
	places := slices.Repeat([]any{map[string]any{"path": "/" + long, "line": 3}}, maxLocations+2)
	options := []any{map[string]any{"optionId": long, "name": long, "kind": "allow_once"}}
	for range maxOptions {
		options = append(options, map[string]any{"optionId": "r", "name": "No", "kind": "reject_once"})
	}
	s.run(t, asks("session/request_permission", map[string]any{"options": options, "toolCall": map[string]any{
		"toolCallId": long, "title": long, "kind": long, "locations": places, "rawInput": map[string]any{"text": long},
		"content": []any{
			map[string]any{"type": "diff", "path": long, "newText": "b"},
			map[string]any{"type": "diff", "path": "f", "newText": long, "oldText": "x"},
			map[string]any{"type": "content", "content": map[string]any{"type": "resource_link", "uri": long}},
			map[string]any{"type": "content", "content": map[string]any{"type": "image", "mimeType": long}},
		},
	}}), tells("tool_call_update", long, map[string]any{"status": "completed"}), done)
	req := s.host.Asked()[0]
	want := "The agent asks for permission. Not all of it is shown, what is too long is left out: " +
		"the end of the title, 153611 bytes of input, a part of the change, 2 locations, 1 options"
	if req.Reason != want {
		t.Errorf("got reason %q\nwant %q", req.Reason, want)
	}
	var args struct {
		ACP extras `json:"_acp"`
	}
	hosttest.Must(t, json.Unmarshal(req.Args, &args))
	if e := args.ACP; len(e.Locations) != maxLocations || len(req.Args) > 128<<10 || len(e.Options) != maxOptions ||
		len(e.Options[0].ID) > maxKey || !strings.HasSuffix(e.Title, "…") || !strings.HasSuffix(e.Locations[0].Path, "…") || !strings.HasSuffix(e.Kind, "…") {
		t.Errorf("got args %.2000s of %d bytes, want each text cut with a mark", req.Args, len(req.Args))
	}
	if got := noted(t, s.notes, "replies"); len(got) != 1 || !strings.Contains(got[0], long) {
		t.Errorf("the program was answered %.200q, want its own option", got)
	}
	if got := len(s.host.Output()); got < len(long) || got > len(long)+8<<10 {
		t.Errorf("got %d bytes of output, want the change of f and little more", got)
	}
}

func TestWholeQuestionSaysNothingOfCuts(t *testing.T) {
	s := open(t, setup{})
	s.run(t, permits("c", map[string]any{"title": "Edit", "rawInput": map[string]any{"a": "b"}, "content": edited["content"]}), done)
	if got := s.host.Asked()[0].Reason; got != "The agent asks for permission" {
		t.Errorf("got reason %q", got)
	}
}

func TestPolicyDecidesWithoutAQuestion(t *testing.T) {
	for mode, want := range map[contracts.ApprovalMode]struct {
		reply string
		shown []string
	}{
		contracts.ApprovalAuto: {yes, []string{"tool_call", "tool_start", "tool_end", "response_start", "response_end"}},
		contracts.ApprovalFail: {no, []string{"tool_call", "tool_end", "response_start", "response_end"}},
	} {
		t.Run(string(mode), func(t *testing.T) {
			s := open(t, setup{})
			s.host.Mode = mode
			s.run(t, permits("c", nil), changes("c", "completed", nil), done)
			s.shown(t, want.shown...)
			s.replies(t, want.reply)
		})
	}
}

func TestNothingIsHeldBackWhenNobodyIsAsked(t *testing.T) {
	s := open(t, setup{})
	s.host.Mode = contracts.ApprovalAuto
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { // ends with ctx
		result <- s.Run(ctx, contracts.Work{Content: script(
			calls("c", "ls", "execute", "pending", map[string]any{"rawInput": map[string]any{"command": "ls"}}), permits("c", nil),
			step{Await: "session/cancel"}, changes("c", "completed", nil), stops(acp.StopReasonCancelled))})
	}()
	s.host.AwaitType("tool_start")
	stop(errStopped)
	if err := <-result; !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	s.shown(t, "tool_call", "tool_start", "tool_end")
	s.replies(t, yes)
}

func TestQuestionAboutACallThatRunsIsAboutThatCall(t *testing.T) {
	for verdict, reply := range map[contracts.Verdict]string{contracts.VerdictApproved: yes, contracts.VerdictDenied: no} {
		t.Run(string(verdict), func(t *testing.T) {
			s := open(t, setup{})
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: verdict, By: contracts.ResolvedByUser}
			}
			more := shows("for this")
			more["title"], more["status"] = "Fetch more", "pending"
			s.run(t, calls("c", "Fetch", "fetch", "in_progress", shows("...")), permits("c", more),
				changes("c", "failed", shows("...!")), done)
			s.shown(t, "tool_call", "tool_start", "tool_output", "tool_call", "server_request", "server_request_resolved",
				"tool_output", "tool_end", "response_start", "response_end")
			s.replies(t, reply)
			all, req := hosttest.As[*contracts.ToolCall](s.host), s.host.Asked()[0]
			if id := all[0].CallID; all[1].CallID != id || req.CallID != id || req.RequestID == id || req.SummaryLabel != "Fetch more" {
				t.Errorf("got %+v about %s, want a question of its own about that call", req, id)
			}
			if end := hosttest.As[*contracts.ToolEnd](s.host)[0]; end.Success || end.ErrorCode != "" {
				t.Errorf("got %+v, want the failure that the program told of", end)
			}
			if got := s.host.Output(); got != "...!" {
				t.Errorf("got output %q, want what the call has to show, once", got)
			}
		})
	}
}

// A program may ask twice about a call that runs, as Codex does for two hosts that
// a command wants to reach.
func TestQuestionsAboutOneCallAreAskedInTurn(t *testing.T) {
	for verdict, want := range map[contracts.Verdict][]string{contracts.VerdictApproved: {yes, yes}, contracts.VerdictDenied: {no, no}} {
		t.Run(string(verdict), func(t *testing.T) {
			s := open(t, setup{})
			s.host.Answer = nil
			result := make(chan error, 1)
			first, second := permits("c", nil), permits("c", nil)
			first.Async, second.Async = true, true
			ctx, stop := context.WithTimeout(t.Context(), hosttest.Patience)
			defer stop()
			go func() { // ends with the answers
				result <- s.Run(ctx, contracts.Work{Content: script(first, second, says("asked twice"), step{Answer: 1}, step{Answer: 2}, done)})
			}()
			s.host.AwaitType("response_chunk")
			asked := map[string]bool{}
			for range want {
				req := s.host.Await(func(ev contracts.Event) bool {
					e, ok := ev.(*contracts.ServerRequest)
					return ok && !asked[e.RequestID]
				}).(*contracts.ServerRequest)
				asked[req.RequestID] = true
				s.host.Resolve(req.RequestID, contracts.Outcome{Verdict: verdict, By: contracts.ResolvedByUser})
				if verdict == contracts.VerdictDenied {
					break // the call has ended, so nobody is asked again
				}
			}
			hosttest.Must(t, <-result)
			s.replies(t, want...)
			if got := len(hosttest.As[*contracts.ToolEnd](s.host)); got != 1 {
				t.Errorf("got %d ends of calls, want one", got)
			}
		})
	}
}

func TestCallThatIsAskedAboutAfterItsEndBeginsAnew(t *testing.T) {
	s := open(t, setup{})
	s.run(t, calls("c", "make", "execute", "in_progress", shows("sandboxed")), changes("c", "failed", nil),
		permits("c", nil), changes("c", "completed", shows("made")), done)
	s.shown(t, "tool_call", "tool_start", "tool_output", "tool_end",
		"tool_call", "server_request", "server_request_resolved", "tool_start", "tool_output", "tool_end", "response_start", "response_end")
	ends := hosttest.As[*contracts.ToolEnd](s.host)
	if ends[0].Success || !ends[1].Success || ends[0].CallID == ends[1].CallID || s.host.Asked()[0].SummaryLabel != "make" {
		t.Errorf("got %+v and %+v, want a failure and the success of another call of that title", ends[0], ends[1])
	}
}

func TestAnswersMayCarryAWish(t *testing.T) {
	var all contracts.ApprovalOptions
	for _, o := range [][2]string{{"A", "allow_always"}, {"a", "allow_once"}, {"r", "reject_once"}, {"R", "reject_always"}, {"x", "other"}} {
		all = append(all, contracts.ApprovalOption{ID: o[0], Kind: o[1]})
	}
	out := func(v contracts.Verdict, text string) contracts.Outcome {
		o := contracts.Outcome{Verdict: v}
		if text != "" {
			o.Content = []contracts.ContentBlock{{Type: "text", Text: text}}
		}
		return o
	}
	approved, denied := contracts.VerdictApproved, contracts.VerdictDenied
	for _, tt := range []struct {
		options contracts.ApprovalOptions
		out     contracts.Outcome
		want    string
	}{
		{all, out(approved, ""), "a"},
		{all, out(denied, ""), "r"},
		{all, out(approved, `{"remember":"session"}`), "A"},
		{all, out(denied, `{"remember":"session"}`), "R"},
		{all, contracts.Outcome{Verdict: approved, Reason: `{"remember":"session"}`}, "A"},
		{all, contracts.Outcome{Verdict: denied, Reason: ` {"remember":"session"}`}, "R"},
		{all, contracts.Outcome{Verdict: approved, Reason: "Approved"}, "a"},
		{all, out(approved, `{"option_id":"A"}`), "A"},
		{all, out(approved, `{"option_id":"x"}`), "x"},
		{all, out(denied, `{"option_id":"x"}`), "x"},
		{all, out(approved, `{"option_id":"r"}`), "r"},
		{all, out(denied, `{"option_id":"A"}`), "r"},
		{all, out(approved, `{}`), "a"},
		{all, out(approved, `{"option_id":null,"remember":"session"}`), "A"},
		{all, out(approved, `{"reason":"It is safe."}`), "a"},
		{all, out(denied, `{"remember":"session","reason":"It is not."}`), "R"},
		{all, out(approved, `nonsense`), "a"},
		{all[:1], out(approved, ""), "A"},
		{all[1:3], out(denied, `{"remember":"session"}`), "r"},
		{all[:2], out(denied, ""), ""},
		{all[2:], out(approved, ""), ""},
	} {
		got := ""
		tt.out.By = contracts.ResolvedByUser
		i, remark := choose(tt.options, tt.out)
		if i >= 0 {
			got = tt.options[i].ID
		}
		if got != tt.want {
			t.Errorf("%v, %+v: got %q, want %q", tt.options, tt.out, got, tt.want)
		}
		if wish := strings.Contains(tt.out.Reason, "session") || len(tt.out.Content) > 0; remark != "" && !wish {
			t.Errorf("%v, %+v: got remark %q, want none", tt.options, tt.out, remark)
		}
	}
}

func TestWishThatCannotBeReadIsNoConsent(t *testing.T) {
	for _, reason := range []string{
		`{"option_id":"zzz"}`, ` {"remember":"session"`, `{"remember":"for ever"}`, `{"remember":"session","rule":"bash"}`,
	} {
		t.Run(reason, func(t *testing.T) {
			s := open(t, setup{})
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: reason}
			}
			s.run(t, permits("c", nil), done)
			s.shown(t, "tool_call", "server_request", "server_request_resolved", "tool_end", "response_start", "response_end")
			s.replies(t, no)
			s.says(t, "The answer counts as a denial: ")
		})
	}
	out := contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"remember":"session","rule":"bash"}`}
	i, remark := choose(contracts.ApprovalOptions{{Kind: "allow_once"}, {Kind: "reject_always"}, {Kind: "reject_once"}}, out)
	if i != 2 || remark != "The answer counts as a denial: rules are not for this agent" {
		t.Errorf("got option %d and remark %q, want a denial once, and that there are no rules", i, remark)
	}
	out.Reason = "{"
	always := contracts.ApprovalOptions{{ID: "a", Kind: "allow_once"}, {ID: "R", Kind: "reject_always"}}
	if i, remark := choose(always, out); i >= 0 || remark == "" {
		t.Errorf("got option %d and remark %q, want no lasting denial, and why", i, remark)
	}
}

func TestWishForASessionThatIsNotOfferedIsSaid(t *testing.T) {
	s := open(t, setup{})
	s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"remember":"session"}`}
	}
	s.run(t, permits("c", nil), done)
	if got := s.statuses(); len(got) > 0 {
		t.Errorf("got statuses %q, want none where there is such an option", got)
	}
	s.run(t, asks("session/request_permission", map[string]any{"toolCall": map[string]any{"toolCallId": "d"}, "options": []any{
		map[string]any{"optionId": "a", "name": "Yes", "kind": "allow_once"},
	}}), done)
	s.says(t, `no such answer for the session: it was answered "Yes", which holds for this call only`)
	s.replies(t, `{"outcome":{"optionId":"A","outcome":"selected"}}`, yes)
}

func TestQuestionSaysThatAnAnswerLasts(t *testing.T) {
	ask := func(kinds ...string) step {
		var options []any
		for _, kind := range kinds {
			options = append(options, map[string]any{"optionId": kind, "name": "Do " + kind, "kind": kind})
		}
		return asks("session/request_permission", map[string]any{"toolCall": map[string]any{"toolCallId": "c"}, "options": options})
	}
	allow := `There is no option to allow it only once: an approval means "Do allow_always", which holds for more than this call`
	deny := `There is no option to deny it only once: a denial means "Do reject_always", which holds for more than this call`
	for name, tt := range map[string]struct {
		ask  step
		want string
	}{
		"all":    {ask("allow_always", "allow_once", "reject_once", "reject_always"), ""},
		"allow":  {ask("allow_always", "reject_once", "reject_always"), ". " + allow},
		"reject": {ask("allow_once", "reject_always"), ". " + deny},
		"both":   {ask("reject_always", "allow_always"), ". " + allow + ". " + deny},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, setup{})
			s.run(t, tt.ask, done)
			if got, want := s.host.Asked()[0].Reason, "The agent asks for permission"+tt.want; got != want {
				t.Errorf("got reason %q\nwant %q", got, want)
			}
		})
	}
	s := open(t, setup{})
	s.host.Mode = contracts.ApprovalAuto
	s.run(t, ask("allow_always", "reject_once"), done)
	s.says(t, `was answered "Do allow_always", which holds for more than one call`)
}

func TestApprovalThatChoosesToRejectDoesNotStart(t *testing.T) {
	s := open(t, setup{})
	s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Content: []contracts.ContentBlock{{Type: "text", Text: `{"option_id":"R"}`}}}
	}
	s.run(t, permits("c", nil), done)
	s.shown(t, "tool_call", "server_request", "server_request_resolved", "tool_end", "response_start", "response_end")
	s.replies(t, `{"outcome":{"optionId":"R","outcome":"selected"}}`)
}

func TestQuestionWithoutAFittingOptionIsCancelledAloud(t *testing.T) {
	s := open(t, setup{})
	s.run(t, asks("session/request_permission", map[string]any{"toolCall": map[string]any{"toolCallId": "c"}, "options": []any{
		map[string]any{"optionId": "r", "name": "No", "kind": "reject_once"},
	}}), asks("session/request_permission", map[string]any{"toolCall": map[string]any{"toolCallId": "c"}}), done)
	s.says(t, "offers no option that means approved")
	if got := noted(t, s.notes, "replies"); got[0] != none || !strings.Contains(got[1], "options") {
		t.Errorf("the program was answered %q", got)
	}
}

func TestHeldCallsAreAnnouncedInTime(t *testing.T) {
	input := map[string]any{"rawInput": map[string]any{"seconds": 7}}
	for name, tt := range map[string]struct {
		wait   func(*waits) *time.Duration
		kind   acp.ToolKind
		status acp.ToolCallStatus
		more   map[string]any
	}{
		"without input": {func(w *waits) *time.Duration { return &w.input }, "read", "pending", nil},
		"pending":       {func(w *waits) *time.Duration { return &w.settle }, "execute", "pending", input},
		"begun":         {func(w *waits) *time.Duration { return &w.settle }, "execute", "in_progress", nil},
		"looks":         {func(w *waits) *time.Duration { return &w.glance }, "read", "in_progress", nil},
		"terminal":      {func(w *waits) *time.Duration { return &w.glance }, "execute", "in_progress", elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, setup{}, Options{})
			*tt.wait(&s.wait) = time.Millisecond
			s.start(t)
			result := make(chan error, 1)
			ctx, stop := context.WithCancelCause(t.Context())
			go func() { // ends with ctx
				result <- s.Run(ctx, contracts.Work{Content: script(calls("c", "Sleep", tt.kind, tt.status, tt.more),
					step{Await: "session/cancel"}, stops(acp.StopReasonCancelled))})
			}()
			s.host.AwaitType("tool_start")
			stop(errStopped)
			if err := <-result; !errors.Is(err, errStopped) {
				t.Errorf("got %v, want %v", err, errStopped)
			}
		})
	}
}

var errStopped = errors.New("stopped by the test")

func TestResponseEndsWhenACallComes(t *testing.T) {
	s := open(t, setup{})
	result := make(chan error, 1)
	ctx, stop := context.WithCancelCause(t.Context())
	go func() { // ends with ctx
		result <- s.Run(ctx, contracts.Work{Content: script(says("x"), calls("c", "Sleep", "execute", "pending", nil),
			step{Await: "session/cancel"}, stops(acp.StopReasonCancelled))})
	}()
	s.host.AwaitType("response_end") // although the call is still held back
	stop(errStopped)
	if err := <-result; !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	s.shown(t, "response_start", "response_chunk", "response_end")
}

func TestCallsLeftOpenAreEnded(t *testing.T) {
	s := open(t, setup{})
	s.run(t, calls("c1", "a", "other", "pending", nil), calls("c2", "b", "other", "in_progress", shows("x")), done)
	ends := hosttest.As[*contracts.ToolEnd](s.host)
	if len(ends) != 2 || ends[0].Success || ends[1].Success {
		t.Errorf("got %+v, want two failures", ends)
	}
}

func TestInterruptedQuestionIsCancelled(t *testing.T) {
	s := open(t, setup{})
	s.host.Answer = nil
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { // ends with ctx
		result <- s.Run(ctx, contracts.Work{Content: script(permits("c", nil), stops(acp.StopReasonCancelled))})
	}()
	req := s.host.AwaitType("server_request").(*contracts.ServerRequest)
	stop(errStopped) // as the hub does, which also cancels what is pending
	s.host.Resolve(req.RequestID, contracts.Outcome{Verdict: contracts.VerdictCancelled, By: contracts.ResolvedByRuntime})
	if err := <-result; !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	s.replies(t, none)
	s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
	}
	s.run(t, permits("c", nil), changes("c", "completed", nil), done)
	s.replies(t, none, yes)
}

func TestQuestionEndsWithItsRun(t *testing.T) {
	s := open(t, setup{})
	s.host.Answer = nil
	ask := permits("c", nil)
	ask.Async = true
	s.run(t, ask, done)
	s.run(t, step{Answer: 1}, done) // the answer was sent before the next prompt
	s.replies(t, none)
}

func TestWithdrawnQuestionEndsItsCall(t *testing.T) {
	s := open(t, setup{})
	s.host.Answer = nil
	ask := permits("c", nil)
	ask.Async = true
	s.run(t, ask, step{Tell: methodCancelRequest, Params: map[string]any{"requestId": 1}}, step{Answer: 1}, done)
	s.replies(t, none)
}

func TestQuestionsOutsideOfARunAreRefusedAloud(t *testing.T) {
	s := open(t, setup{})
	ask := permits("c", nil)
	ask.Async = true
	elicit := asks("elicitation/create", map[string]any{"mode": "form", "message": "?"})
	elicit.Async = true
	s.run(t, done, ask, elicit)
	s.host.Await(func(ev contracts.Event) bool {
		e, ok := ev.(*contracts.ErrorEvent)
		return ok && e.ErrorType == contracts.ErrorProtocol && strings.Contains(e.Message, "input outside of a run")
	})
	s.run(t, step{Answer: 1}, step{Answer: 2}, done)
	s.replies(t, none, `{"action":"cancel"}`)
	if len(s.host.Asked()) > 0 {
		t.Error("got a question to clients, want none")
	}
}

func TestQuestionsBeforeTheSessionAreRefused(t *testing.T) {
	early := []step{
		asks("elicitation/create", map[string]any{"mode": "form", "message": "?"}), permits("c", nil),
		asks("fs/write_text_file", map[string]any{"path": "/x", "content": "y"}),
	}
	for i := range early {
		early[i].Async = true
	}
	s := open(t, setup{Early: early})
	s.run(t, step{Answer: 1}, step{Answer: 2}, step{Answer: 3}, done)
	got := noted(t, s.notes, "replies")
	if len(got) != 3 || got[0] != `{"action":"cancel"}` || got[1] != none || !strings.Contains(got[2], "outside of a run") {
		t.Errorf("the program was answered %q, want refusals", got)
	}
	for _, what := range []string{"ask for input", "ask for permission", "write a file"} {
		s.says(t, "wanted to "+what+" before its first run")
	}
}

func TestManyQuestionsAreBounded(t *testing.T) {
	s := open(t, setup{})
	s.host.Answer = nil
	ask := permits("c", nil)
	ask.Async = true
	steps := slices.Repeat([]step{ask}, maxServed+1)
	s.run(t, append(steps, step{Answer: maxServed + 1}, done)...)
	if got := noted(t, s.notes, "replies"); len(got) != 1 || !strings.Contains(got[0], "too many requests") {
		t.Errorf("the program was answered %q, want one refusal", got)
	}
}

func TestElicitations(t *testing.T) {
	form := asks("elicitation/create", map[string]any{
		"sessionId": "s1", "mode": "form", "message": "Which?", "requestedSchema": map[string]any{"type": "object", "required": []string{"a"}},
	})
	page := asks("elicitation/create", map[string]any{"sessionId": "s1", "mode": "url", "message": "Go", "url": "https://example.org", "elicitationId": "e1"})
	answered := func(text string) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictAnswered, By: contracts.ResolvedByClient, Content: []contracts.ContentBlock{{Type: "text", Text: text}}}
	}
	for name, tt := range map[string]struct {
		ask   step
		out   contracts.Outcome
		reply string
		said  string
	}{
		"accepted":   {form, answered(`{"action":"accept","content":{"a":"b","n":1.50,"l":["x"],"y":true}}`), `{"action":"accept","content":{"a":"b","l":["x"],"n":1.50,"y":true}}`, ""},
		"declined":   {page, answered(`{"action":"decline","content":{"a":"b"}}`), `{"action":"decline"}`, ""},
		"cancelled":  {form, answered(`{"action":"cancel"}`), `{"action":"cancel"}`, ""},
		"unreadable": {form, answered(`yes`), `{"action":"cancel"}`, "not understood"},
		"unknown":    {form, answered(`{"action":"maybe"}`), `{"action":"cancel"}`, "no action that is known"},
		"nested":     {form, answered(`{"action":"accept","content":{"a":{"b":1}}}`), `{"action":"cancel"}`, `"a" is no text`},
		"unfit":      {form, answered(`{"action":"accept","content":{"b":"c"}}`), `{"action":"cancel"}`, `"a" is missing`},
		"nobody":     {form, contracts.Outcome{Verdict: contracts.VerdictFailed, Reason: "timed out", By: contracts.ResolvedByPolicy}, `{"action":"cancel"}`, "timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, setup{})
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome { return tt.out }
			s.run(t, says("?"), tt.ask, done)
			s.replies(t, tt.reply)
			shown := []string{"response_start", "response_chunk", "response_end"}
			asked := s.host.Asked()
			for range asked {
				shown = append(shown, "server_request", "server_request_resolved", "tool_end")
			}
			s.shown(t, shown...)
			unfit := tt.out.Verdict == contracts.VerdictAnswered && tt.said != ""
			if len(asked) != 1 && !unfit || unfit && (len(asked) != 3 || !strings.Contains(asked[1].Reason, tt.said)) {
				t.Errorf("asked %+v, want it again only where the answer does not fit, saying why", asked)
			}
			if tt.said != "" {
				s.says(t, tt.said)
			} else if got := s.statuses(); len(got) > 0 {
				t.Errorf("said %q, want nothing", got)
			}
			req := s.host.Asked()[0]
			var args elicit.Question
			hosttest.Must(t, json.Unmarshal(req.Args, &args))
			if req.CallID != "mcp_elicitation:fake:"+args.RequestID || args.ServerName != "fake" || args.Message == "" || req.Reason != "The agent asks for input" {
				t.Errorf("got %s with %s", req.CallID, req.Args)
			}
			if args.Mode == "form" && string(args.RequestedSchema) != `{"required":["a"],"type":"object"}` || args.Mode == "url" && args.URL == "" {
				t.Errorf("got args %s, want them as the program sent them", req.Args)
			}
		})
	}
}

func TestElicitationsThatCannotBeShownAreRefused(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	s := open(t, setup{})
	for _, params := range []map[string]any{
		{"mode": "dance"}, {"mode": "url", "url": "file:///etc/passwd"}, {"mode": "url", "url": "https://h/" + long},
		{"requestedSchema": map[string]any{"$ref": "#"}}, {"requestedSchema": map[string]any{"title": long}},
	} {
		if got := s.answer(t, asks("elicitation/create", params)); !strings.Contains(got, "-32602") {
			t.Errorf("%.80v: got %s, want a refusal", params, got)
		}
	}
	if len(s.host.Asked()) > 0 {
		t.Errorf("asked %d questions, want none", len(s.host.Asked()))
	}
	s.says(t, "question was refused: it wanted an address opened that is none of the web")
}

func TestControlCharactersOfAProgramAreSeen(t *testing.T) {
	s := open(t, setup{Begun: map[string]any{"models": map[string]any{"currentModelId": "m\x1b[2J"}}})
	const evil, seen = "a\x1b]0;x\x07\u202eb\r\u009bc", "a\uFFFD]0;x\uFFFD\uFFFDb\uFFFD\uFFFDc"
	s.run(t, step{Update: map[string]any{"sessionUpdate": "plan", "entries": []any{map[string]any{"content": evil}}}},
		asks("session/request_permission", map[string]any{
			"toolCall": map[string]any{"toolCallId": "c", "title": evil, "kind": evil, "locations": []any{map[string]any{"path": evil}}},
			"options":  []any{map[string]any{"optionId": "a", "name": evil, "kind": "allow_once"}},
		}), done)
	s.fails(t, contracts.ErrorTool, seen, step{Fail: evil, Code: -32603})
	s.says(t, seen)
	req := s.host.Asked()[0]
	for _, text := range []string{req.Tool, req.SummaryLabel, req.ActionDescription, req.DisplayName} {
		if !strings.Contains(strings.ToLower(text), seen) {
			t.Errorf("got %q, want %q in it", text, seen)
		}
	}
	for _, ev := range s.host.Shown() {
		if text := string(encode(ev)); strings.Contains(text, "u001b") || strings.Contains(text, "\u202e") {
			t.Errorf("got %s, want no control characters", text)
		}
	}
}
