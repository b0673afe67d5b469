package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The child of the headless tests is this test binary: with behaviourVar set it
// speaks the protocol as the behaviour of that name does, and runs no tests.
const (
	behaviourVar = "MAESTRO_TEST_BEHAVIOUR"
	notesVar     = "MAESTRO_TEST_NOTES" // the directory for what it notes
)

func init() {
	if name := os.Getenv(behaviourVar); name != "" {
		s := &scripted{in: bufio.NewScanner(os.Stdin), notes: os.Getenv(notesVar)}
		behaviours[name](s)
		os.Exit(0)
	}
}

// manyAsks is how many questions a child asks before it reads any answer.
const manyAsks = 1000

// A scripted is the child's side of the protocol.
type scripted struct {
	in    *bufio.Scanner
	notes string
}

// behaviours are what a child may do from start to end.
var behaviours = map[string]func(*scripted){
	"good":    func(s *scripted) { s.welcome(true); s.serve(s.goodRun) },
	"foreign": func(s *scripted) { s.welcome(false); s.serve(s.plainRun) },
	"refuses": func(s *scripted) {
		s.welcome(true)
		s.serve(func() { s.say(`{"type":"error","message":"Bad luck","fatal":false,"error_type":"protocol"}`) })
	},
	"asks":      func(s *scripted) { s.welcome(true); s.serve(s.askingRun) },
	"withdraws": func(s *scripted) { s.welcome(true); s.serve(s.withdrawingRun) },
	"garbage":   func(s *scripted) { s.welcome(true); s.serve(func() { s.garbage(4); s.plainRun(); s.end() }) },
	"rubbish":   func(s *scripted) { s.welcome(true); s.serve(func() { s.garbage(5); s.next("nothing") }) },
	"long": func(s *scripted) {
		s.welcome(true)
		s.serve(func() {
			s.say(strings.Repeat("x", 11<<20))
			s.plainRun()
			s.end()
		})
	},
	"dies": func(s *scripted) {
		s.welcome(true)
		s.serve(func() {
			s.say(`{"type":"response_start","response_id":"r1"}`)
			if s.first() {
				os.Exit(3)
			}
			s.say(responseEnd)
			s.end()
		})
	},
	"dies at once": func(s *scripted) {
		if s.first() {
			s.welcome(true)
			s.next("prompt")
		}
		os.Exit(4)
	},
	"never ready": func(s *scripted) { s.next("nothing") },
	"no start": func(s *scripted) {
		s.say(`{"type":"error","message":"Headless startup failed: no model","fatal":true,"error_type":"fatal"}`)
		os.Exit(1)
	},
	"does not ask": func(s *scripted) {
		s.welcome(true)
		s.serve(func() {
			s.say(`{"type":"tool_call","call_id":"c1","tool":"bash","args":{},"requires_approval":true}`,
				`{"type":"tool_start","call_id":"c1"}`, `{"type":"tool_end","call_id":"c1","success":true}`)
			s.end()
		})
	},
	"asks much": func(s *scripted) {
		s.welcome(true)
		s.serve(func() {
			for i := range manyAsks {
				s.say(fmt.Sprintf(`{"type":"server_request","request_id":"q%d","request_type":"approval","call_id":"q%[1]d","tool":"bash","args":{},"reason":"x"}`, i))
			}
			for range manyAsks - maxAsks { // the refusals
				s.next("server_request_response")
			}
			s.plainRun()
			for range maxAsks {
				s.next("server_request_response")
			}
			s.end()
		})
	},
	"asks once": func(s *scripted) {
		s.welcome(true)
		s.serve(func() {
			s.say(`{"type":"server_request","request_id":"q","request_type":"approval","call_id":"q","tool":"bash","args":{},"reason":"x"}`)
			s.end()
		})
	},
	"dies idle":     func(s *scripted) { s.welcome(true); s.next("init"); os.Exit(5) },
	"does not read": func(s *scripted) { s.welcome(true); hang() },
	"exits":         func(*scripted) { os.Exit(7) },
	"deaf": func(s *scripted) {
		s.welcome(true)
		s.next("prompt")
		s.say(`{"type":"response_start","response_id":"r1"}`)
		s.next("nothing")
		hang()
	},
	"interruptible": func(s *scripted) {
		s.welcome(true)
		s.serve(func() {
			s.say(`{"type":"response_start","response_id":"r1"}`)
			s.next("interrupt")
			s.say(responseEnd, `{"type":"error","message":"Run interrupted by user","fatal":false,"error_type":"cancelled"}`)
			s.end()
		})
	},
}

const responseEnd = `{"type":"response_end","response_id":"r1","usage":{"input_tokens":1,"output_tokens":2,"cache_read_tokens":0,` +
	`"cache_write_tokens":0,"total_tokens":3,"total_cost_usd":0,"model_id":"m","provider":"p"},` +
	`"tools_summary":{"tools_used":[],"calls_succeeded":0,"calls_failed":0},"duration_ms":1}`

func (s *scripted) say(lines ...string) {
	for _, line := range lines {
		fmt.Println(line)
	}
}

// first reports whether no child of this test has called it before.
func (s *scripted) first() bool {
	f, err := os.OpenFile(filepath.Join(s.notes, "first"), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// next notes commands until one of the type comes, which it returns. The child
// ends with its input and on shutdown.
func (s *scripted) next(want string) map[string]any {
	for s.in.Scan() {
		s.note(s.in.Text())
		var command map[string]any
		if err := json.Unmarshal(s.in.Bytes(), &command); err != nil {
			os.Exit(99)
		}
		switch command["type"] {
		case want:
			return command
		case "shutdown":
			if want != "nothing" {
				os.Exit(0)
			}
		}
	}
	if want != "nothing" {
		os.Exit(0)
	}
	return nil
}

func (s *scripted) note(line string) {
	f, err := os.OpenFile(filepath.Join(s.notes, "commands"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(f, line)
		f.Close()
	}
}

// welcome goes through the handshake. endings says whether to offer raw events.
func (s *scripted) welcome(endings bool) {
	s.say(`{"type":"ready","protocol_version":"2026-04-02","model":"m","provider":"p","executor_type":"replay","session_id":null}`,
		`{"type":"session_info","session_id":null,"cwd":"/","git_branch":null}`)
	fmt.Fprintln(os.Stderr, "hello, humans")
	s.next("hello")
	capabilities := ""
	if endings {
		capabilities = `,"server_capabilities":{"server_requests":["approval"],"utility_operations":[],"raw_agent_events":true,"connection_roles":["controller"]}`
	}
	s.say(`{"type":"hello_ok","protocol_version":"2026-04-02","role":"controller"`+capabilities+`}`,
		`{"type":"connection_info","connection_count":1}`)
}

// serve plays run for each prompt.
func (s *scripted) serve(run func()) {
	for {
		s.next("prompt")
		run()
	}
}

func (s *scripted) end() {
	s.say(`{"type":"raw_agent_event","event_type":"agent_end","event":{"type":"agent_end"}}`)
}

func (s *scripted) plainRun() {
	s.say(`{"type":"response_start","response_id":"r1"}`,
		`{"type":"response_chunk","response_id":"r1","content":"hello","is_thinking":false}`, responseEnd)
}

func (s *scripted) garbage(lines int) {
	for range lines {
		s.say("this is not JSON")
	}
}

// goodRun answers, runs a tool with approval and one without, and ends.
func (s *scripted) goodRun() {
	s.say(`{"type":"raw_agent_event","event_type":"agent_start","event":{"type":"agent_start"}}`,
		`{"type":"raw_agent_event","event_type":"turn_start","event":{"type":"turn_start"}}`,
		`{"type":"status","message":"Loaded 1 attachment(s)"}`)
	s.plainRun()
	s.say(`{"type":"tool_call","call_id":"c1","tool":"bash","args":{"command":"ls"},"requires_approval":true}`,
		`{"type":"server_request","request_id":"c1","request_type":"approval","call_id":"c1","tool":"bash","args":{"command":"ls"},"reason":"Approval required"}`)
	approved := s.next("server_request_response")["approved"] == true
	s.say(fmt.Sprintf(`{"type":"server_request_resolved","request_id":"c1","request_type":"approval","call_id":"c1","resolution":%q,"resolved_by":"user"}`,
		map[bool]string{true: "approved", false: "denied"}[approved]))
	if approved {
		s.say(`{"type":"tool_start","call_id":"c1"}`, `{"type":"tool_output","call_id":"c1","content":"file\n"}`)
	}
	s.say(fmt.Sprintf(`{"type":"tool_end","call_id":"c1","success":%v}`, approved),
		`{"type":"tool_call","call_id":"c2","tool":"read","args":{},"requires_approval":false}`,
		`{"type":"tool_start","call_id":"c2"}`, `{"type":"tool_end","call_id":"c2","success":true}`,
		`{"type":"something_new"}`,
		`{"type":"error","message":"a tool was slow","fatal":false}`)
	s.end()
}

// askingRun says what it was answered.
func (s *scripted) askingRun() {
	s.say(`{"type":"client_tool_request","call_id":"u1","tool":"ask_user","args":{}}`,
		`{"type":"server_request","request_id":"u1","request_type":"user_input","call_id":"u1","tool":"ask_user","args":{},"reason":"why not"}`)
	answer := s.next("server_request_response")
	s.say(`{"type":"server_request","request_id":"t1:retry:1","request_type":"tool_retry","call_id":"t1","tool":"bash","args":{},"reason":"again?"}`)
	retry := s.next("server_request_response")
	text, _ := json.Marshal(fmt.Sprint(answer["content"], retry["decision_action"]))
	s.say(`{"type":"response_start","response_id":"r1"}`,
		fmt.Sprintf(`{"type":"response_chunk","response_id":"r1","content":%s,"is_thinking":false}`, text), responseEnd)
	s.end()
}

// withdrawingRun asks and, once configured, answers its own question.
func (s *scripted) withdrawingRun() {
	s.say(`{"type":"tool_call","call_id":"c1","tool":"bash","args":{},"requires_approval":true}`,
		`{"type":"server_request","request_id":"c1","request_type":"approval","call_id":"c1","tool":"bash","args":{},"reason":"x"}`)
	s.next("init")
	s.say(`{"type":"server_request_resolved","request_id":"c1","request_type":"approval","call_id":"c1","resolution":"denied","reason":"too late","resolved_by":"policy"}`)
	s.plainRun()
	s.end()
}

// commandTypes are the types of the commands noted by all children of a test.
func commandTypes(notes string) []string {
	text, _ := os.ReadFile(filepath.Join(notes, "commands"))
	var types []string
	for line := range strings.Lines(string(text)) {
		var command struct{ Type string }
		if json.Unmarshal([]byte(line), &command) == nil {
			types = append(types, command.Type)
		}
	}
	return types
}

// hang does nothing until the child is killed, an hour at the most.
func hang() { <-time.After(time.Hour) }
