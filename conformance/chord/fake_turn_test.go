//go:build unix

package chord_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/suitetest"
)

// turn serves messages until there are no more.
func (f *fake) turn(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return
	}
	for ctx.Err() == nil && f.take() && f.round(ctx) {
	}
	if f.has("idle-activity") {
		f.activity("idle")
	}
	f.outcome = "completed"
	switch {
	case f.failed && !f.has("never-failed"):
		f.outcome = "error"
	case f.cancelled:
		f.outcome = "cancelled"
	}
	f.stuck = f.has("stuck") && f.cancelled
	f.busy, f.phase, f.lastError, f.failed, f.cancelled, f.queue = false, "", "", false, false, nil
	f.put("idle", object{"last_outcome": f.outcome})
	if f.has("two-idles") {
		f.put("idle", object{"last_outcome": f.outcome})
	}
}

// take adds the queued messages to the conversation.
func (f *fake) take() bool {
	for _, text := range f.queue {
		f.history = append(f.history, object{"role": "user", "content": text})
	}
	some := len(f.queue) > 0
	f.queue = nil
	return some || len(f.history) > 0 && f.history[len(f.history)-1]["role"] == "tool"
}

// round asks the model once and runs its calls. It reports whether the turn goes on.
func (f *fake) round(ctx context.Context) bool {
	f.activity("connecting")
	request, began := object{"model": "fake", "messages": slices.Clone(f.history), "tools": offered}, false
	f.mu.Unlock()
	text, calls, err := suitetest.Ask(ctx, os.Getenv("OPENAI_BASE_URL"), request, func(chunk suitetest.Chunk) {
		if chunk.Choices[0].Delta.Content != "" && !began {
			began = true
			f.mu.Lock()
			f.activity("streaming")
			f.mu.Unlock()
		}
	})
	f.mu.Lock()
	if err != nil {
		if ctx.Err() == nil {
			f.failed, f.lastError = true, err.Error()
			f.put("error", object{"agent_id": "", "message": err.Error()})
			f.mu.Unlock()
			time.Sleep(100 * time.Millisecond) // so that a client can see last_error
			f.mu.Lock()
		} else if f.has("partial") && text != "" {
			f.say(text, 0)
		}
		return false
	}
	if len(calls) == 0 {
		f.history = append(f.history, object{"role": "assistant", "content": text})
		f.say(text, 0)
		if len(f.queue) > 0 && f.has("idle-each") {
			f.put("idle", object{"last_outcome": "completed"})
		}
		return true
	}
	if !f.has("late-message") && (text != "" || !f.has("no-empty-message")) {
		f.say(text, len(calls))
	}
	f.history = append(f.history, object{"role": "assistant", "content": text, "tool_calls": calls})
	f.activity("executing")
	results := make([]string, len(calls))
	var wg sync.WaitGroup
	f.mu.Unlock()
	for i, c := range calls {
		wg.Go(func() { results[i] = f.call(ctx, c.(object)["function"].(object)) })
	}
	wg.Wait()
	f.mu.Lock()
	if f.has("late-message") {
		f.say(text, len(calls))
	}
	for i, c := range calls {
		f.history = append(f.history, object{"role": "tool", "tool_call_id": c.(object)["id"], "content": results[i]})
	}
	return ctx.Err() == nil
}

func (f *fake) say(text string, calls int) {
	if len(text) > 1<<19 {
		text = text[:1<<19]
		if !f.has("unmarked") {
			text += "… (cut)"
		}
	}
	f.put("assistant_message", object{"agent_id": "", "text": text, "tool_calls": calls})
}

// request shows a request and waits for its answer. It returns nil if the turn ends.
func (f *fake) request(ctx context.Context, slot **pending, kind string, payload object) object {
	f.mu.Lock()
	f.ids++
	p := &pending{fmt.Sprint("r", f.ids), maps.Clone(payload), make(chan object, 2)}
	p.payload["request_id"] = p.id
	*slot = p
	f.put(kind, p.payload)
	f.mu.Unlock()
	select {
	case a := <-p.answer:
		return a
	case <-ctx.Done():
		return nil
	}
}

func (f *fake) call(ctx context.Context, function object) string {
	text := function["arguments"].(string)
	switch function["name"] {
	case "todo_write":
		var args object
		_ = json.Unmarshal([]byte(text), &args)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.has("todos-text") {
			args["todos"] = "First"
		}
		f.put("todos", object{"todos": args["todos"]})
		return "ok"
	case "question":
		if strings.Count(text, `"id"`) == 0 || strings.Contains(text, `"id":"conformance"`) {
			return "each option needs an id of its own"
		}
		a := f.request(ctx, &f.question, "question_request", object{"tool_name": "question", "question": "?", "options": []string{}, "multiple": true, "timeout_ms": 0})
		if a == nil || a["cancelled"] == true {
			return "cancelled"
		}
		return fmt.Sprint("answers: ", a["answers"])
	}
	var args struct{ Command string }
	_ = json.Unmarshal([]byte(text), &args)
	word, _, _ := strings.Cut(args.Command, " ")
	f.mu.Lock()
	allowed := slices.Contains(f.rules, word)
	f.mu.Unlock()
	if !allowed {
		a := f.request(ctx, &f.confirm, "confirm_request", object{"tool_name": "shell", "args_json": text, "needs_approval": []string{args.Command}, "timeout_ms": 0})
		if a == nil || a["allow"] != true {
			return fmt.Sprint("denied: ", a["reason"])
		}
		if final := a["final"].(string); final != "" && !f.has("first-args") && json.Unmarshal([]byte(final), &args) != nil {
			return "bad arguments"
		}
	}
	return suitetest.Shell(ctx, args.Command, f.has("orphans"))
}

// offered are the tools of the fake.
var offered = []object{
	tool("shell", object{"command": object{"type": "string"}, "description": object{"type": "string"}}, "command", "description"),
	tool("question", object{"questions": object{"type": "array", "items": object{"type": "object", "properties": object{
		"question": object{"type": "string"}, "multiple": object{"type": "boolean"}, "header": object{"type": "string"},
		"options": object{"type": "array", "items": object{"type": "object", "properties": object{"id": object{"type": "string"}}, "required": []any{"id"}}},
	}, "required": []any{"header"}}}}, "questions"),
	tool("todo_write", object{"todos": object{"type": "array"}}, "todos"),
}

func tool(name string, properties object, required ...string) object {
	return object{"type": "function", "function": object{"name": name, "parameters": object{"type": "object", "properties": properties, "required": required}}}
}
