package chord

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func confirm(id string) string {
	return say("confirm_request", `"request_id":"`+id+`","tool_name":"shell","args_json":"{\"command\":\"echo one\"}","needs_approval":["echo one"],"already_allowed":null,"timeout_ms":0`)
}

func TestApprovalsAreAnswered(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  contracts.Outcome
		mode    contracts.ApprovalMode
		members []string
		success bool
		status  string
	}{
		{"C22 allowed", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}, "", []string{`"request_id":"q1"`, `"action":"allow"`}, true, ""},
		{"C22 denied", contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser, Reason: "not now"}, "", []string{`"action":"deny"`, `"deny_reason":"not now"`}, false, ""},
		{"C25 remembered", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"remember":"session"}`}, "", []string{`"rule_pattern":"echo one","rule_scope":"session"`}, true, ""},
		{"C25 a rule", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"remember":"session","rule":"echo *"}`}, "", []string{`"rule_pattern":"echo *","rule_scope":"session"`}, true, ""},
		{"a denial is not remembered", contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser, Reason: `{"remember":"session"}`}, "", []string{`"action":"deny"`}, false, "cannot remember"},
		{"a note that is not understood", contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Reason: `{"option_id":"x"}`}, "", []string{`"action":"deny"`}, false, "counts as a denial"},
		{"by policy", contracts.Outcome{}, contracts.ApprovalAuto, []string{`"action":"allow"`}, true, ""},
		{"refused by policy", contracts.Outcome{}, contracts.ApprovalFail, []string{`"action":"deny"`}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, served(toolOnly, executing, confirm("q1"), "<confirm", connecting, hi, idle))
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome { return tt.answer }
			if tt.mode != "" {
				s.host.Mode = tt.mode
			}
			s.start(t)
			hosttest.Must(t, s.run(t, "go"))
			s.wantSent(t, "confirm", tt.members...)
			asked, ends := s.host.Asked()[0], hosttest.As[*contracts.ToolEnd](s.host)
			if asked.Tool != "shell" || string(asked.Args) != `{"command":"echo one"}` || asked.ActionDescription != "echo one" {
				t.Errorf("got question %+v, want the call", asked)
			}
			if len(ends) != 1 || ends[0].Success != tt.success || ends[0].CallID != asked.CallID {
				t.Errorf("got ends %+v, want one with success %v", ends, tt.success)
			}
			if !strings.Contains(s.statuses(), tt.status) {
				t.Errorf("got %q, want %q", s.statuses(), tt.status)
			}
		})
	}
}

func TestOddApprovalsAreShownAsTheyAre(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, tt := range map[string]struct{ args, want, reason string }{
		"no JSON":  {`rm -rf`, `{"input":"rm -rf"}`, "permission"},
		"a list":   {`[1]`, `{"input":"[1]"}`, "permission"},
		"nothing":  {``, `{"input":""}`, "permission"},
		"too long": {`{"a":"` + long + `"}`, `{"omitted_bytes":204808}`, "204808 bytes of input are left out"},
	} {
		t.Run(name, func(t *testing.T) {
			quoted, _ := json.Marshal(tt.args)
			s := start(t, patient, served(say("confirm_request", `"request_id":"q1","args_json":`+string(quoted)), "<confirm", hi, idle))
			hosttest.Must(t, s.run(t, "go"))
			if q := s.host.Asked()[0]; string(q.Args) != tt.want || !strings.Contains(q.Reason, tt.reason) || q.Tool == "" {
				t.Errorf("got %+v, want %s", q, tt.want)
			}
		})
	}
}

func TestHandoffsAreApprovals(t *testing.T) {
	for verdict, action := range map[contracts.Verdict]string{contracts.VerdictApproved: `"action":"accept"`, contracts.VerdictDenied: `"action":"deny"`} {
		t.Run(string(verdict), func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, served(say("handoff_request", `"request_id":"h1","plan_path":"plan.md","plan_text":"First","agents":[{"name":"coder","default":true}]`), "<handoff", hi, idle))
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: verdict, By: contracts.ResolvedByUser}
			}
			s.start(t)
			hosttest.Must(t, s.run(t, "go"))
			s.wantSent(t, "handoff", `"request_id":"h1"`, action)
			if q := s.host.Asked()[0]; q.Tool != "handoff" || !strings.Contains(string(q.Args), `"plan_text":"First"`) {
				t.Errorf("got %+v, want the plan", q)
			}
		})
	}
}

func TestQuestionsAreAnswered(t *testing.T) {
	text := func(texts ...string) (blocks []contracts.ContentBlock) {
		for _, s := range texts {
			blocks = append(blocks, contracts.ContentBlock{Type: "text", Text: s})
		}
		return blocks
	}
	const options = `"options":["red","blue"],"option_details":["warm"],"default_answer":"red"`
	for _, tt := range []struct {
		name, members string
		answer        contracts.Outcome
		want          string
	}{
		{"one option", options, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("blue")}, `"answers":["blue"]`},
		{"C28 several options", options + `,"multiple":true`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("red, blue")}, `"answers":["red","blue"]`},
		{"C28 several texts", options + `,"multiple":true`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("red", "blue")}, `"answers":["red","blue"]`},
		{"C28 own words", options + `,"multiple":true`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("red, or so")}, `"answers":["red, or so"]`},
		{"free text", `"options":[]`, contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("a", "b")}, `"answers":["a\nb"]`},
		{"C29 no answer", options, contracts.Outcome{Verdict: contracts.VerdictFailed}, `"cancelled":true`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, served(toolOnly, say("question_request", `"request_id":"q1","tool_name":"question","question":"Which?",`+tt.members), "<question", hi, idle))
			tt.answer.By = contracts.ResolvedByUser
			s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome { return tt.answer }
			s.start(t)
			hosttest.Must(t, s.run(t, "go"))
			s.wantSent(t, "question", `"request_id":"q1"`, tt.want)
			asked := contracts.UserQuestions(s.host.Asked()[0].Args)
			if len(asked) != 1 || asked[0].Question != "Which?" || asked[0].MultiSelect != strings.Contains(tt.members, "multiple") {
				t.Errorf("got %+v, want the question", asked)
			}
			if ends := hosttest.As[*contracts.ToolEnd](s.host); len(ends) != 1 {
				t.Errorf("got %d ends, want one", len(ends))
			}
		})
	}
}

func TestQuestionsOutsideOfRunsAreRefused(t *testing.T) {
	s := start(t, patient, []string{ready, confirm("q0"), "<confirm", say("question_request", `"request_id":"q1"`), "<question", say("handoff_request", `"request_id":"h1"`), "<handoff", "<send", hi, idle})
	eventually(t, "the refusals", func() bool { return len(s.program.Sent("handoff")) == 1 })
	hosttest.Must(t, s.run(t, "go"))
	s.wantSent(t, "confirm", `"request_id":"q0"`, `"action":"deny"`, "outside of a run")
	s.wantSent(t, "question", `"cancelled":true`)
	s.wantSent(t, "handoff", `"action":"deny"`)
	if n := len(s.host.Asked()); n != 0 {
		t.Errorf("got %d questions, want none", n)
	}
}

func TestAnotherQuestionReplacesTheFirst(t *testing.T) {
	s := newStand(t, t.TempDir(), patient, served(confirm("q1"), "!every 100ms 1 "+confirm("q2"), "<confirm", hi, idle))
	s.host.Answer = nil
	s.start(t)
	done := make(chan error, 1)
	go func() { done <- s.run(t, "go") }() // ends with the run
	eventually(t, "the second question", func() bool {
		asked := s.host.Asked()
		return len(asked) == 2 && s.host.Resolve(asked[1].RequestID, contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser})
	})
	hosttest.Must(t, <-done)
	s.wantSent(t, "confirm", `"request_id":"q2"`, `"action":"allow"`)
}

func TestIdleWithdrawsWhatIsOpen(t *testing.T) {
	s := newStand(t, t.TempDir(), patient, served(confirm("q1"), "!every 100ms 1 "+idle))
	s.host.Answer = nil
	s.start(t)
	hosttest.Must(t, s.run(t, "go"))
	if got := s.program.Sent("confirm"); len(got) > 0 {
		t.Errorf("got %q, want no answer", got)
	}
	if s.host.Resolve(s.host.Asked()[0].RequestID, contracts.Outcome{Verdict: contracts.VerdictApproved}) {
		t.Error("the question is still open, want it withdrawn")
	}
}
