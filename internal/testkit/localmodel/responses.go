package localmodel

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

type responsesItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Output    json.RawMessage `json:"output"`
	Encrypted string          `json:"encrypted_content"`
	Summary   []struct {
		Text string `json:"text"`
	} `json:"summary"`
}

// readResponses reads a request in the form of Responses, and checks it against the
// rules of the service for a history that it has not stored.
func readResponses(c *conversation) *failure {
	var text string
	if json.Unmarshal(c.Input, &text) == nil {
		c.entries = []entry{{by: user, text: text}}
		return nil
	}
	var items []responsesItem
	if json.Unmarshal(c.Input, &items) != nil {
		return invalid("Missing required parameter: 'input'.")
	}
	var refusal *failure
	for i, item := range items {
		switch {
		case item.Type == "function_call":
			c.entries = append(c.entries, entry{by: model, call: item.CallID})
		case item.Type == "function_call_output":
			c.entries = append(c.entries, entry{by: tool, text: plainText(item.Output), call: item.CallID})
		case item.Type == "reasoning":
			c.entries = append(c.entries, entry{by: model})
			if refusal == nil {
				refusal = checkReasoning(item, items[i+1:])
			}
		case item.Role == "user":
			for _, text := range texts(item.Content) {
				c.entries = append(c.entries, entry{by: user, text: text})
			}
		case item.Role == "assistant":
			c.entries = append(c.entries, entry{by: model, text: plainText(item.Content)})
		}
	}
	if refusal != nil {
		return refusal
	}
	return c.checkCalls(false, "No tool call found for function call output with call_id %s.", "No tool output found for function call %s.")
}

// checkReasoning checks an item of reasoning: this server must have made it, and the
// item that it led to must follow.
func checkReasoning(item responsesItem, next []responsesItem) *failure {
	text := ""
	for _, s := range item.Summary {
		text += s.Text
	}
	switch {
	case item.Encrypted == "":
		return invalid("Item with id '%s' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input.", item.ID)
	case item.Encrypted != seal(text):
		return invalid("The encrypted content %s could not be verified.", abridge.Bytes(item.Encrypted, 10))
	case len(next) == 0 || next[0].Role == "user" || next[0].Type == "function_call_output":
		return invalid("Item '%s' of type 'reasoning' was provided without its required following item.", item.ID)
	}
	return nil
}

// A responsesWriter collects the events and the items of a response.
type responsesWriter struct {
	c      *conversation
	frames []frame
	output []any
}

func (w *responsesWriter) add(in section, event string, fields object) {
	fields["type"], fields["sequence_number"] = event, len(w.frames)
	w.frames = append(w.frames, frame{in, event, encode(fields)})
}

func replyResponses(c *conversation, r reply) []frame {
	w := &responsesWriter{c: c, output: []any{}}
	response := object{"id": c.newID("resp_", 0), "object": "response", "created_at": time.Now().Unix(), "status": "in_progress",
		"error": nil, "incomplete_details": nil, "model": c.Model, "output": w.output, "usage": nil}
	w.add(inStart, "response.created", object{"response": response})
	w.add(inStart, "response.in_progress", object{"response": response})
	if r.thinking != "" {
		item := object{"id": c.newID("rs_", 0), "type": "reasoning", "summary": []any{}}
		if slices.Contains(c.Include, "reasoning.encrypted_content") {
			item["encrypted_content"] = seal(r.thinking)
		}
		w.item(inThinking, item, "response.reasoning_summary_text", "text", r.thinking, &part{
			"response.reasoning_summary_part", "summary", "summary_index", object{"type": "summary_text"}})
	}
	if r.text != "" {
		event, key, empty := "response.output_text", "text", object{"type": "output_text", "annotations": []any{}, "logprobs": []any{}}
		if r.stop == stopRefused {
			event, key, empty = "response.refusal", "refusal", object{"type": "refusal"}
		}
		item := object{"id": c.newID("msg_", 0), "type": "message", "status": "in_progress", "content": []any{}, "role": "assistant"}
		w.item(inText, item, event, key, r.text, &part{"response.content_part", "content", "content_index", empty})
	}
	for i, call := range r.calls {
		item := object{"id": c.newID("fc_", i), "type": "function_call", "status": "in_progress", "arguments": "",
			"call_id": c.newID("call_", i), "name": call.tool}
		w.item(inArgs, item, "response.function_call_arguments", "arguments", call.args, nil)
	}
	status := r.reason("incomplete", "completed", "completed", "completed")
	if status == "incomplete" {
		response["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	response["status"], response["output"], response["usage"] = status, w.output, openaiUsage(c, r, "input", "output")
	w.add(inEnd, "response."+status, object{"response": response})
	return w.frames
}

// A part is what has the text of an item: its events, the list that it is in, the
// name of its index in that, and its members besides the text.
type part struct {
	event, list, index string
	fields             object
}

// item adds an item whose text, which has the name key, comes in pieces. The text of
// an item without parts is a member of the item itself.
func (w *responsesWriter) item(in section, item object, event, key, text string, p *part) {
	about := object{"item_id": item["id"], "output_index": len(w.output)}
	if p != nil {
		about[p.index] = 0
	}
	of := func(in section, event, key string, value any) {
		fields := object{key: value}
		maps.Copy(fields, about)
		w.add(in, event, fields)
	}
	whole := func(text string) object {
		fields := object{key: text}
		maps.Copy(fields, p.fields)
		return fields
	}
	w.add(inStart, "response.output_item.added", object{"output_index": len(w.output), "item": item})
	if p != nil {
		of(inStart, p.event+".added", "part", whole(""))
	}
	for _, piece := range w.c.pieces(text) {
		of(in, event+".delta", "delta", piece)
	}
	of(inStart, event+".done", key, text)
	if p != nil {
		of(inStart, p.event+".done", "part", whole(text))
		item[p.list] = []any{whole(text)}
	} else {
		item[key] = text
	}
	item["status"] = "completed"
	w.add(inStart, "response.output_item.done", object{"output_index": len(w.output), "item": item})
	w.output = append(w.output, item)
}

func responsesFrame(kind FaultKind, sequence int) frame {
	message := refusals[FaultServerError][1].message
	event := object{"type": "error", "code": "server_error", "message": message, "param": nil}
	if kind == FaultFailedEvent {
		event = object{"type": "response.failed", "response": object{"id": "resp_failed", "object": "response", "status": "failed",
			"error": object{"code": "server_error", "message": message}, "output": []any{}, "usage": nil}}
	}
	event["sequence_number"] = sequence
	return frame{inEnd, event["type"].(string), encode(event)}
}
