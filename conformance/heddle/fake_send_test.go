//go:build unix

package heddle_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/suitetest"
)

// A send is one that runs.
type send struct {
	f      *fake
	ctx    context.Context
	id     string
	calls  []any
	usage  object
	rounds int
	last   string
	same   int
	loops  int
	tools  time.Duration
}

var errLoop, errMost = errors.New("loop_detected"), errors.New("max_iterations")

func (f *fake) send(id, message string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.mu.Lock()
	if !f.has("numbers-go-on") {
		f.seq = 0
	}
	f.running, f.stop = id, cancel
	if f.early[id] {
		delete(f.early, id)
		cancel()
	}
	f.mu.Unlock()
	s := &send{f: f, ctx: ctx, id: id, calls: []any{}}
	began := time.Now()
	quit, wg := make(chan struct{}), sync.WaitGroup{}
	wg.Go(func() { s.beat(quit) })
	if f.minor >= 5 {
		f.event(id, object{"event": "turn_state", "state": "queued"})
		f.event(id, object{"event": "turn_state", "state": "running"})
	}
	f.history = append(f.history, object{"role": "user", "content": message})
	text, err := s.converse()
	if !f.has("idle-beats") {
		close(quit)
		wg.Wait()
	}
	f.mu.Lock()
	f.running, f.stop = "", nil
	f.mu.Unlock()
	s.finish(text, err, time.Since(began))
}

func (s *send) beat(quit <-chan struct{}) {
	began := time.Now()
	for !s.f.has("no-beats") {
		select {
		case <-time.After(s.f.interval):
			s.f.event(s.id, object{"event": "heartbeat", "duration_ms": time.Since(began).Milliseconds()})
		case <-quit:
			return
		}
	}
}

func (s *send) finish(text string, err error, total time.Duration) {
	f := s.f
	code, retryable, details := "provider_error", false, any(nil)
	message := ""
	var refused *suitetest.ModelError
	switch {
	case err == nil:
	case s.ctx.Err() != nil:
		code, message = "cancelled", "cancelled"
	case errors.As(err, &refused):
		message, retryable, details = refused.Error(), refused.Status >= 500, refused.Details
		word := message
		if f.has("other-message") {
			word = "other"
		}
		f.event(s.id, object{"event": "error", "code": code, "message": word, "retryable": retryable, "provider": "fake", "details": details})
	default:
		message = err.Error()
		if err != errMost || f.minor >= 5 {
			code = err.Error()
		}
	}
	if f.minor >= 5 {
		f.event(s.id, object{"event": "turn_state", "state": "completed"})
	}
	model := total.Milliseconds() - s.tools.Milliseconds()
	if f.has("odd-latency") {
		model += 50
	}
	result := f.name(object{"type": "result", "id": s.id, "status": "ok", "tool_calls_made": s.calls, "iterations": s.rounds,
		"model_latency_ms": model, "tool_latency_ms": s.tools.Milliseconds(), "total_latency_ms": total.Milliseconds()})
	if s.usage != nil {
		result["usage"] = s.usage
	}
	if err == nil {
		f.history = append(f.history, object{"role": "assistant", "content": text})
		if f.has("other-response") {
			text += "."
		}
		result["response"] = text
	} else {
		result["status"] = "error"
		e := object{"code": code, "message": message, "retryable": retryable}
		if details != nil {
			e["details"] = details
		}
		result["error"] = e
		if f.minor >= 4 && !f.has("no-failure") {
			failure := object{"code": code, "termination_reason": message, "iterations": s.rounds, "tool_calls_made": len(s.calls)}
			if code == "loop_detected" {
				failure["loop_count"], failure["loop_threshold"] = s.loops, 3
			}
			result["failure"] = failure
		}
	}
	if code == "cancelled" && f.has("silent-cancel") && err != nil {
		return
	}
	if code == "cancelled" && f.has("stuck") && err != nil {
		f.stuck = true
	}
	if slices.Reverse(s.calls); !f.has("calls-reversed") {
		slices.Reverse(s.calls)
	}
	f.write(result)
}

// converse calls the model until it calls no more tools.
func (s *send) converse() (string, error) {
	for {
		if s.ctx.Err() != nil {
			return "", s.ctx.Err()
		}
		if s.rounds == s.f.most {
			return "", errMost
		}
		text, calls, err := s.ask()
		if err != nil {
			return "", err
		}
		s.rounds++
		if len(calls) == 0 {
			return text, nil
		}
		s.f.history = append(s.f.history, object{"role": "assistant", "content": text, "tool_calls": calls})
		for _, c := range calls {
			if err := s.call(c.(object)); err != nil {
				return "", err
			}
		}
	}
}

// ask streams one answer of the model.
func (s *send) ask() (string, []any, error) {
	f := s.f
	var offered []any
	for _, name := range []string{"bash", "glob", "read_file"} {
		if slices.Contains(f.tools, name) {
			offered = append(offered, object{"type": "function", "function": object{"name": name, "parameters": object{"type": "object"}}})
		}
	}
	request := object{"model": f.model, "messages": f.history, "tools": offered}
	return suitetest.Ask(s.ctx, os.Getenv("HEDDLE_BASE_URL"), request, func(chunk suitetest.Chunk) {
		if text := chunk.Choices[0].Delta.Content; text != "" {
			f.event(s.id, object{"event": "content_delta", "text": text})
		}
		if chunk.Usage != nil {
			s.usage = chunk.Usage
			if f.minor >= 3 {
				s.usage["generation_id"] = chunk.ID
			}
			e := maps.Clone(s.usage)
			e["event"] = "usage"
			f.event(s.id, e)
		}
	})
}

// call runs one call of a tool.
func (s *send) call(c object) error {
	f := s.f
	function := c["function"].(object)
	name := function["name"].(string)
	var args object
	_ = json.Unmarshal([]byte(function["arguments"].(string)), &args)
	if key := name + function["arguments"].(string); key == s.last {
		s.same++
	} else {
		s.last, s.same = key, 1
	}
	if s.loops = s.same; s.same == 3 && !f.has("no-loops") {
		return errLoop
	}
	answer := func(text string) {
		f.history = append(f.history, object{"role": "tool", "tool_call_id": c["id"], "content": text})
	}
	if !slices.Contains(f.tools, name) && !f.has("any-tool") {
		answer("no such tool")
		return nil
	}
	if slices.Contains(f.asks, name) {
		f.event(s.id, object{"event": "permission_request", "name": name})
		if !f.has("permission-forgotten") {
			f.event(s.id, object{"event": "permission_denied", "name": name, "reason": "nobody answers"})
		}
		answer("denied")
		return nil
	}
	if s.calls = append(s.calls, object{"name": name, "args": args}); f.has("forgets-calls") {
		s.calls = s.calls[:0]
	}
	f.event(s.id, object{"event": "tool_start", "name": name, "args": args})
	began := time.Now()
	text := run(s.ctx, name, args, f.has("orphans"))
	s.tools += time.Since(began)
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	shown := []rune(text)
	if len(shown) > 500 && !f.has("long-preview") {
		shown = shown[:500]
	}
	if !f.has("no-tool-end") {
		f.event(s.id, object{"event": "tool_end", "name": name, "result_preview": string(shown)})
	}
	answer(text)
	return nil
}

func run(ctx context.Context, name string, args object, orphans bool) string {
	switch name {
	case "glob":
		list, _ := filepath.Glob(args["pattern"].(string))
		return strings.Join(list, "\n")
	case "read_file":
		text, _ := os.ReadFile(args["path"].(string))
		return string(text)
	}
	return suitetest.Shell(ctx, args["command"].(string), orphans)
}
