//go:build unix

package chord_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/suitetest"
)

type object = suitetest.Object

// A fake is a small correct server of the dialect, with at most one fault.
type fake struct {
	fault   string
	dir     string
	session string

	mu         sync.Mutex // guards the rest, and standard output
	subscribed []string
	chosen     bool
	busy       bool
	phase      string
	lastError  string
	outcome    string
	confirm    *pending
	question   *pending
	late       *pending
	failed     bool
	cancelled  bool
	stuck      bool
	stop       context.CancelFunc
	queue      []string
	rules      []string
	history    []object
	ids        int
}

// A pending is a request to the client.
type pending struct {
	id      string
	payload object
	answer  chan object // 1-buffered
}

func (f *fake) has(fault string) bool { return f.fault == fault }

// put writes an envelope, unless the client did not subscribe to it.
func (f *fake) put(kind string, payload any) {
	_, ofAgent := payload.(object)["agent_id"]
	optional := !strings.HasSuffix(kind, "_response") && kind != "ready" && (kind != "error" || ofAgent)
	if f.has("mute") && optional && !f.chosen || optional && f.chosen && !slices.Contains(f.subscribed, kind) {
		return
	}
	if f.has("no-payload") && kind == "subscribe_response" {
		payload = []any{payload}
	}
	text, _ := json.Marshal(object{"type": kind, "payload": payload})
	fmt.Printf("%s\n", text)
}

func (f *fake) activity(kind string) {
	f.phase = kind
	f.put("activity", object{"agent_id": "main", "type": kind, "detail": ""})
}

func (f *fake) refuse(message string) { f.put("error", object{"message": message}) }

// kept is the file of the rules of a scope.
func (f *fake) kept(scope string) string {
	if scope == "user_global" {
		return filepath.Join(os.Getenv("HOME"), "rules")
	}
	return filepath.Join(f.dir, ".rules")
}

// start reads the flags and returns an error if the server cannot start.
func (f *fake) start(args []string) error {
	var resume string
	var again bool
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-d":
			i++
			f.dir = args[i]
		case "--resume":
			i++
			resume = args[i]
		case "--continue":
			again = true
		}
	}
	if again && resume != "" && !f.has("starts-anyway") {
		return errors.New("--continue and --resume exclude each other")
	}
	if err := os.Chdir(f.dir); err != nil {
		return err
	}
	f.session = fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	if resume != "" && !again {
		if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), resume)); err != nil && !f.has("resumes-any") {
			return fmt.Errorf("no session %s", resume)
		}
		if !f.has("new-id") {
			f.session = resume
		}
	}
	for _, scope := range []string{"project", "user_global"} {
		text, _ := os.ReadFile(f.kept(scope))
		f.rules = append(f.rules, strings.Fields(string(text))...)
	}
	return os.WriteFile(filepath.Join(os.Getenv("HOME"), f.session), nil, 0o600)
}

// serve serves until the input ends, and returns the exit status.
func serve(fault string, args []string) int {
	f := &fake{fault: fault}
	if err := f.start(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if f.has("banner") {
		f.put("info", object{"agent_id": "", "message": "welcome"})
	}
	f.put("ready", object{"session_id": f.session})
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if len(line) > 0 {
			f.mu.Lock()
			f.line(strings.TrimRight(line, "\r\n"))
			f.mu.Unlock()
		}
		if err != nil {
			break
		}
	}
	for f.has("drains") {
		f.mu.Lock()
		busy := f.busy
		f.mu.Unlock()
		if !busy {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.mu.Lock() // nothing is written any more
	if f.stop != nil {
		f.stop()
		time.Sleep(100 * time.Millisecond) // the tools are killed
	}
	if f.has("exit-3") {
		return 3
	}
	return 0
}

func (f *fake) line(text string) {
	var cmd struct {
		Type, Content, Action, Pool string
		Events                      *[]string
		RequestID                   string `json:"request_id"`
		Final                       string `json:"final_args_json"`
		Reason                      string `json:"deny_reason"`
		Pattern                     string `json:"rule_pattern"`
		Scope                       string `json:"rule_scope"`
		Answers                     []string
		Cancelled                   bool
		Unknown                     any `json:"x_unknown"`
	}
	if text == "" && !f.has("empty-is-bad") {
		return
	}
	if len(text) > 1<<20 && !f.has("any-length") {
		f.put("error", object{"message": "too long", "code": "stdin_line_too_long"})
		return
	}
	if err := json.Unmarshal([]byte(text), &cmd); err != nil || text[0] != '{' {
		if f.has("bad-resets") {
			f.chosen = false
		}
		if !f.has("deaf-to-lists") || text[0] != '[' {
			f.refuse("invalid JSON command")
		}
		return
	}
	if f.has("strict") && cmd.Unknown != nil {
		f.refuse("unknown member")
	}
	switch cmd.Type {
	case "status":
		f.status()
	case "subscribe":
		f.subscribe(cmd.Events)
	case "models":
		switch {
		case cmd.Action == "" || cmd.Action == "status":
			f.put("models_response", object{"ok": true, "status": "pool: default"})
		case cmd.Action == "set_current_model_pool" && cmd.Pool != "" || f.has("models-ok"):
			f.put("models_response", object{"ok": true})
		default:
			f.put("models_response", object{"ok": false, "message": "unsupported models action: " + cmd.Action})
		}
	case "send":
		f.send(cmd.Content)
	case "cancel":
		if f.has("taints") {
			f.cancelled = true
		}
		if f.busy {
			f.late, f.cancelled = f.confirm, true
			if f.confirm, f.question = nil, nil; f.has("cancel-keeps") {
				f.confirm = f.late
			}
			f.stop()
		}
	case "confirm":
		p := f.confirm
		if p == nil || p.id != cmd.RequestID && !f.has("any-id") {
			return
		}
		scope := cmd.Scope
		if scope == "" && cmd.Pattern != "" {
			scope = "session"
		}
		switch {
		case f.has("bad-scope-allows"):
		case scope != "" && !slices.Contains([]string{"session", "project", "user_global"}, scope):
			f.refuse("invalid rule_scope \"" + scope + "\" (expected session|project|user_global)")
			return
		case scope != "" && cmd.Pattern == "":
			f.refuse("confirm rule intent requires non-empty rule_pattern")
			return
		}
		f.rule(scope, cmd.Pattern)
		if !f.has("pending-stays") {
			f.confirm = nil
		}
		p.answer <- object{"allow": cmd.Action == "allow" || f.has("deny-runs"), "reason": cmd.Reason, "final": cmd.Final}
	case "question":
		if p := f.question; p != nil && p.id == cmd.RequestID {
			f.question = nil
			if f.has("answers-sorted") {
				slices.Sort(cmd.Answers)
			}
			if f.has("cancel-ends") && cmd.Cancelled {
				f.stop()
			}
			p.answer <- object{"answers": strings.Join(cmd.Answers, ", "), "cancelled": cmd.Cancelled}
		}
	default:
		if f.has("other-words") {
			cmd.Type = "?"
		}
		f.refuse("unknown command type: " + cmd.Type)
	}
}

func (f *fake) rule(scope, pattern string) {
	if pattern == "" || f.has("no-rules") {
		return
	}
	word, _, _ := strings.Cut(pattern, " ")
	f.rules = append(f.rules, word)
	if scope == "session" && f.has("keeps-all") {
		scope = "project"
	}
	if scope != "session" && !f.has("keeps-none") {
		_ = os.WriteFile(f.kept(scope), []byte(word+"\n"), 0o600)
	}
}

func (f *fake) subscribe(events *[]string) {
	var list []string
	if events != nil {
		list = *events
	}
	known := slices.DeleteFunc(slices.Clone(list), func(name string) bool { return name == "bogus" || name == "notification" })
	f.chosen = !f.has("deliver-all")
	if len(list) == 0 && f.has("empty-is-all") || len(list) > 0 && len(known) == 0 && f.has("unknown-is-all") {
		f.chosen = false
	}
	if f.has("adds") {
		known = append(known, f.subscribed...)
	}
	f.subscribed = known
	f.put("subscribe_response", object{"events": list})
}

func (f *fake) status() {
	payload := object{"session_id": f.session, "busy": f.busy && !f.has("never-busy") || f.has("always-busy"), "phase": f.phase, "phase_detail": "",
		"pending_confirm": nil, "pending_question": nil, "pending_handoff": nil, "last_error": f.lastError, "last_outcome": f.outcome, "updated_at": "2026-01-01T00:00:00Z"}
	if f.confirm != nil && (!f.has("hides-pending") || slices.Contains(f.subscribed, "confirm_request")) {
		payload["pending_confirm"] = f.confirm.payload
	}
	if f.question != nil {
		payload["pending_question"] = f.question.payload
	}
	f.put("status_response", payload)
}

func (f *fake) send(text string) {
	word, rest, _ := strings.Cut(text, " ")
	local := word == "/export" || rest == "" && (word == "/resume" || word == "/mcp")
	if local && f.has("refused-dismisses") {
		f.dismiss()
	}
	if local && !f.has("local-to-model") {
		f.refuse("`" + word + "` is only available in local TUI mode")
		return
	}
	f.dismiss()
	if word == "/models" && !f.has("models-differ") || text == "/models status" {
		f.put("info", object{"agent_id": "", "message": "pool: default"})
		return
	}
	if word == "/models" {
		f.put("info", object{"agent_id": "", "message": "models"})
		return
	}
	f.queue = append(f.queue, text)
	if !f.busy {
		f.busy = true
		ctx, stop := context.WithCancel(context.Background())
		f.stop = stop
		go f.turn(ctx)
	}
}

// dismiss ends what is pending.
func (f *fake) dismiss() {
	if p := f.confirm; p != nil && !f.has("confirm-waits") {
		f.confirm = nil
		p.answer <- object{"allow": f.has("send-allows"), "reason": "", "final": ""}
	}
	if p := f.question; p != nil && !f.has("question-waits") {
		f.question = nil
		p.answer <- object{"answers": "", "cancelled": true}
	}
}
