package hecate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// The whole of a run.
func shellRun() []contracts.Event {
	return append(prompted("build it"),
		chunk("I build "), chunk("it."), toolCall("bash", `{"command":"make","env":{"TOKEN":"`+secret+`"}}`),
		asks(contracts.RequestApproval), decides(contracts.VerdictApproved, contracts.ResolvedByUser, "Approved"),
		toolStart, output("ok\n"), toolEnd, chunk("Built."), closed, agentEnd)
}

func TestRun(t *testing.T) {
	for _, v := range []Vocabulary{VocabularyTurn, VocabularyModelCall} {
		t.Run("E1 E2 E4 E20 E21 E22 E23 E24 E26 E43 "+string(v), func(t *testing.T) {
			l := newLog(t, Options{SessionID: "main", Vocabulary: v}).feed(shellRun()...)
			round := v.eventType("turn.started")
			done := v.eventType("turn.completed")
			l.want("run.queued", "user.message", "run.started", round,
				"assistant.text_delta", "assistant.text_delta", "assistant.text_complete",
				"assistant.tool_call_proposed", "approval.requested", "approval.resolved",
				"tool.invoked", "tool.started", "tool.shell.command", "tool.shell.output_chunk", "tool.shell.exited", "tool.completed",
				"assistant.text_delta", "assistant.text_complete", done, "cost.tick", "assistant.final_answer", "run.finished")
			l.check()
			members(t, l.one("run.queued"), `{"kind":"agent_loop","model":"m-1","provider":"acme","workspace_path":"/srv","prior_run_id":null,"maestro_session_id":"main"}`)
			members(t, l.one("run.started"), `{"worker_id":"maestro","lease_until":"2026-05-03T10:01:00.004Z"}`)
			members(t, l.one("user.message"), `{"text":"build it"}`)
			members(t, l.one(done), `{"input_tokens":10,"output_tokens":5,"cached_input_tokens":2,"cost_micros_usd":13,"duration_ms":7,"tool_calls":1}`)
			members(t, l.one("cost.tick"), `{"cumulative_input_tokens":10,"cumulative_output_tokens":5,"cumulative_cost_micros_usd":13}`)
			members(t, l.one("approval.requested"), `{"approval_id":"q1","tool_call_id":"c1","kind":"agent_loop_tool_call","summary":"Running make","policy_reason":"it can change files"}`)
			members(t, l.one("approval.resolved"), `{"approval_id":"q1","decision":"approved","by":"operator","comment":"Approved"}`)
			members(t, l.one("tool.shell.command"), `{"argv":["sh","-c","make"],"command_string":"make","cwd":"/srv","env_keys":["TOKEN"],"sandbox_layer":"none"}`)
			members(t, l.one("tool.shell.exited"), `{"exit_code":0,"signal":null,"stdout_bytes":3,"stderr_bytes":0,"truncated":false}`)
			members(t, l.one("tool.completed"), `{"tool_name":"bash","kind":"shell","duration_ms":2,"summary":"ok"}`)
			members(t, l.one("assistant.final_answer"), `{"summary":"Built."}`)
			members(t, l.one("run.finished"), `{"final_status":"completed","cost_micros_usd":13,"duration_ms":12}`)
			for _, e := range l.events {
				if strings.HasPrefix(e.Type, "turn.") != (v == VocabularyTurn) && e.Kind() != e.Type {
					t.Errorf("got %s in the vocabulary %s", e.Type, v)
				}
				if strings.Contains(string(e.Data), `"turn`) && v == VocabularyModelCall {
					t.Errorf("got %s in the vocabulary %s", e.Data, v)
				}
			}
		})
	}
}

func TestEventIDs(t *testing.T) {
	t.Run("E2", func(t *testing.T) {
		for _, id := range []string{"evt_01HX0000000000000000000001", "evt_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"} {
			if !ValidID("evt", id) {
				t.Errorf("got %s refused", id)
			}
		}
		for _, id := range []string{"", "evt_", "evt_81HX000000000000000000000A", "evt_01HX000000000000000000000I", "evt_01hx0000000000000000000001", "evt_01HX000000000000000000001", "run_01HX0000000000000000000001", "evt_01HX00000000000000000000é"} {
			if ValidID("evt", id) {
				t.Errorf("got %s accepted", id)
			}
		}
		if got, want := ULID("task", time.UnixMilli(1469918176385), [10]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255}), "task_01ARYZ6S41ZZZZZZZZZZZZZZZZ"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("E3", func(t *testing.T) {
		last := ""
		for i := range uint64(100_000) {
			id := EventID(start.Add(time.Duration(i/1000)*time.Millisecond), "run_a", i)
			if id <= last || !ValidID("evt", id) {
				t.Fatalf("got %s after %s", id, last)
			}
			last = id
		}
		if EventID(start, "run_a", 1) == EventID(start, "run_b", 1) {
			t.Error("got the same id in two runs")
		}
	})
	t.Run("E3: the clock goes back", func(t *testing.T) {
		l := newLog(t, Options{})
		l.feed(prompted("a")...)
		l.at = start.Add(-time.Hour)
		l.feed(chunk("b"), closed, agentEnd).check()
	})
}

func TestThinkingIsHidden(t *testing.T) {
	run := append(prompted("a"), thought("hm "), chunk("b"), thought("hm"), chunk("c"), closed, agentEnd)
	t.Run("E41", func(t *testing.T) {
		l := newLog(t, Options{}).feed(run...)
		l.check()
		if got := strings.Join(l.texts, "\n"); strings.Contains(got, "hm") || strings.Contains(got, "thinking") {
			t.Errorf("got %s, want no thinking", got)
		}
	})
	t.Run("enabled", func(t *testing.T) {
		l := newLog(t, Options{Thinking: true}).feed(run...)
		l.check()
		if got := l.all("assistant.thinking_delta"); len(got) != 2 {
			t.Errorf("got %v, want two", got)
		}
	})
}

func TestLongText(t *testing.T) {
	t.Run("E22", func(t *testing.T) {
		l := newLog(t, Options{}).feed(prompted("a")...)
		text := strings.Repeat("words and wörter, 言葉 ", 5000)
		for piece := range slices.Chunk([]rune(text), 37) {
			l.feed(chunk(string(piece)))
			if size := len(state(t, l.s)); size > 64<<10 {
				t.Fatalf("got a state of %d bytes", size)
			}
		}
		l.feed(closed, agentEnd).check()
		whole := ""
		for _, data := range l.all("assistant.text_complete") {
			whole += data["text"].(string)
		}
		if whole != text {
			t.Errorf("got %d bytes in %d blocks, want %d bytes", len(whole), len(l.all("assistant.text_complete")), len(text))
		}
		if summary := l.one("assistant.final_answer")["summary"].(string); !strings.HasPrefix(summary, "words and") || len(summary) > maxAnswer+4 {
			t.Errorf("got summary %q", summary)
		}
		if size := len(state(t, l.s)); size > 4<<10 {
			t.Errorf("got an idle state of %d bytes, want less than 4 KiB", size)
		}
	})
}

func state(t tester, s *Session) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOutput(t *testing.T) {
	begin := append(prompted("a"), toolCall("bash", `{"command":"yes"}`), toolStart)
	t.Run("E24: characters stay whole", func(t *testing.T) {
		l := newLog(t, Options{}).feed(begin...)
		text := strings.Repeat("é€😀", 9000)
		for _, c := range text {
			l.feed(output(string(c)))
		}
		l.feed(toolEnd, closed, agentEnd).check()
		got := ""
		for _, data := range l.all("tool.shell.output_chunk") {
			got += data["data"].(string)
		}
		if got != text {
			t.Errorf("got %d bytes, want %d", len(got), len(text))
		}
	})
	for name, pattern := range map[string]string{"words": "x y\n", "no spaces": "x", "worst": " " + strings.Repeat("x", maxOutput-1)} {
		for _, gap := range []time.Duration{0, holdTime} {
			if gap > 0 && name != "words" {
				continue // nothing is shown early
			}
			t.Run(fmt.Sprintf("E25: %s every %s", name, gap), func(t *testing.T) {
				l := newLog(t, Options{}).feed(begin...)
				const total = 1_000_000
				chunks, size := 0, 0
				for i := range total {
					l.cursor++
					l.at = l.at.Add(gap)
					for _, d := range l.s.Event(l.at, l.cursor, output(pattern[i%len(pattern):][:1])) {
						chunks++
						size += len(d.Data)
					}
				}
				if l.add(l.s.Event(l.at, l.cursor+1, toolEnd)); chunks > maxEarly+total/minOutput+1 || size < total-maxOutput {
					t.Errorf("got %d chunks and %d bytes of data", chunks, size)
				}
			})
		}
	}
	if most := maxEarly + 10<<20/minOutput + 2; most >= 2000 {
		t.Errorf("E25: got %d chunks of 10 MiB at most, want fewer than 2000", most)
	}
	t.Run("E26", func(t *testing.T) {
		l := newLog(t, Options{}).feed(begin...)
		l.feed(output("a\n"), output("Exit code 3."), &contracts.ToolEnd{CallID: "c1"}, closed, agentEnd).check()
		members(t, l.one("tool.shell.exited"), `{"exit_code":3,"signal":null,"stdout_bytes":14}`)
		members(t, l.one("tool.failed"), `{"error":"Exit code 3.","summary":"Exit code 3."}`)
	})
	t.Run("signal", func(t *testing.T) {
		l := newLog(t, Options{}).feed(begin...).feed(output("Ended by SIGKILL after 2ms."), &contracts.ToolEnd{CallID: "c1"})
		members(t, l.one("tool.shell.exited"), `{"exit_code":-1,"signal":"SIGKILL"}`)
	})
	t.Run("held output is shown in time", func(t *testing.T) {
		l := newLog(t, Options{}).feed(begin...).feed(output("a "))
		if !l.s.Held() || len(l.all("tool.shell.output_chunk")) > 0 {
			t.Fatal("got no held output")
		}
		l.add(l.s.Flush(l.at.Add(holdTime)))
		members(t, l.one("tool.shell.output_chunk"), `{"data":"a ","byte_offset":0,"stream":"stdout"}`)
		if l.s.Held() {
			t.Error("got held output after it was shown")
		}
	})
	t.Run("other tools have no output events", func(t *testing.T) {
		l := newLog(t, Options{}).feed(prompted("a")...)
		l.feed(toolCall("mcp__files__list", `{}`), toolStart, output("a.go\nb.go"), toolEnd, closed, agentEnd).check()
		members(t, l.one("tool.completed"), `{"kind":"mcp","mcp_server":"files","mcp_tool":"list","result":"dispatched","summary":"b.go"}`)
		if len(l.all("tool.shell.output_chunk")) > 0 {
			t.Error("got output of a tool that is no shell")
		}
	})
}

func TestSecrets(t *testing.T) {
	l := newLog(t, Options{Thinking: true})
	l.feed(prompted("use " + secret)...)
	for _, c := range "the key is " + secret + ", keep it. " + secret {
		l.feed(chunk(string(c)))
	}
	for _, c := range "again " + secret {
		l.feed(thought(string(c)))
	}
	l.feed(toolCall("bash", `{"command":"login `+secret+`","env":{"KEY":"`+secret+`"},"headers":["Cookie: `+secret+`"],"list":[{"`+secret+`":"`+secret+`"}]}`),
		asks(contracts.RequestApproval), decides(contracts.VerdictApproved, contracts.ResolvedByUser, secret), toolStart)
	for _, c := range "it said " + secret + "\n" + secret {
		l.feed(output(string(c)))
	}
	l.feed(&contracts.ToolEnd{CallID: "c1", ErrorCode: secret}, fails(contracts.ErrorTransient, "bad key "+secret), closed, agentEnd)
	l.s.Stopping(secret, secret)

	t.Run("E28", func(t *testing.T) {
		l.check()
		for name, path := range map[string]string{
			"user.message": "text", "assistant.text_complete": "text", "assistant.tool_call_proposed": "input.command",
			"tool.shell.command": "command_string", "approval.resolved": "comment", "tool.failed": "error", "error.upstream": "message",
			"tool.shell.output_chunk": "data",
		} {
			if got := fmt.Sprint(l.all(name)[0]["redacted_paths"]); !strings.Contains(got, path) {
				t.Errorf("got redacted_paths %s of %s in %v, want %s", got, name, l.all(name)[0], path)
			}
		}
	})
	t.Run("E27", func(t *testing.T) {
		members(t, l.one("tool.shell.command"), `{"env_keys":["KEY"]}`)
		input := l.one("assistant.tool_call_proposed")["input"].(map[string]any)
		members(t, input, `{"env":{"KEY":"***"},"headers":["Cookie:***"]}`)
	})
	t.Run("E27: values that are no secrets", func(t *testing.T) {
		l := newLog(t, Options{}).feed(prompted("a")...).feed(toolCall("bash", `{"env":{"A":"visible"},"Environment":["B=visible"],"command":["ls","-l"]}`), toolStart)
		if got := strings.Join(l.texts, "\n"); strings.Contains(got, "visible") {
			t.Errorf("got %s, want no values", got)
		}
		members(t, l.one("tool.shell.command"), `{"argv":["ls","-l"]}`)
	})
}

func TestPrivateKeyIsHeld(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\nAAAA\nBBBB\n-----END PRIVATE KEY-----"
	l := newLog(t, Options{})
	l.s.Options.Redact = func(text string) (string, bool) {
		shown := strings.ReplaceAll(text, key, mark)
		return shown, shown != text
	}
	l.feed(prompted("a")...)
	for _, c := range "key: " + key + " end" {
		l.feed(chunk(string(c)))
	}
	l.feed(closed)
	members(t, l.one("assistant.text_complete"), `{"text":"key: *** end"}`)
}

// A redaction may need what stands before a secret: its key, or words that were shown.
func TestSecretsInContext(t *testing.T) {
	l := newLog(t, Options{})
	pin := regexp.MustCompile(`("?pin"?: ?"?)[0-9]+|#[^#]*#`)
	l.s.Options.Redact = func(text string) (string, bool) {
		shown := pin.ReplaceAllString(text, "$1***")
		return shown, shown != text
	}
	l.feed(prompted("a")...).feed(chunk("the pin: "), chunk("1234 "), chunk("and # "), chunk("x# "), toolCall("x", `{"pin":"99","list":["pin: 5"],"other":"7"}`), closed)
	t.Run("E28", func(t *testing.T) {
		members(t, l.one("assistant.text_complete"), `{"text":"the pin: *** and # x# ","redacted_paths":["text"]}`)
		members(t, l.one("assistant.tool_call_proposed"), `{"input":{"pin":"***","list":["pin: ***"],"other":"7"},"redacted_paths":["input.list.0","input.pin"]}`)
	})
}

func TestKinds(t *testing.T) {
	for args, want := range map[string]string{`{"_acp":{"kind":"execute"}}`: kindShell, `{"_acp":{"kind":"edit"}}`: kindFile, `{"_acp":{"kind":"think"}}`: kindOther, `null`: kindOther} {
		if got := kindOf("tool", json.RawMessage(args)); got != want {
			t.Errorf("got %s for %s, want %s", got, args, want)
		}
	}
}

func TestApprovals(t *testing.T) {
	asked := append(prompted("a"), toolCall("bash", `{"command":"make"}`), asks(contracts.RequestApproval))
	t.Run("E29", func(t *testing.T) {
		l := newLog(t, Options{}).feed(asked...)
		if slices.Contains(l.types(), "tool.invoked") {
			t.Error("got an invocation before the decision")
		}
		l.feed(decides(contracts.VerdictApproved, contracts.ResolvedByUser, ""), toolStart, toolEnd, closed, agentEnd).check()
	})
	denied := &contracts.ToolEnd{CallID: "c1", ErrorCode: "governance_denied", GovernedOutcome: "denied"}
	t.Run("E30", func(t *testing.T) {
		l := newLog(t, Options{}).feed(asked...).feed(decides(contracts.VerdictDenied, contracts.ResolvedByUser, "no"), denied, closed, agentEnd)
		l.check()
		members(t, l.one("approval.resolved"), `{"decision":"rejected","by":"operator","comment":"no"}`)
		if got := l.types("run.", "turn.", "user.", "approval.", "assistant.", "cost."); got != nil {
			t.Errorf("got %v, want no tool", got)
		}
		l.one("run.finished")
	})
	t.Run("E33", func(t *testing.T) {
		l := newLog(t, Options{}).feed(asked...)
		l.s.Stopping("operator", "not today")
		l.feed(decides(contracts.VerdictCancelled, contracts.ResolvedByRuntime, "Interrupted before request completed"),
			&contracts.ToolEnd{CallID: "c1"}, unpriced, fails(contracts.ErrorCancelled, "Run interrupted by user"), agentEnd).check()
		members(t, l.one("approval.resolved"), `{"decision":"cancelled","by":"runtime"}`)
		members(t, l.one("run.cancelled"), `{"by":"operator","reason":"not today"}`)
	})
	t.Run("E33 for a question that outlived its prompt", func(t *testing.T) {
		l := newLog(t, Options{}).feed(prompted("a")...).feed(closed, agentEnd, toolCall("bash", `{}`), asks(contracts.RequestApproval))
		l.s.Stopping("operator", "not today")
		l.feed(decides(contracts.VerdictCancelled, contracts.ResolvedByRuntime, "Interrupted before request completed"), &contracts.ToolEnd{CallID: "c1"}).check()
		members(t, l.one("approval.resolved"), `{"decision":"cancelled"}`)
		members(t, l.one("run.cancelled"), `{"by":"operator","reason":"not today"}`)
	})
	t.Run("E34", func(t *testing.T) {
		l := newLog(t, Options{}).feed(asked...)
		l.at = l.at.Add(time.Minute)
		l.feed(decides(contracts.VerdictDenied, contracts.ResolvedByPolicy, "Approval request timed out"), denied, closed, agentEnd).check()
		members(t, l.one("approval.timed_out"), `{"approval_id":"q1","after_seconds":60}`)
		if slices.Contains(l.types(), "approval.resolved") || slices.Contains(l.types(), "policy.tool_blocked") {
			t.Errorf("got %v", l.types())
		}
	})
	t.Run("E31: a second decision changes nothing", func(t *testing.T) {
		l := newLog(t, Options{}).feed(asked...)
		yes := decides(contracts.VerdictApproved, contracts.ResolvedByUser, "")
		l.feed(yes, yes)
		l.one("approval.resolved")
	})
	t.Run("a policy blocks the call", func(t *testing.T) {
		l := newLog(t, Options{}).feed(prompted("a")...).feed(toolCall("bash", `{}`), denied, closed, agentEnd)
		l.check()
		members(t, l.one("policy.tool_blocked"), `{"tool_call_id":"c1","tool_name":"bash","reason":"denied"}`)
	})
	t.Run("other questions have types of our own", func(t *testing.T) {
		l := newLog(t, Options{}).feed(prompted("a")...).feed(asks(contracts.RequestUserInput), decides(contracts.VerdictAnswered, contracts.ResolvedByClient, ""), toolEnd, closed, agentEnd)
		l.check()
		members(t, l.one("maestro.request_pending"), `{"request_id":"q1","request_type":"user_input"}`)
		members(t, l.one("maestro.request_resolved"), `{"request_id":"q1","resolution":"answered","by":"client"}`)
	})
}

func TestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		events []contracts.Event
		last   string
		data   string
	}{
		"E20: failed":                 {[]contracts.Event{fails(contracts.ErrorFatal, "it broke"), unpriced, agentEnd}, "run.failed", `{"code":"fatal","message":"it broke","retriable":false,"turns":1}`},
		"E20: protocol":               {[]contracts.Event{fails(contracts.ErrorProtocol, "bad"), agentEnd}, "run.failed", `{"code":"protocol"}`},
		"E20: overloaded":             {[]contracts.Event{fails(contracts.ErrorTransient, "busy"), agentEnd}, "run.failed", `{"code":"transient","retriable":true}`},
		"E20: interrupted":            {[]contracts.Event{unpriced, fails(contracts.ErrorCancelled, "Run interrupted by user"), agentEnd}, "run.cancelled", `{"by":"operator","reason":"Run interrupted by user"}`},
		"E20: shut down":              {[]contracts.Event{unpriced, fails(contracts.ErrorCancelled, "Run cancelled by shutdown"), agentEnd}, "run.cancelled", `{"by":"runtime"}`},
		"E20: goes on after an error": {[]contracts.Event{fails(contracts.ErrorTransient, "busy"), chunk("fine"), closed, agentEnd}, "run.finished", `{"turns":1}`},
		"E20: silent":                 {[]contracts.Event{agentEnd}, "run.finished", `{"turns":1}`},
		"E20: next prompt":            {[]contracts.Event{agentStart}, "run.failed", `{"code":"run_disconnected"}`},
		"E23: open tools":             {[]contracts.Event{toolCall("bash", `{}`), toolStart, output("a"), fails(contracts.ErrorFatal, "it broke"), agentEnd}, "run.failed", `{}`},
		"E23: timed out":              {[]contracts.Event{toolCall("bash", `{}`), toolStart, &contracts.ToolEnd{CallID: "c1", ErrorCode: "timeout"}, closed, agentEnd}, "run.finished", `{}`},
		"E23: cancelled":              {[]contracts.Event{toolCall("bash", `{}`), toolStart, &contracts.ToolEnd{CallID: "c1", ErrorCode: "cancelled"}, closed, agentEnd}, "run.finished", `{}`},
		"E23: too many":               {slices.Concat(slices.Repeat([]contracts.Event{}, 1), manyCalls(), []contracts.Event{closed, agentEnd}), "run.finished", `{}`},
		"E43: unknown costs":          {[]contracts.Event{unpriced, opened, closed, opened, closed, agentEnd}, "run.finished", `{"turns":3,"cost_micros_usd":26}`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, Options{}).feed(prompted("a")...).feed(tt.events...)
			l.check()
			e := l.events[len(l.events)-1]
			if e.Type != tt.last {
				t.Fatalf("got %s, want %s last", strings.Join(l.texts, "\n"), tt.last)
			}
			members(t, l.one(tt.last), tt.data)
			if l.s.RunID() != "" {
				t.Errorf("got the open run %s", l.s.RunID())
			}
		})
	}
}

func manyCalls() (list []contracts.Event) {
	for i := range maxCalls + 9 {
		id := fmt.Sprint("call", i)
		list = append(list, &contracts.ToolCall{CallID: id, Tool: "x"}, &contracts.ToolStart{CallID: id})
	}
	return list
}

// A question that outlives its run: the run ends, and the answer makes a new one.
func TestResumedRuns(t *testing.T) {
	suspended := append(prompted("a"), toolCall("bash", `{"command":"make"}`), asks(contracts.RequestApproval), unpriced,
		fails(contracts.ErrorCancelled, "Run stopped because the server is going away"), agentEnd)
	for name, tt := range map[string]struct {
		events []contracts.Event
		types  []string
	}{
		"E37: approved": {
			[]contracts.Event{decides(contracts.VerdictApproved, contracts.ResolvedByUser, ""), toolStart, toolEnd, opened, chunk("done"), closed, agentEnd},
			[]string{"run.resumed_from_event", "run.queued", "run.started", "approval.resolved", "tool.invoked", "tool.started", "tool.shell.exited", "tool.completed",
				"turn.started", "assistant.text_delta", "assistant.text_complete", "turn.completed", "cost.tick", "assistant.final_answer", "run.finished"},
		},
		"E37: denied": {
			[]contracts.Event{decides(contracts.VerdictDenied, contracts.ResolvedByUser, ""), &contracts.ToolEnd{CallID: "c1"}, opened, closed, agentEnd},
			[]string{"run.resumed_from_event", "run.queued", "run.started", "approval.resolved", "turn.started", "turn.completed", "cost.tick", "run.finished"},
		},
		"E37: cancelled": {
			[]contracts.Event{decides(contracts.VerdictCancelled, contracts.ResolvedByRuntime, "Shutdown"), &contracts.ToolEnd{CallID: "c1"}},
			[]string{"run.resumed_from_event", "run.queued", "approval.resolved", "run.cancelled"},
		},
		"E37: an agent that cannot resume": {
			[]contracts.Event{decides(contracts.VerdictApproved, contracts.ResolvedByUser, ""), &contracts.ToolEnd{CallID: "c1"}, &contracts.Status{Message: "The agent cannot"}},
			[]string{"run.resumed_from_event", "run.queued", "run.started", "approval.resolved", "run.failed"},
		},
		"E37: answered during another run": {
			append(prompted("b"), decides(contracts.VerdictApproved, contracts.ResolvedByUser, ""), closed, agentEnd, toolStart, toolEnd, agentEnd),
			[]string{"run.queued", "user.message", "run.started", "turn.started", "approval.resolved", "turn.completed", "cost.tick", "run.finished",
				"run.resumed_from_event", "run.queued", "run.started", "tool.invoked", "tool.started", "tool.shell.exited", "tool.completed", "run.finished"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, Options{}).feed(suspended...)
			l.check()
			old := l.events[len(l.events)-1]
			if got := l.types()[len(l.events)-2:]; !slices.Equal(got, []string{"run.checkpoint_saved", "run.cancelled"}) {
				t.Fatalf("got %v", got)
			}
			n := len(l.events)
			l.feed(tt.events...)
			l.check()
			if got := l.types()[n:]; !slices.Equal(got, tt.types) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(l.texts[n:], "\n"), strings.Join(tt.types, "\n"))
			}
			if first := l.events[n]; first.Type == "run.resumed_from_event" {
				members(t, l.all("run.resumed_from_event")[0], fmt.Sprintf(`{"from_run_id":%q,"from_sequence":%d,"prior_cost_micros_usd":0}`, old.RunID, old.Sequence))
			}
		})
	}
}

func TestReset(t *testing.T) {
	running := append(prompted("a"), chunk("half a "), toolCall("bash", `{"command":"make"}`), toolStart, output("x"))
	t.Run("goes on", func(t *testing.T) {
		l := newLog(t, Options{}).feed(running...)
		last := l.next[l.s.RunID()] - 1
		l.add(l.s.Reset(l.at, &contracts.Snapshot{Cursor: 90, State: contracts.State{IsResponding: true, CurrentResponse: &contracts.CurrentResponse{ResponseID: "resp_9"}}}))
		l.cursor = 90
		l.feed(chunk("more"), output("late"), toolEnd, closed, agentEnd).check()
		gap := l.one("gap.run_disconnected")
		if gap["since_sequence"].(float64) < float64(last) {
			t.Errorf("got %v, want a sequence from %d on", gap, last)
		}
		members(t, gap, `{"reason":"replay_gap"}`)
		l.one("tool.failed")
		l.one("run.finished")
		members(t, l.one("turn.failed"), `{"turn_index":1}`)
		members(t, l.one("turn.completed"), `{"turn_index":2}`)
	})
	t.Run("the run has ended", func(t *testing.T) {
		l := newLog(t, Options{}).feed(running...).feed(asks(contracts.RequestApproval))
		l.add(l.s.Reset(l.at, &contracts.Snapshot{Cursor: 90})).check()
		members(t, l.one("run.failed"), `{"code":"run_disconnected"}`)
		members(t, l.one("approval.resolved"), `{"decision":"cancelled"}`)
	})
	t.Run("a question is open", func(t *testing.T) {
		pending := contracts.State{PendingRequests: []contracts.PendingRequest{{ID: "q1", Kind: contracts.RequestApproval, CallID: "c1", Tool: "bash"}}}
		for _, before := range [][]contracts.Event{nil, prompted("a"), append(prompted("a"), asks(contracts.RequestApproval))} {
			l := newLog(t, Options{}).feed(before...)
			l.add(l.s.Reset(l.at, &contracts.Snapshot{Cursor: 90, State: pending}))
			l.cursor = 90
			l.feed(decides(contracts.VerdictApproved, contracts.ResolvedByUser, ""), toolStart, toolEnd, agentEnd).check()
			l.one("approval.requested")
			l.one("approval.resolved")
			l.one("assistant.tool_call_proposed")
		}
	})
	t.Run("no run is open", func(t *testing.T) {
		l := newLog(t, Options{})
		l.add(l.s.Disconnected(l.at, "torn_write"))
		l.want()
		l.feed(append(prompted("a"), closed, agentEnd)...)
		l.add(l.s.Disconnected(l.at, "torn_write")).check()
		members(t, l.one("gap.run_disconnected"), `{"reason":"torn_write","since_sequence":6}`)
	})
	t.Run("markers of the server count", func(t *testing.T) {
		l := newLog(t, Options{}).feed(prompted("a")...)
		run := l.s.RunID()
		l.s.Inserted(run)
		l.feed(closed, agentEnd)
		l.s.Inserted(run)
		l.add(l.s.Disconnected(l.at, "torn_write"))
		members(t, l.one("gap.run_disconnected"), `{"since_sequence":8}`)
	})
}

func TestEventsOutsideOfRuns(t *testing.T) {
	l := newLog(t, Options{}).feed(ready, inSrv, &contracts.Status{Message: "a"}, fails(contracts.ErrorTool, "b"), output("c"), toolEnd, closed, agentEnd,
		&contracts.ConnectionInfo{}, &contracts.UtilityCommandOutput{}, &contracts.Compaction{}, &contracts.RawAgentEvent{EventKind: "other"},
		decides(contracts.VerdictApproved, contracts.ResolvedByUser, ""))
	l.want()
	l.feed(prompted("a")...).feed(&contracts.ErrorEvent{RequestID: "read-1", Message: "no file"}, &contracts.Status{Message: contracts.StatusWorking},
		&contracts.Status{Message: "compacting"}, &contracts.Compaction{Summary: "short", TokensBefore: 9}, closed, agentEnd).check()
	members(t, l.one("maestro.status"), `{"message":"compacting"}`)
	members(t, l.one("maestro.compaction"), `{"summary":"short","tokens_before":9}`)
	l.one("run.finished")
	if got := l.s.Event(l.at, l.cursor, agentStart); got != nil {
		t.Errorf("got %v for an event that was translated before", got)
	}
}

func TestE42RetiredNames(t *testing.T) {
	sources, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range sources {
		if strings.HasSuffix(f.Name(), "_test.go") || f.IsDir() {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range retired {
			if bytes.Contains(text, []byte(`"`+name+`"`)) {
				t.Errorf("got %s in %s", name, f.Name())
			}
		}
	}
}

// Sessions with real agents, as clients have recorded them.
func TestRecordedSessions(t *testing.T) {
	for _, name := range []string{"claude", "opencode"} {
		t.Run("E1 E22 E23 E26 E43 "+name, func(t *testing.T) {
			l := newLog(t, Options{})
			for cursor, message := range recorded(t, "../../../docs/transcripts/"+name+".md") {
				ev, err := new(contracts.Decoder).Event(message)
				if err != nil {
					t.Fatalf("got %v for %s", err, message)
				}
				l.cursor = cursor - 1
				l.feed(ev)
			}
			l.check()
			if ends := len(l.all("run.finished")) + len(l.all("run.failed")) + len(l.all("run.cancelled")); ends != len(l.all("run.queued")) || ends < 2 {
				t.Errorf("got %d ends of %d runs", ends, len(l.all("run.queued")))
			}
			if len(l.all("approval.resolved")) == 0 || len(l.all("tool.completed")) == 0 || len(l.all("tool.shell.command")) == 0 {
				t.Errorf("got %v, want an approved tool", l.types())
			}
		})
	}
}

// recorded yields the events of a transcript by their cursors.
func recorded(t *testing.T, path string) iter.Seq2[uint64, json.RawMessage] {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	events := map[uint64]json.RawMessage{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Kind    string
			Cursor  uint64
			Message json.RawMessage
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Kind == "event" {
			events[e.Cursor] = e.Message
		}
	}
	return func(yield func(uint64, json.RawMessage) bool) {
		for _, cursor := range slices.Sorted(maps.Keys(events)) {
			if !yield(cursor, events[cursor]) {
				return
			}
		}
	}
}
