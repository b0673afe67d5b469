//go:build unix

package heddle_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/suitetest"
)

type object = suitetest.Object

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
func serve(fault string, _ []string) int {
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
		return 0
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
	if f.has("all-new") {
		f.minor = 5
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
