package localmodel

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// responsesWire is OpenAI Responses. It always acts as if store were false: it knows
// only what the client sends again.
var responsesWire = wire{FormResponses, parseResponses, replyResponses, openaiError, failedResponse}

type responsesRequest struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	Input    json.RawMessage `json:"input"`
	Include  []string        `json:"include"`
	Previous string          `json:"previous_response_id"`
	Tools    []responsesTool `json:"tools"`
}

type responsesTool struct {
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	Tools      []responsesTool `json:"tools"` // of a namespace
}

type responsesItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Output    json.RawMessage `json:"output"`
	Encrypted *string         `json:"encrypted_content"`
	Summary   []struct {
		Text string `json:"text"`
	} `json:"summary"`
}

// echoed has the request fields that a response repeats, each with its default.
var echoed = []struct {
	name  string
	value any
}{
	{"instructions", nil}, {"max_output_tokens", nil}, {"metadata", object{}}, {"parallel_tool_calls", true},
	{"previous_response_id", nil}, {"reasoning", object{"effort", nil, "summary", nil}}, {"store", true},
	{"temperature", 1.0}, {"text", object{"format", object{"type", "text"}}}, {"tool_choice", "auto"},
	{"tools", []any{}}, {"top_p", 1.0}, {"truncation", "disabled"}, {"user", nil},
}

func parseResponses(body []byte) (*conversation, *failure) {
	var req responsesRequest
	c := newConversation(body)
	if json.Unmarshal(body, &req) != nil || json.Unmarshal(body, &c.fields) != nil {
		return nil, invalid("We could not parse the JSON body of your request.")
	}
	c.model, c.stream, c.cached = cmp.Or(req.Model, defaultModel), req.Stream, true
	c.sealed = slices.Contains(req.Include, "reasoning.encrypted_content")
	c.offer("", req.Tools)
	var text string
	if json.Unmarshal(req.Input, &text) == nil {
		c.entries = []entry{{by: user, text: text}}
		return c.look(), nil
	}
	var items []responsesItem
	if json.Unmarshal(req.Input, &items) != nil {
		return c, invalid("Missing required parameter: 'input'.")
	}
	for _, item := range items {
		c.entries = append(c.entries, item.entries()...)
	}
	if req.Previous != "" {
		return c.look(), nil // the client says that the rest of the history is stored
	}
	return c.look(), c.checkResponses(items)
}

// offer adds the offered tools, including those of namespaces.
func (c *conversation) offer(namespace string, tools []responsesTool) {
	for _, t := range tools {
		switch t.Type {
		case "namespace":
			c.offer(t.Name, t.Tools)
		case "function", "custom":
			c.tools = append(c.tools, offered{t.Name, namespace, t.Type == "custom", t.Parameters})
		}
	}
}

// calling has the kinds of items that a model makes; answering has the kinds that
// answer them.
var (
	calling   = []string{"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"}
	answering = []string{"function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output"}
)

// entries returns the entries of an input item. A message of the system or the
// developer has none.
func (item responsesItem) entries() []entry {
	switch {
	case slices.Contains(calling, item.Type):
		return []entry{{by: model, call: item.CallID}}
	case slices.Contains(answering, item.Type):
		return []entry{{by: tool, text: plainText(item.Output), call: item.CallID}}
	case item.Type == "reasoning":
		return []entry{{by: model}}
	case item.Type != "message" && item.Type != "":
	case item.Role == "user":
		var said []entry
		for _, text := range texts(item.Content) {
			said = append(said, entry{by: user, text: text})
		}
		return said
	case item.Role == "assistant":
		return []entry{{by: model, text: plainText(item.Content)}}
	}
	return nil
}

// checkResponses checks an input against the rules of the service for a history
// that it has not stored.
func (c *conversation) checkResponses(items []responsesItem) *failure {
	for i, item := range items {
		if item.Type == "reasoning" {
			if f := checkReasoning(items, i); f != nil {
				return f
			}
		}
	}
	return c.checkCalls(false, func(e entry) *failure {
		return invalid("No tool call found for function call output with call_id %s.", e.call)
	}, func(e entry) *failure {
		return invalid("No tool output found for function call %s.", e.call)
	})
}

// checkReasoning checks the ith item, which is reasoning: this server must have
// made it, and the item that it led to must follow.
func checkReasoning(items []responsesItem, i int) *failure {
	item := items[i]
	if item.Encrypted == nil || *item.Encrypted == "" {
		return invalid("Item with id '%s' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input.", item.ID)
	}
	text := ""
	for _, s := range item.Summary {
		text += s.Text
	}
	if *item.Encrypted != seal(text) {
		f := invalid("The encrypted content %s could not be verified.", abridge.Bytes(*item.Encrypted, 10))
		f.code = "invalid_encrypted_content"
		return f
	}
	if i+1 == len(items) || items[i+1].Role == "user" || slices.Contains(answering, items[i+1].Type) {
		return invalid("Item '%s' of type 'reasoning' was provided without its required following item.", item.ID)
	}
	return nil
}

func replyResponses(c *conversation, r reply) (frames []frame, whole object) {
	w := responsesWriter{c: c, created: unixNow()}
	w.add(inStart, "response.created", "response", w.response("in_progress", r))
	w.add(inStart, "response.in_progress", "response", w.response("in_progress", r))
	if r.thinking != "" {
		w.reasoning(r.thinking)
	}
	if r.text != "" {
		w.message(r)
	}
	for i, call := range r.calls {
		w.call(i, call)
	}
	status := r.reason("incomplete", "completed", "completed", "completed")
	whole = w.response(status, r)
	w.add(inEnd, "response."+status, "response", whole)
	return w.frames, whole
}

// A responsesWriter collects the events and the items of a response.
type responsesWriter struct {
	c       *conversation
	created int64
	frames  []frame
	output  []any
}

func (w *responsesWriter) add(in section, event string, fields ...any) {
	data := append(object{"type", event, "sequence_number", len(w.frames)}, fields...)
	w.frames = append(w.frames, frame{in, event, encode(data)})
}

// of adds an event about the current item.
func (w *responsesWriter) of(in section, event, id string, fields ...any) {
	w.add(in, event, append([]any{"item_id", id, "output_index", len(w.output)}, fields...)...)
}

func (w *responsesWriter) added(item object) {
	w.add(inStart, "response.output_item.added", "output_index", len(w.output), "item", item)
}

func (w *responsesWriter) done(item object) {
	w.add(inStart, "response.output_item.done", "output_index", len(w.output), "item", item)
	w.output = append(w.output, item)
}

func (w *responsesWriter) reasoning(text string) {
	id := w.c.newID("rs_", 0)
	item := func(summary ...any) object {
		item := object{"id", id, "type", "reasoning", "summary", append([]any{}, summary...)}
		if w.c.sealed {
			item = append(item, "encrypted_content", seal(text))
		}
		return item
	}
	part := func(text string) object { return object{"type", "summary_text", "text", text} }
	w.added(item())
	w.part(inThinking, id, "response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index", "text", text, part)
	w.done(item(part(text)))
}

func (w *responsesWriter) message(r reply) {
	id := w.c.newID("msg_", 0)
	item := func(status string, content ...any) object {
		return object{"id", id, "type", "message", "status", status, "content", append([]any{}, content...), "role", "assistant"}
	}
	part := func(text string) object {
		return object{"type", "output_text", "annotations", []any{}, "logprobs", []any{}, "text", text}
	}
	event, key := "response.output_text", "text"
	if r.stop == stopRefused {
		event, key = "response.refusal", "refusal"
		part = func(text string) object { return object{"type", "refusal", "refusal", text} }
	}
	w.added(item("in_progress"))
	w.part(inText, id, "response.content_part", event, "content_index", key, r.text, part, "logprobs", []any{})
	w.done(item("completed", part(r.text)))
}

// part adds the events of a part whose text comes in pieces.
func (w *responsesWriter) part(in section, id, event, textEvent, index, key, text string, part func(string) object, more ...any) {
	w.of(inStart, event+".added", id, index, 0, "part", part(""))
	for _, piece := range w.c.pieces(text) {
		w.of(in, textEvent+".delta", id, append([]any{index, 0, "delta", piece}, more...)...)
	}
	w.of(inStart, textEvent+".done", id, append([]any{index, 0, key, text}, more...)...)
	w.of(inStart, event+".done", id, index, 0, "part", part(text))
}

func (w *responsesWriter) call(i int, call madeCall) {
	kind, prefix, key := "function_call", "fc_", "arguments"
	event := "response.function_call_arguments"
	if call.tool.custom {
		kind, prefix, key = "custom_tool_call", "ctc_", "input"
		event = "response.custom_tool_call_input"
		call.args = customInput(call.args)
	}
	id := w.c.newID(prefix, i)
	item := func(status, args string) object {
		item := object{"id", id, "type", kind, "status", status, key, args,
			"call_id", w.c.newID("call_", i), "name", call.tool.name}
		if call.tool.namespace != "" {
			item = append(item, "namespace", call.tool.namespace)
		}
		return item
	}
	w.added(item("in_progress", ""))
	for _, piece := range w.c.pieces(call.args) {
		w.of(inArgs, event+".delta", id, "delta", piece)
	}
	w.of(inStart, event+".done", id, key, call.args)
	w.done(item("completed", call.args))
}

// customInput returns the input for a tool that takes text: the value of "input"
// in args, or args itself if it has none.
func customInput(args string) string {
	var named struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal([]byte(args), &named) == nil && named.Input != nil {
		return *named.Input
	}
	return args
}

// response returns the object at the beginning and the end of a stream. Without
// streaming it is the whole answer.
func (w *responsesWriter) response(status string, r reply) object {
	var incomplete, usage any
	output := []any{}
	if status != "in_progress" {
		output, usage = append(output, w.output...), responsesUsage(w.c, r)
	}
	if status == "incomplete" {
		incomplete = object{"reason", "max_output_tokens"}
	}
	out := object{"id", w.c.newID("resp_", 0), "object", "response", "created_at", w.created, "status", status,
		"background", false, "error", nil, "incomplete_details", incomplete, "model", w.c.model,
		"output", output, "service_tier", "default", "usage", usage}
	for _, field := range echoed {
		value := field.value
		if sent, ok := w.c.fields[field.name]; ok {
			value = sent
		}
		out = append(out, field.name, value)
	}
	return out
}

func responsesUsage(c *conversation, r reply) object {
	input, output, read, written := c.usage(r)
	input += read + written // this form includes cached tokens in the input
	return object{"input_tokens", input, "input_tokens_details", object{"cached_tokens", read, "cache_write_tokens", written},
		"output_tokens", output, "output_tokens_details", object{"reasoning_tokens", len(r.thinking) / 4},
		"total_tokens", input + output}
}

func failedResponse(kind FaultKind, sequence int) frame {
	message := refusals[FaultServerError][1].message
	if kind == FaultFailedEvent {
		response := object{"id", "resp_failed", "object", "response", "status", "failed",
			"error", object{"code", "server_error", "message", message}, "output", []any{}, "usage", nil}
		return frame{inEnd, "response.failed", encode(object{
			"type", "response.failed", "sequence_number", sequence, "response", response})}
	}
	return frame{inEnd, "error", encode(object{"type", "error", "sequence_number", sequence,
		"code", "server_error", "message", message, "param", nil})}
}
