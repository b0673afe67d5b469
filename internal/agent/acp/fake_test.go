package acp

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	acp "github.com/coder/acp-go-sdk"
)

// The program of the tests is this test binary: with setupVar set it is an agent
// whose handshake is as the setup says, and whose prompts are scripts. It runs no
// tests then.
const (
	setupVar = "MAESTRO_TEST_ACP"
	notesVar = "MAESTRO_TEST_NOTES" // the directory for what it notes
)

// A setup is how a fake behaves before its first prompt.
type setup struct {
	Name    string         `json:"name,omitempty"`    // of the program; fake if empty
	Version any            `json:"version,omitempty"` // 1 if nil
	Can     map[string]any `json:"can,omitempty"`     // agentCapabilities
	Auth    []named        `json:"auth,omitempty"`
	Begun   map[string]any `json:"begun,omitempty"` // beside the session id
	Early   []step         `json:"early,omitempty"` // once it was initialized
	Later   []step         `json:"later,omitempty"` // once it has made a session
	Replay  []step         `json:"replay,omitempty"`
	Refuse  string         `json:"refuse,omitempty"` // the method that is answered with an error
	Code    int            `json:"code,omitempty"`   // of that error
	Hang    string         `json:"hang,omitempty"`   // the method that is never answered
	Die     string         `json:"die,omitempty"`    // the method that it dies of
	First   bool           `json:"first,omitempty"`  // Hang and Die are for the first process only
}

// A step is one line of a script: exactly one field is set, but for those that
// belong to Ask.
type step struct {
	Update any            `json:"update,omitempty"` // of the session
	Ask    string         `json:"ask,omitempty"`
	Params map[string]any `json:"params,omitempty"`
	Async  bool           `json:"async,omitempty"` // the answer is not waited for
	Fill   int            `json:"fill,omitempty"`  // bytes of content in Params
	Tell   string         `json:"tell,omitempty"`
	Raw    string         `json:"raw,omitempty"`
	Times  int            `json:"times,omitempty"` // that Raw or Update is repeated
	Long   int            `json:"long,omitempty"`  // bytes that follow Raw in its line
	Await  string         `json:"await,omitempty"` // a method
	Answer int            `json:"answer,omitempty"`
	Stop   string         `json:"stop,omitempty"` // the end of the prompt
	Usage  map[string]any `json:"usage,omitempty"`
	Fail   string         `json:"fail,omitempty"` // its end with an error
	Code   int            `json:"code,omitempty"`
	Exit   int            `json:"exit,omitempty"`

	Grumble string `json:"grumble,omitempty"` // on standard error
	Hang    bool   `json:"hang,omitempty"`
	First   bool   `json:"first,omitempty"` // the step is for the first process only
}

func init() {
	if text := os.Getenv(setupVar); text != "" {
		f := &fake{in: bufio.NewReaderSize(os.Stdin, 1<<20), notes: os.Getenv(notesVar), replies: map[int]message{}}
		if err := json.Unmarshal([]byte(text), &f.setup); err != nil {
			panic(err)
		}
		f.note("environ", strings.Join(os.Environ(), "\n"))
		f.first = f.count() == 1
		f.serve()
		os.Exit(0)
	}
}

// A message is a JSON-RPC message of any kind.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// A fake is the agent's side of the protocol.
type fake struct {
	setup
	in      *bufio.Reader
	notes   string
	first   bool
	asked   int
	prompt  json.RawMessage // the id of the prompt that is on
	told    map[string]int
	replies map[int]message
}

// note appends a line to a file that the test can read.
func (f *fake) note(name, line string) {
	file, err := os.OpenFile(filepath.Join(f.notes, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintln(file, line)
}

// count returns the number of this process.
func (f *fake) count() int {
	f.note("starts", "x")
	text, err := os.ReadFile(filepath.Join(f.notes, "starts"))
	if err != nil {
		panic(err)
	}
	return strings.Count(string(text), "x")
}

// next returns the next message, and notes it.
func (f *fake) next() message {
	line, err := f.in.ReadString('\n')
	if err == io.EOF {
		os.Exit(0)
	}
	if err != nil {
		panic(err)
	}
	f.note("received", strings.TrimSpace(line))
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		panic(err)
	}
	return m
}

func (f *fake) send(m message) {
	m.JSONRPC = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func (f *fake) result(id json.RawMessage, result any) {
	f.send(message{ID: id, Result: encode(result)})
}

func (f *fake) serve() {
	for {
		f.take(f.next())
	}
}

// take deals with one message, whatever is going on.
func (f *fake) take(m message) {
	if m.Method == "" {
		var id int
		_ = json.Unmarshal(m.ID, &id)
		f.replies[id] = m
		return
	}
	if m.ID == nil {
		if f.told == nil {
			f.told = map[string]int{}
		}
		f.told[m.Method]++
		return
	}
	if f.Die == m.Method && (f.first || !f.First) {
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(9)
	}
	if f.Hang == m.Method && (f.first || !f.First) {
		return
	}
	if f.Refuse == m.Method {
		f.send(message{ID: m.ID, Error: encode(acp.RequestError{Code: f.Code, Message: "Not today", Data: map[string]any{"details": "it rains"}})})
		return
	}
	switch m.Method {
	case acp.AgentMethodInitialize:
		f.welcome(m.ID)
	case acp.AgentMethodSessionNew, acp.AgentMethodSessionLoad, acp.AgentMethodSessionResume:
		f.begin(m)
	case acp.AgentMethodSessionSetConfigOption:
		f.result(m.ID, map[string]any{"configOptions": f.Begun["configOptions"]})
	case acp.AgentMethodSessionPrompt:
		f.play(m)
	}
}

func (f *fake) welcome(id json.RawMessage) {
	if f.Version == nil {
		f.Version = 1
	}
	f.result(id, map[string]any{
		"protocolVersion": f.Version, "agentCapabilities": f.Can, "authMethods": f.Auth,
		"agentInfo": map[string]any{"name": cmp.Or(f.Name, "fake"), "version": "1"},
	})
	f.run(f.Early)
}

func (f *fake) begin(m message) {
	result := map[string]any{}
	maps.Copy(result, f.Begun)
	if m.Method == acp.AgentMethodSessionNew {
		result["sessionId"] = "s1"
	}
	if m.Method == acp.AgentMethodSessionLoad {
		f.run(f.Replay)
	}
	f.result(m.ID, result)
	f.run(f.Later)
}

// play runs the script that a prompt is.
func (f *fake) play(m message) {
	var params acp.PromptRequest
	if err := json.Unmarshal(m.Params, &params); err != nil {
		panic(err)
	}
	var script []step
	if err := json.Unmarshal([]byte(params.Prompt[0].Text.Text), &script); err != nil {
		panic(err)
	}
	f.prompt = m.ID
	f.run(script)
}

func (f *fake) run(script []step) {
	for _, s := range script {
		if !s.First || f.first {
			f.step(s)
		}
	}
}

func (f *fake) step(s step) {
	switch {
	case s.Update != nil:
		for range max(s.Times, 1) {
			f.send(message{Method: acp.ClientMethodSessionUpdate, Params: encode(map[string]any{"sessionId": "s1", "update": s.Update})})
		}
	case s.Ask != "":
		f.asked++
		if s.Fill > 0 {
			s.Params["content"] = strings.Repeat("x", s.Fill)
		}
		id := f.asked
		f.send(message{ID: encode(id), Method: s.Ask, Params: encode(s.Params)})
		if !s.Async {
			f.answer(id)
		}
	case s.Tell != "":
		f.send(message{Method: s.Tell, Params: encode(s.Params)})
	case s.Raw != "":
		for range max(s.Times, 1) {
			fmt.Print(s.Raw)
			for left := s.Long; left > 0; left -= 1 << 16 {
				fmt.Print(strings.Repeat("x", min(left, 1<<16)))
			}
			fmt.Println()
		}
	case s.Await != "":
		for f.told[s.Await] == 0 {
			f.take(f.next())
		}
		f.told[s.Await]--
	case s.Answer != 0:
		f.answer(s.Answer)
	case s.Stop != "":
		f.result(f.prompt, map[string]any{"stopReason": s.Stop, "usage": s.Usage})
	case s.Fail != "":
		f.send(message{ID: f.prompt, Error: encode(acp.RequestError{Code: s.Code, Message: s.Fail})})
	case s.Grumble != "":
		fmt.Fprintln(os.Stderr, s.Grumble)
	case s.Exit != 0:
		os.Exit(s.Exit)
	case s.Hang: // whatever becomes of the input, until it is killed
		r, w, err := os.Pipe()
		if err == nil {
			_, err = r.Read(make([]byte, 1))
		}
		panic(fmt.Errorf("read %v: %w", w, err)) // it has no end while w is known
	}
}

// answer waits for the answer to a request and notes it.
func (f *fake) answer(id int) {
	for {
		if m, ok := f.replies[id]; ok {
			text := string(m.Result)
			if m.Error != nil {
				text = "error " + string(m.Error)
			}
			f.note("replies", text)
			return
		}
		f.take(f.next())
	}
}

// Steps of scripts.

func says(text string) step {
	return step{Update: acp.UpdateAgentMessageText(text)}
}

func thinks(text string) step {
	return step{Update: acp.UpdateAgentThoughtText(text)}
}

func stops(reason acp.StopReason) step { return step{Stop: string(reason)} }

var done = stops(acp.StopReasonEndTurn)

// calls tells of a call; more are further fields.
func calls(id, title string, kind acp.ToolKind, status acp.ToolCallStatus, more map[string]any) step {
	return tells("tool_call", id, map[string]any{"title": title, "kind": kind, "status": status}, more)
}

// changes updates a call.
func changes(id string, status acp.ToolCallStatus, more map[string]any) step {
	return tells("tool_call_update", id, map[string]any{"status": status}, more)
}

func tells(kind, id string, fields ...map[string]any) step {
	update := map[string]any{"sessionUpdate": kind, "toolCallId": id}
	for _, f := range fields {
		for k, v := range f {
			if v != acp.ToolCallStatus("") {
				update[k] = v
			}
		}
	}
	return step{Update: update}
}

// shows is content of one text.
func shows(text string) map[string]any {
	return map[string]any{"content": []any{map[string]any{"type": "content", "content": map[string]any{"type": "text", "text": text}}}}
}

// permits asks whether a call may run.
func permits(id string, more map[string]any) step {
	call := map[string]any{"toolCallId": id}
	maps.Copy(call, more)
	return step{Ask: acp.ClientMethodSessionRequestPermission, Params: map[string]any{
		"sessionId": "s1", "toolCall": call, "options": []any{
			map[string]any{"optionId": "A", "name": "Always", "kind": "allow_always"},
			map[string]any{"optionId": "a", "name": "Yes", "kind": "allow_once"},
			map[string]any{"optionId": "R", "name": "Never", "kind": "reject_always"},
			map[string]any{"optionId": "r", "name": "No", "kind": "reject_once"},
		},
	}}
}

func asks(method string, params map[string]any) step { return step{Ask: method, Params: params} }

// script is a prompt.
func script(steps ...step) string { return string(encode(steps)) }

// noted returns the lines of a note.
func noted(t *testing.T, notes, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(notes, name))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
