package lines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A Model is an endpoint in the form of OpenAI's Chat Completions, at any path that ends
// with /chat/completions. It chooses the reply by the last prompt of a request that it has
// replies for, and by the number of the model's answers since that prompt. A server may
// therefore repeat requests and make requests of its own. The model says "Done." if it has
// no reply. Its methods may be called from any goroutine.
type Model struct {
	URL string // http://HOST:PORT

	server  *http.Server
	mu      sync.Mutex
	scripts map[string]script
	seen    []Request // at most maxRequests
}

const (
	maxRequests = 1000     // that are kept
	maxRequest  = 32 << 20 // bytes
)

// A script answers a prompt.
type script struct {
	replies []Reply
	again   bool // the last reply is given again and again
}

// A Request is one request of the server to the model.
type Request struct {
	Prompt   string // the text of the script that answers it; empty if none does
	Step     int    // how often the model has spoken since the prompt
	Messages []Message
	Tools    []Tool
}

// A Message is one of the conversation.
type Message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// A Tool is one that the model may call.
type Tool struct {
	Name       string `json:"name"`
	Parameters Object `json:"parameters"`
}

// A Reply is what the model answers once.
type Reply struct {
	Text   string
	Pieces []string // the text in pieces, with Pause before each but the first; in place of Text
	Pause  time.Duration
	Calls  []Call
	Delay  time.Duration   // before the answer begins
	Hold   <-chan struct{} // until it is closed, only the first of the Pieces is sent, or nothing if there are none
	Status int             // of a refusal, with Text as its body; 0 answers
	Usage  []int           // input, output and total tokens; nil reports none
	ID     string          // of the answer; empty for one made up
}

// BadRequest is a refusal that a server does not repeat.
var BadRequest = Reply{Status: 400, Text: `{"error":{"message":"Bad request","type":"invalid_request_error"}}`}

// A Call is a call of a tool.
type Call struct {
	Kind string            // the tool with this purpose, of those that are offered: see kinds
	Name string            // the tool's name, whether it is offered or not; in place of Kind
	Args func(Tool) Object // arguments for the offered tool
}

// kinds are the names that tools for a purpose have.
var kinds = map[string][]string{
	"shell":    {"bash", "shell", "Bash", "Shell", "run_shell_command", "run_command", "execute_command", "terminal", "exec"},
	"glob":     {"glob", "Glob", "find_files", "list_files"},
	"read":     {"read_file", "read", "Read"},
	"question": {"question", "ask_user", "ask_user_question", "AskUserQuestion", "Question"},
	"todo":     {"todo_write", "TodoWrite", "todowrite", "write_todos"},
}

// Names returns the names that tools for a purpose have.
func Names(kind string) []string { return slices.Clone(kinds[kind]) }

// ToolFor returns the tool for a purpose.
func ToolFor(tools []Tool, kind string) (Tool, bool) {
	for _, name := range kinds[kind] {
		if at := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name }); at >= 0 {
			return tools[at], true
		}
	}
	return Tool{}, false
}

// NewModel starts a model that ends with the scenario.
func NewModel(s *conformance.Session) *Model {
	m := &Model{scripts: map[string]script{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Skip("the suite cannot start its model: %v", err)
	}
	m.URL = "http://" + listener.Addr().String()
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { // ends with Close
		defer close(done)
		_ = m.server.Serve(listener)
	}()
	s.AtEnd(func() {
		_ = m.server.Close()
		<-done
	})
	return m
}

// On sets the replies to a prompt, in order. After them the model says "Done.".
func (m *Model) On(prompt string, replies ...Reply) { m.set(prompt, script{replies: replies}) }

// Always sets the one reply to a prompt, however often the model has spoken.
func (m *Model) Always(prompt string, reply Reply) { m.set(prompt, script{[]Reply{reply}, true}) }

func (m *Model) set(prompt string, s script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scripts[prompt] = s
}

// Requests returns the requests with a prompt, oldest first; all requests for an empty one.
func (m *Model) Requests(prompt string) []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.seen), func(r Request) bool { return prompt != "" && r.Prompt != prompt })
}

// Saw reports whether a request with a prompt has a text in a message with one of the roles.
func (m *Model) Saw(prompt, text string, roles ...string) bool {
	quoted, _ := json.Marshal(text) // texts can be encoded
	return slices.ContainsFunc(m.Requests(prompt), func(r Request) bool {
		return slices.ContainsFunc(r.Messages, func(msg Message) bool {
			return slices.Contains(roles, msg.Role) && strings.Contains(string(msg.Content), string(quoted[1:len(quoted)-1]))
		})
	})
}

// ServeHTTP implements [http.Handler].
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/chat/completions") || r.Method != http.MethodPost {
		if strings.HasSuffix(r.URL.Path, "/models") {
			writeJSON(w, Object{"object": "list", "data": []any{Object{"id": "conformance", "object": "model"}}})
			return
		}
		http.NotFound(w, r)
		return
	}
	var body struct {
		Messages []Message `json:"messages"`
		Stream   bool      `json:"stream"`
		Tools    []struct {
			Function Tool `json:"function"`
		} `json:"tools"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := Request{Messages: body.Messages}
	for _, t := range body.Tools {
		request.Tools = append(request.Tools, t.Function)
	}
	reply := m.choose(&request)
	if !wait(r, reply.Delay) || len(reply.Pieces) == 0 && !held(r, reply.Hold) {
		return
	}
	if reply.Status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(reply.Status)
		_, _ = io.WriteString(w, reply.Text) // a client that left is no fault
		return
	}
	a := &answer{reply, calls(&request, reply), "stop"}
	if len(a.Pieces) == 0 && a.Text != "" {
		a.Pieces = []string{a.Text}
	}
	if len(a.called) > 0 {
		a.stop = "tool_calls"
	}
	if body.Stream {
		a.stream(w, r)
	} else {
		a.whole(w, r)
	}
}

// wait reports false if the client leaves before d is over.
func wait(r *http.Request, d time.Duration) bool { return sleep.For(r.Context(), d) == nil }

// held waits until hold is closed, unless it is nil. It reports false if the client leaves before.
func held(r *http.Request, hold <-chan struct{}) bool {
	if hold == nil {
		return true
	}
	select {
	case <-hold:
		return true
	case <-r.Context().Done():
		return false
	}
}

// choose finds the script of a request, keeps the request, and returns the reply.
func (m *Model) choose(r *Request) Reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(r.Messages) - 1; i >= 0 && r.Prompt == ""; i-- {
		switch r.Messages[i].Role {
		case "assistant":
			r.Step++
		case "user":
			for prompt := range m.scripts {
				if strings.Contains(string(r.Messages[i].Content), prompt) && len(prompt) > len(r.Prompt) {
					r.Prompt = prompt
				}
			}
		}
	}
	if len(m.seen) < maxRequests {
		m.seen = append(m.seen, *r)
	}
	switch s := m.scripts[r.Prompt]; {
	case r.Step < len(s.replies):
		return s.replies[r.Step]
	case s.again:
		return s.replies[0]
	}
	return Reply{Text: "Done."}
}

// calls returns the calls of a reply in the form of the wire. A call of a tool that is not
// offered is left out.
func calls(r *Request, reply Reply) (list []any) {
	for _, call := range reply.Calls {
		tool, offered := ToolFor(r.Tools, call.Kind)
		if call.Name != "" {
			tool, offered = Tool{Name: call.Name}, true
		}
		if !offered {
			continue
		}
		args, _ := json.Marshal(call.Args(tool)) // arguments can be encoded
		list = append(list, Object{"index": len(list), "id": fmt.Sprintf("call_%d_%d", r.Step, len(list)), "type": "function",
			"function": Object{"name": tool.Name, "arguments": string(args)}})
	}
	return list
}

// An answer is a reply in the form of the wire.
type answer struct {
	Reply
	called []any
	stop   string // why the model stops
}

// form returns an answer, whole or a part of a stream, with its one choice.
func (a *answer) form(kind string, choice Object) Object {
	o := Object{"id": cmp.Or(a.ID, "chatcmpl-conformance"), "object": kind, "created": 1700000000, "model": "conformance", "choices": []any{choice}}
	if choice["finish_reason"] != nil && a.Usage != nil {
		o["usage"] = Object{"prompt_tokens": a.Usage[0], "completion_tokens": a.Usage[1], "total_tokens": a.Usage[2]}
	}
	return o
}

// whole writes the answer as one object.
func (a *answer) whole(w http.ResponseWriter, r *http.Request) {
	if !wait(r, a.Pause*time.Duration(max(len(a.Pieces)-1, 0))) || len(a.Pieces) > 1 && !held(r, a.Hold) {
		return
	}
	message := Object{"role": "assistant", "content": strings.Join(a.Pieces, "")}
	if len(a.called) > 0 {
		message["tool_calls"] = a.called
	}
	writeJSON(w, a.form("chat.completion", Object{"index": 0, "message": message, "finish_reason": a.stop}))
}

// stream writes the answer as events.
func (a *answer) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta Object, stop any) {
		text, _ := json.Marshal(a.form("chat.completion.chunk", Object{"index": 0, "delta": delta, "finish_reason": stop})) // it can be encoded
		_, _ = fmt.Fprintf(w, "data: %s\n\n", text)                                                                         // a client that left is no fault
		_ = http.NewResponseController(w).Flush()
	}
	send(Object{"role": "assistant"}, nil)
	for i, piece := range a.Pieces {
		if i > 0 && (!wait(r, a.Pause) || !held(r, a.Hold)) {
			return
		}
		send(Object{"content": piece}, nil)
	}
	if len(a.called) > 0 {
		send(Object{"tool_calls": a.called}, nil)
	}
	send(Object{}, a.stop)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that left is no fault
}

// Fixed returns arguments that do not depend on the tool.
func Fixed(args Object) func(Tool) Object { return func(Tool) Object { return args } }

// Shell returns a call of a shell tool for a command, with what else the tool requires.
func Shell(command string) Call {
	return Call{Kind: "shell", Args: func(t Tool) Object { return fill(t.Parameters, Object{"command": command}) }}
}

// fill adds the required members of a schema that args lacks.
func fill(schema, args Object) Object {
	required, _ := schema["required"].([]any)
	properties, _ := schema["properties"].(Object)
	for _, name := range required {
		name, _ := name.(string)
		if _, given := args[name]; given {
			continue
		}
		property, _ := properties[name].(Object)
		args[name] = sample(property)
	}
	return args
}

// sample returns a value of a schema.
func sample(schema Object) any {
	if options, _ := schema["enum"].([]any); len(options) > 0 {
		return options[0]
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok && len(kinds) > 0 {
		kind, _ = kinds[0].(string)
	}
	switch kind {
	case "integer", "number":
		return 30
	case "boolean":
		return false
	case "array":
		return []any{}
	case "object":
		return fill(schema, Object{})
	}
	return "conformance"
}

// Fill returns item with what the schema of the items of a list among a tool's arguments
// requires besides.
func Fill(parameters Object, list string, item Object) Object {
	schema, _ := At(parameters, "properties."+list+".items").(Object)
	return fill(schema, item)
}
