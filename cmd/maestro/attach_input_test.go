package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestTypedLines(t *testing.T) {
	for _, test := range []struct {
		line string
		want action
		err  string // a part of it
	}{
		{"", action{}, ""},
		{"   ", action{}, ""},
		{"\f", action{}, ""},
		{" /who", action{verb: "who"}, ""},
		{"\f/quit", action{verb: "quit"}, ""},
		{"\t/quit \t", action{verb: "quit"}, ""},
		{" //etc/hosts", action{verb: verbSay, text: "/etc/hosts"}, ""},
		{"fix the test", action{verb: verbSay, text: "fix the test"}, ""},
		{"  keep  spaces \r\n", action{verb: verbSay, text: "  keep  spaces "}, ""},
		{"//etc/hosts", action{verb: verbSay, text: "/etc/hosts"}, ""},
		{"/ask", action{verb: "ask"}, ""},
		{"/ask  my turn", action{verb: "ask", text: "my turn"}, ""},
		{"/take", action{verb: "take"}, ""},
		{"/take it", action{}, "no text after"},
		{"/release", action{verb: "release"}, ""},
		{"/grant", action{verb: "grant", number: 1}, ""},
		{"/grant 3", action{verb: "grant", number: 3}, ""},
		{"/grant bob", action{}, "number"},
		{"/grant 0", action{}, "from 1"},
		{"/deny", action{verb: "deny", number: 1}, ""},
		{"/deny 2 not now", action{verb: "deny", number: 2, text: "not now"}, ""},
		{"/deny not now", action{verb: "deny", number: 1, text: "not now"}, ""},
		{"/interrupt", action{verb: "interrupt"}, ""},
		{"/queue  then the docs", action{verb: "queue", text: "then the docs"}, ""},
		{"/steer use ninja", action{verb: "steer", text: "use ninja"}, ""},
		{"/queue", action{}, "/queue takes a prompt"},
		{"/queued", action{verb: "queued"}, ""},
		{"/edit 2 the tests", action{verb: "edit", number: 2, text: "the tests"}, ""},
		{"/first two", action{}, "/first takes a number"},
		{"/drop", action{verb: "drop", number: 1}, ""},
		{"/resume", action{verb: "resume"}, ""},
		{"/who", action{verb: "who"}, ""},
		{"/show", action{verb: "show"}, ""},
		{"/history", action{verb: "history"}, ""},
		{"/history 5", action{verb: "history", text: "5"}, ""},
		{"/turns", action{verb: "turns"}, ""},
		{"/find a text", action{verb: "find", text: "a text"}, ""},
		{"/help", action{verb: "help"}, ""},
		{"/quit", action{verb: "quit"}, ""},
		{"/say hello", action{}, "no command /say: /help lists them; for the agent: //say"},
		{"/rules", action{}, "no command /rules"},
		{" /forget bash(go test:*)", action{verb: verbSay, text: "/forget bash(go test:*)"}, ""},
		{"/review all", action{verb: verbSay, text: "/review all"}, ""},
		{"/rev", action{}, "no command /rev"},
		{"/\x1b[31m", action{}, "no command"},
		{"/", action{}, "no command"},
	} {
		got, err := parseLine(test.line, []string{"/review", "/who", "/forget"})
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) || strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("parseLine(%q): got %+v, %v; want an error with %q", test.line, got, err, test.err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("parseLine(%q): got %+v, %v; want %+v", test.line, got, err, test.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	colours := `{"questions":[{"header":"Colour","question":"Which one?","options":[{"label":"red","description":"warm"},{"label":"blue","description":""}]}]}`
	offers := `{"_acp":{"options":[{"id":"once","name":"Once","kind":"allow_once"},{"id":"always","name":"Always","kind":"allow_always"},{"id":"no","name":"No","kind":"reject_once"}]}}`
	several := strings.Replace(colours, `"options"`, `"multiSelect":true,"options"`, 1)
	for _, test := range []struct {
		kind contracts.RequestType
		args string
		line string
		want string // the command, or the error after "!"
	}{
		{contracts.RequestApproval, `{}`, "y", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true}`},
		{contracts.RequestApproval, `{}`, " YES ", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true}`},
		{contracts.RequestApproval, `{}`, `yes {"reason":"go on"}`, `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true,"result":{"success":true,"output":"{\"reason\":\"go on\"}"}}`},
		{contracts.RequestApproval, `{}`, "yes go on", "!y alone"},
		{contracts.RequestApproval, `{}`, "yes please\necho and more", "!one line"},
		{contracts.RequestApproval, `{}`, "\ny", "!one line"},
		{contracts.RequestApproval, `{}`, "y \r{}", "!one line"},
		{contracts.RequestApproval, `{}`, "y {\"reason\":\n\"x\"}", "!one line"},
		{contracts.RequestApproval, offers, "2\n ", "!one line"},
		{contracts.RequestApproval, `{}`, "n because\nof this", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":false,"result":{"success":false,"output":"","error":"because\nof this"}}`},
		{contracts.RequestApproval, `{}`, "n", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":false}`},
		{contracts.RequestApproval, `{}`, "n not on a Friday", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":false,"result":{"success":false,"output":"","error":"not on a Friday"}}`},
		{contracts.RequestApproval, `{}`, "now run the tests", "!y, n and a reason, or a"},
		{contracts.RequestApproval, `{}`, "a", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true,"result":{"success":true,"output":"{\"remember\":\"session\"}"}}`},
		{contracts.RequestApproval, `{}`, `y {"remember":"session","rule":"bash(ls:*)"}`, `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true,"result":{"success":true,"output":"{\"remember\":\"session\",\"rule\":\"bash(ls:*)\"}"}}`},
		{contracts.RequestApproval, `{}`, "n remember to ask first", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":false,"result":{"success":false,"output":"","error":"remember to ask first"}}`},
		{contracts.RequestApproval, `{}`, "a please", "!no text after"},
		{contracts.RequestApproval, `{}`, "y remember", "!y alone"},
		{contracts.RequestApproval, `{}`, "yes Always", "!y alone"},
		{contracts.RequestApproval, `{}`, `y "session"`, "!y alone"},
		{contracts.RequestApproval, `{}`, `y [1]`, "!y alone"},
		{contracts.RequestApproval, `{}`, `y {"remember":"session"`, "!not understood"},
		{contracts.RequestApproval, `{}`, `n {"remember":"session"`, "!not understood"},
		{contracts.RequestApproval, `{}`, `y {"remember":"ever"}`, `!/remember Expected union value: want {"remember":"session"}`},
		{contracts.RequestApproval, `{}`, `y {"option_id":"o"}`, "!no such option"},
		{contracts.RequestApproval, offers, "2", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true,"result":{"success":true,"output":"{\"option_id\":\"always\"}"}}`},
		{contracts.RequestApproval, offers, "3", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":false,"result":{"success":false,"output":"","error":"{\"option_id\":\"no\"}"}}`},
		{contracts.RequestApproval, offers, "y", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true}`},
		{contracts.RequestApproval, offers, "n why", `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":false,"result":{"success":false,"output":"","error":"why"}}`},
		{contracts.RequestApproval, offers, `y {"option_id":"always"}`, `{"type":"server_request_response","request_id":"q","request_type":"approval","approved":true,"result":{"success":true,"output":"{\"option_id\":\"always\"}"}}`},
		{contracts.RequestApproval, offers, `y {"option_id":"no"}`, "!option 3 says the opposite"},
		{contracts.RequestApproval, offers, `n {"option_id":"once"}`, "!option 1 says the opposite"},
		{contracts.RequestApproval, offers, "4", "!no option 4"},
		{contracts.RequestApproval, offers, "0", "!no option 0"},
		{contracts.RequestApproval, offers, "2 now", "!no text after"},
		{contracts.RequestApproval, offers, "a", "!by its number"},
		{contracts.RequestApproval, offers, "ok", "!a number from 1 to 3"},
		{contracts.RequestToolRetry, `{}`, "r", `{"type":"server_request_response","request_id":"q","request_type":"tool_retry","decision_action":"retry"}`},
		{contracts.RequestToolRetry, `{}`, "skip it is broken", `{"type":"server_request_response","request_id":"q","request_type":"tool_retry","decision_action":"skip","reason":"it is broken"}`},
		{contracts.RequestToolRetry, `{}`, "a", `{"type":"server_request_response","request_id":"q","request_type":"tool_retry","decision_action":"abort"}`},
		{contracts.RequestToolRetry, `{}`, "yes", "!r, s or a"},
		{contracts.RequestMCPElicitation, `{}`, "decline", `{"type":"server_request_response","request_id":"q","request_type":"mcp_elicitation","content":[{"type":"text","text":"{\"action\":\"decline\"}"}]}`},
		{contracts.RequestMCPElicitation, `{}`, `{"age":3}`, `{"type":"server_request_response","request_id":"q","request_type":"mcp_elicitation","content":[{"type":"text","text":"{\"action\":\"accept\",\"content\":{\"age\":3}}"}]}`},
		{contracts.RequestMCPElicitation, `{}`, `{"age":`, "!JSON object"},
		{contracts.RequestUserInput, colours, "2", `{"type":"server_request_response","request_id":"q","request_type":"user_input","content":[{"type":"text","text":"blue"}]}`},
		{contracts.RequestUserInput, colours, "green, rather", `{"type":"server_request_response","request_id":"q","request_type":"user_input","content":[{"type":"text","text":"green, rather"}]}`},
		{contracts.RequestUserInput, colours, "3", "!no option 3"},
		{contracts.RequestUserInput, colours, "1,2", "!one option"},
		{contracts.RequestUserInput, several, "2, 1", `{"type":"server_request_response","request_id":"q","request_type":"user_input","content":[{"type":"text","text":"blue, red"}]}`},
		{contracts.RequestUserInput, colours, "decline", `{"type":"server_request_response","request_id":"q","request_type":"user_input","content":[{"type":"text","text":"The user did not answer."}],"is_error":true}`},
		{contracts.RequestUserInput, `{}`, "7", `{"type":"server_request_response","request_id":"q","request_type":"user_input","content":[{"type":"text","text":"7"}]}`},
		{contracts.RequestClientTool, `{}`, "done", `{"type":"server_request_response","request_id":"q","request_type":"client_tool","content":[{"type":"text","text":"done"}]}`},
		{contracts.RequestClientTool, `{}`, "! no editor", `{"type":"server_request_response","request_id":"q","request_type":"client_tool","content":[{"type":"text","text":"no editor"}],"is_error":true}`},
	} {
		q := question{id: "q", kind: test.kind, tool: "bash", args: json.RawMessage(test.args)}
		cmd, err := q.answer(test.line, true)
		if why, refused := strings.CutPrefix(test.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s %q: got %+v, %v; want an error with %q", test.kind, test.line, cmd, err, why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %q: %v", test.kind, test.line, err)
			continue
		}
		got, err := contracts.EncodeCommand(cmd)
		if err != nil || string(got) != test.want {
			t.Errorf("%s %q: got %s, %v; want %s", test.kind, test.line, got, err, test.want)
		}
	}
}

func TestSeveralQuestionsAreAnsweredInTurn(t *testing.T) {
	q := question{id: "q", kind: contracts.RequestUserInput, args: json.RawMessage(
		`{"questions":[{"header":"Name","question":"Your name?"},{"header":"Day","question":"Which day?","options":[{"label":"Mon"},{"label":"Tue"}]}]}`)}
	if _, err := q.answer("Ada", true); !errors.Is(err, errMore) {
		t.Fatalf("got %v, want errMore", err)
	}
	if got, want := q.prompt(true), "answer 2 of 2: "; got != want {
		t.Errorf("got prompt %q, want %q", got, want)
	}
	cmd, err := q.answer("2", true)
	if err != nil || cmd.Content[0].Text != "Name: Ada\nDay: Tue" {
		t.Errorf("got %+v, %v", cmd, err)
	}
}

func TestAgentThatRemembersNothingIsNotToldTo(t *testing.T) {
	q := question{id: "q", kind: contracts.RequestApproval, tool: "bash", args: json.RawMessage(`{}`)}
	for _, line := range []string{"a", `y {"remember":"session"}`, `n {"remember":"session"}`, `y {"rule":"bash(ls)"}`} {
		if _, err := q.answer(line, false); !errors.Is(err, errForgetful) {
			t.Errorf("%s: got %v, want that the agent remembers nothing", line, err)
		}
	}
	if _, err := q.answer("perhaps", false); err == nil || strings.HasSuffix(err.Error(), "or a") {
		t.Errorf("got %v, want that a is not offered", err)
	}
	for _, remembers := range []bool{true, false} {
		if got := strings.Contains(q.prompt(remembers)+q.keys(remembers), "always"); got != remembers {
			t.Errorf("an agent that remembers %t: got it offered %t", remembers, got)
		}
	}
}

// TestToolsOfOthersAreRememberedByRuleOnly has agents of ours refuse to remember
// such calls otherwise.
func TestToolsOfOthersAreRememberedByRuleOnly(t *testing.T) {
	for tool, want := range map[string]bool{"bash": true, "grep": true, "mcp__shop__buy": false, "Bash": false, "my_editor": false} {
		q := question{id: "q", kind: contracts.RequestApproval, tool: tool, args: json.RawMessage(`{}`)}
		if got := strings.Contains(q.prompt(true), "lways"); got != want {
			t.Errorf("%s: prompt offers it %t, want %t", tool, got, want)
		}
		if got := strings.Contains(q.keys(true), "always"); got != want {
			t.Errorf("%s: keys offer it %t, want %t", tool, got, want)
		}
		if _, err := q.answer("a", true); (err == nil) != want || !want && !strings.Contains(err.Error(), "by a rule") {
			t.Errorf("%s: got %v", tool, err)
		}
		if _, err := q.answer(`y {"remember":"session","rule":"`+tool+`"}`, true); err != nil {
			t.Errorf("%s with a rule: %v", tool, err)
		}
	}
}

func TestVerdictsStandForTheOptionThatAgentsTake(t *testing.T) {
	of := func(kinds ...string) (options contracts.ApprovalOptions) {
		for _, k := range kinds {
			options = append(options, contracts.ApprovalOption{Kind: k})
		}
		return options
	}
	for _, test := range []struct {
		options contracts.ApprovalOptions
		want    string
	}{
		{of("allow_always", "reject_always", "allow_once", "reject_once"), "a number, y = 3, n [reason] = 4"},
		{of("allow_always", "odd"), "a number, y = 1"},
		{of("reject_always"), "a number, n [reason] = 1"},
	} {
		if got := optionKeys(test.options); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestQueueIsChangedByNumbers(t *testing.T) {
	queue := []contracts.QueuedPrompt{{PromptID: "a"}, {PromptID: "b"}}
	for _, test := range []struct {
		act  action
		want string // the command, or a part of the error
	}{
		{action{verb: "edit", number: 2, text: "new"}, `{"type":"queue_edit","prompt_id":"b","content":"new"}`},
		{action{verb: "first", number: 2}, `{"type":"queue_move","prompt_id":"b","before":"a"}`},
		{action{verb: "drop", number: 1}, `{"type":"queue_cancel","prompt_id":"a"}`},
		{action{verb: "drop", number: 3}, "no prompt 3"},
		{action{verb: "edit", number: 1}, "the new text"},
	} {
		cmd, err := changeOf(test.act, queue)
		if err != nil {
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v: got %v, want %s", test.act, err, test.want)
			}
			continue
		}
		if got, err := contracts.EncodeCommand(cmd); err != nil || string(got) != test.want {
			t.Errorf("%+v: got %s, %v; want %s", test.act, got, err, test.want)
		}
	}
}
