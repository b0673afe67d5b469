package heddle_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type object = map[string]any

// A fake is a small correct server of the dialect, with at most one fault.
type fake struct {
	fault string

	mu      sync.Mutex // guards what the reader shares, and standard output
	running string
	stop    context.CancelFunc
	early   map[string]bool // cancelled sends that have not begun

	session, model, task, worker string
	tools                        []string
	asks                         []string
	most                         int
	minor                        int // of the version in use
	history                      []object
	seq                          int
	inits                        int
	stuck                        bool
	interval                     time.Duration
}

func (f *fake) has(fault string) bool { return f.fault == fault }

// write writes one line.
func (f *fake) write(o object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeLocked(o)
}

func (f *fake) writeLocked(o object) {
	if f.has("extra-key") {
		o["call_id"] = "x"
	}
	text, _ := json.Marshal(o)
	fmt.Printf("%s\n", text)
	if f.has("blank-lines") {
		fmt.Println()
	}
}

func (f *fake) refuse(id, code, message string) {
	if f.has("other-words") {
		message = "Bad: " + message
	}
	f.write(object{"type": "result", "id": id, "status": "error", "tool_calls_made": []any{}, "iterations": 0,
		"error": object{"code": code, "message": message, "retryable": false}})
}

// serve reads requests until the input ends.
func serve(fault string) {
	f := &fake{fault: fault, early: map[string]bool{}, interval: 5 * time.Second}
	if ms, err := strconv.Atoi(os.Getenv("HEDDLE_HEARTBEAT_INTERVAL")); err == nil {
		f.interval = time.Duration(ms) * time.Millisecond
	} else if f.has("fast-default") {
		f.interval = time.Second
	}
	if f.has("banner") {
		f.write(object{"type": "hello"})
	}
	work := make(chan object, 1000)
	go func() { os.Exit(f.work(work)) }() // the reader may wait for input
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			f.read(bytes.TrimRight(line, "\r\n"), work)
		}
		if err != nil {
			break
		}
	}
	if f.has("eof-aborts") {
		return
	}
	close(work)
	select {}
}

// read handles what is handled at once.
func (f *fake) read(line []byte, work chan<- object) {
	var any any
	if json.Unmarshal(line, &any) != nil {
		if !f.has("deaf-to-junk") {
			f.refuse("unknown", "protocol_error", "Invalid JSON")
		}
		return
	}
	o, ok := any.(object)
	id, hasID := o["id"].(string)
	kind, hasKind := o["type"].(string)
	switch {
	case !ok:
		f.refuse("unknown", "protocol_error", "Expected JSON object")
	case !hasKind:
		f.refuse("unknown", "protocol_error", "Missing 'type' field")
	case !hasID:
		f.refuse("unknown", "protocol_error", "Missing 'id' field")
	case f.has("strict") && o["x_unknown"] != nil:
		f.refuse(id, "protocol_error", "unknown field")
	case kind == "shutdown" && f.has("hasty"):
		f.write(object{"type": "shutdown_ok", "id": id})
		os.Exit(0)
	case kind == "cancel":
		f.cancel(id, o)
	default:
		work <- o
	}
}

func (f *fake) cancel(id string, o object) {
	target, ok := o["target_id"].(string)
	if !ok {
		f.refuse(id, "protocol_error", "cancel needs target_id")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has("cancel-ok") {
		f.writeLocked(object{"type": "cancel_ok", "id": id})
	}
	if f.running == target && f.stop != nil {
		if !f.has("deaf-to-cancel") {
			f.stop()
		}
	} else if !f.has("forgets-cancels") {
		f.early[target] = true
	}
}

func (f *fake) work(work <-chan object) int {
	for o := range work {
		id, kind := o["id"].(string), o["type"].(string)
		known := slices.Contains([]string{"init", "send", "status", "shutdown"}, kind)
		message, hasMessage := o["message"].(string)
		switch {
		case !known, kind == "send" && !hasMessage && !f.has("lenient"):
			f.refuse(id, "protocol_error", "bad request")
		case kind == "init":
			if !f.init(id, o) {
				if f.has("exit-0") {
					return 0
				}
				return 1
			}
		case kind == "shutdown":
			f.write(object{"type": "shutdown_ok", "id": id})
			return 0
		case f.session == "" && !f.has("eager"):
			f.refuse(id, "protocol_error", "Not initialized. Send 'init' first.")
		case kind == "status":
			n := 0
			for _, m := range f.history {
				if r := m["role"]; r == "user" || r == "assistant" && m["tool_calls"] == nil || f.has("counts-all") {
					n++
				}
			}
			f.write(object{"type": "status_ok", "id": id, "model": f.model, "messages_count": n, "session_id": f.session, "active": false})
		default:
			f.send(id, message)
			if f.has("late-event") {
				f.event(id, object{"event": "heartbeat", "duration_ms": 1})
			}
			if f.stuck {
				select {}
			}
		}
	}
	return 0
}

// init returns false if the process must end.
func (f *fake) init(id string, o object) bool {
	config, ok := o["config"].(object)
	version, versioned := o["protocol_version"].(string)
	var major int
	minor := 5
	if versioned {
		_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	} else {
		minor = 2
	}
	tools, hasTools := config["tools"].([]any)
	prompt, hasPrompt := config["system_prompt"].(string)
	runtime, _ := config["runtime"].(object)
	root, _ := runtime["state_root"].(string)
	switch {
	case major != 0 || f.has("picky") && minor > 5:
		f.refuse(id, "protocol_version_mismatch", "protocol_version_mismatch")
		return false
	case !ok || !hasTools || !hasPrompt:
		f.refuse(id, "protocol_error", "bad config")
		return true
	case runtime["mode"] == "isolated" && (root == "" || !filepath.IsAbs(root) && !f.has("relative-root")):
		f.refuse(id, "protocol_error", "state_root must be an absolute path")
		return true
	}
	f.inits++
	f.session = fmt.Sprintf("sess-%d-%d", os.Getpid(), f.inits)
	if f.has("one-session") {
		f.session = "sess"
	}
	f.model, _ = config["model"].(string)
	f.task, _ = config["task_id"].(string)
	f.worker, _ = config["worker_id"].(string)
	f.minor, f.most, f.tools, f.asks = min(minor, 5), 20, nil, nil
	if f.has("all-new") {
		f.minor = 5
	}
	if n, ok := config["max_iterations"].(float64); ok && !f.has("endless") {
		f.most = int(n)
	}
	for _, t := range tools {
		f.tools = append(f.tools, t.(string))
	}
	permissions, _ := config["permissions"].(object)
	asks, _ := permissions["ask"].([]any)
	for _, t := range asks {
		f.asks = append(f.asks, t.(string))
	}
	f.history = []object{{"role": "system", "content": prompt}}
	answer := object{"type": "init_ok", "id": id, "session_id": f.session, "protocol_version": fmt.Sprintf("0.%d.0", f.minor)}
	if f.minor >= 5 {
		answer["capabilities"] = object{"cancellation": true}
	}
	f.write(answer)
	if f.has("init-twice") {
		f.write(answer)
	}
	return true
}

func (f *fake) name(o object) object {
	o["session_id"] = f.session
	if f.task != "" && !f.has("nameless") {
		o["task_id"], o["worker_id"] = f.task, f.worker
	}
	return o
}

func (f *fake) event(send string, e object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq := f.seq
	if f.has("from-one") {
		seq++
	}
	f.writeLocked(f.name(object{"type": "event", "event": e, "event_seq": seq, "send_id": send}))
	f.seq++
}

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

// A modelError is a refusal of the model.
type modelError struct {
	message string
	details object
	retry   bool
}

func (e *modelError) Error() string { return e.message }

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
	var refused *modelError
	switch {
	case err == nil:
	case s.ctx.Err() != nil:
		code, message = "cancelled", "cancelled"
	case errors.As(err, &refused):
		message, retryable, details = refused.message, refused.retry, refused.details
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
	body, _ := json.Marshal(object{"model": f.model, "stream": true, "messages": f.history, "tools": offered})
	r, _ := http.NewRequestWithContext(s.ctx, "POST", os.Getenv("HEDDLE_BASE_URL")+"/chat/completions", bytes.NewReader(body))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		var details object
		_ = json.NewDecoder(resp.Body).Decode(&details)
		message, _ := details["error"].(object)["message"].(string)
		return "", nil, &modelError{message, details, resp.StatusCode >= 500}
	}
	var text strings.Builder
	var calls []any
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: {")
		if !ok {
			continue
		}
		var chunk struct {
			ID      string
			Choices []struct {
				Delta struct {
					Content   string
					ToolCalls []any `json:"tool_calls"`
				}
			}
			Usage object
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			return "", nil, err
		}
		if d := chunk.Choices[0].Delta; d.Content != "" {
			text.WriteString(d.Content)
			f.event(s.id, object{"event": "content_delta", "text": d.Content})
		} else {
			calls = append(calls, d.ToolCalls...)
		}
		if chunk.Usage != nil {
			s.usage = chunk.Usage
			if f.minor >= 3 {
				s.usage["generation_id"] = chunk.ID
			}
			e := object{"event": "usage"}
			for k, v := range s.usage {
				e[k] = v
			}
			f.event(s.id, e)
		}
	}
	return text.String(), calls, lines.Err()
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
	cmd := exec.CommandContext(ctx, "sh", "-c", args["command"].(string))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !orphans {
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	text, _ := cmd.Output()
	return string(text)
}
