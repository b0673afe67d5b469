package shape

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// Event checks a message from a server of a profile. A type that is not of the
// protocol is a problem too.
func Event(v any, p contracts.Profile) []Problem {
	c := &checker{published: p == contracts.ProfilePublic}
	c.event(v, "")
	return c.problems
}

// Frame checks a frame of a networked transport from a server of a profile: an
// envelope, with the message or snapshot in it, or a ws.* control frame.
func Frame(v any, p contracts.Profile) []Problem {
	c := &checker{published: p == contracts.ProfilePublic}
	name, t := typed(v, frames)
	if t == nil {
		c.add("/type", "Expected known frame type")
		return c.problems
	}
	c.object(v, t, "", name)
	if name == "message" {
		c.event(v.(map[string]any)["message"], "/message")
	}
	return c.problems
}

// Command checks a message from a client and returns it. With open set, it
// tolerates additions as D13 rules. The command is nil exactly when there are
// problems, or when known is false because no message has such a type.
func Command(v any, open bool) (cmd contracts.Command, problems []Problem, known bool) {
	c := &checker{open: open}
	name, t := typed(v, commands)
	if t == nil {
		return nil, nil, false
	}
	c.object(v, t, "", name)
	if len(c.problems) > 0 {
		return nil, c.problems, true
	}
	cmd = reflect.New(t).Interface().(contracts.Command)
	if err := fill(cmd, v.(map[string]any), t); err != nil {
		return nil, []Problem{{Text: err.Error()}}, true
	}
	return cmd, nil, true
}

// fill decodes the keys of t alone: encoding/json would also take keys that
// differ in case.
func fill(cmd contracts.Command, m map[string]any, t reflect.Type) error {
	exact := map[string]any{}
	for i := range t.NumField() {
		name := keyOf(t.Field(i))
		if v, ok := m[name]; ok {
			exact[name] = v
		}
	}
	text, err := json.Marshal(exact)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, cmd)
}

// keyOf returns the wire name of a field.
func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func (c *checker) event(v any, pointer string) {
	name, t := typed(v, events)
	if t == nil {
		c.add(pointer+"/type", "Expected known message type")
		return
	}
	c.object(v, t, pointer, name)
}

func (c *checker) snapshot(v any, pointer string) {
	if c.open && c.closes {
		c.open = false
		defer func() { c.open = true }()
	}
	c.check(v, snapshotType, pointer)
	m, _ := v.(map[string]any)
	last, present := m["last_init"]
	if !present || last == nil {
		return
	}
	if name, t := typed(last, commands); name != "init" {
		c.add(pointer+"/last_init", "Expected init message or null")
	} else {
		c.object(last, t, pointer+"/last_init", name)
	}
}

// typed returns the value's type key and the shape it names, or nil.
func typed(v any, shapes map[string]reflect.Type) (string, reflect.Type) {
	m, _ := v.(map[string]any)
	name, _ := m["type"].(string)
	return name, shapes[name]
}

// The shapes by type key.
var (
	events = index[contracts.Event](contracts.Event.EventType,
		&contracts.HelloOK{}, &contracts.Ready{}, &contracts.ResponseStart{}, &contracts.ResponseChunk{},
		&contracts.ResponseEnd{}, &contracts.ToolCall{}, &contracts.ToolStart{}, &contracts.ToolOutput{},
		&contracts.ToolEnd{}, &contracts.ClientToolRequest{}, &contracts.ServerRequest{},
		&contracts.ServerRequestResolved{}, &contracts.RawAgentEvent{}, &contracts.UtilityCommandStarted{},
		&contracts.UtilityCommandResized{}, &contracts.UtilityCommandOutput{}, &contracts.UtilityCommandExited{},
		&contracts.UtilityFileSearchResults{}, &contracts.UtilityFileReadResult{},
		&contracts.UtilityFileWatchStarted{}, &contracts.UtilityFileWatchEvent{},
		&contracts.UtilityFileWatchStopped{}, &contracts.ErrorEvent{}, &contracts.Status{},
		&contracts.Compaction{}, &contracts.SessionInfo{}, &contracts.ConnectionInfo{})

	commands = index[contracts.Command](contracts.Command.CommandType,
		&contracts.Hello{}, &contracts.Init{}, &contracts.Prompt{}, &contracts.Interrupt{},
		&contracts.ToolResponse{}, &contracts.ClientToolResult{}, &contracts.ServerRequestResponse{},
		&contracts.UtilityCommandStart{}, &contracts.UtilityCommandTerminate{}, &contracts.UtilityCommandStdin{},
		&contracts.UtilityCommandResize{}, &contracts.UtilityFileSearch{}, &contracts.UtilityFileRead{},
		&contracts.UtilityFileWatchStart{}, &contracts.UtilityFileWatchStop{}, &contracts.Cancel{},
		&contracts.Shutdown{})

	frames = index[contracts.Frame](contracts.Frame.FrameType,
		&contracts.MessageEnvelope{}, &contracts.SnapshotEnvelope{}, &contracts.HeartbeatEnvelope{},
		&contracts.ResetEnvelope{}, &contracts.Attached{}, &contracts.Result{}, &contracts.Refusal{},
		&contracts.LeaseChange{}, &contracts.ControlRequest{}, &contracts.Pong{}, &contracts.Goodbye{})
)

func index[T any](name func(T) string, values ...T) map[string]reflect.Type {
	m := make(map[string]reflect.Type, len(values))
	for _, v := range values {
		m[name(v)] = reflect.TypeOf(v).Elem()
	}
	return m
}

// vocabulary holds the closed sets. Codes are left open: a server may have
// reasons of its own.
var vocabulary = map[reflect.Type][]string{
	reflect.TypeFor[contracts.Role]():             {"viewer", "controller"},
	reflect.TypeFor[contracts.RequestType]():      {"approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry"},
	reflect.TypeFor[contracts.Verdict]():          {"approved", "denied", "completed", "failed", "answered", "retried", "skipped", "aborted", "cancelled"},
	reflect.TypeFor[contracts.Resolver]():         {"user", "policy", "client", "runtime"},
	reflect.TypeFor[contracts.RetryAction]():      {"retry", "skip", "abort"},
	reflect.TypeFor[contracts.Notification]():     {"status", "heartbeat", "connection_info", "compaction"},
	reflect.TypeFor[contracts.ThinkingLevel]():    {"off", "minimal", "low", "medium", "high", "ultra"},
	reflect.TypeFor[contracts.ApprovalMode]():     {"auto", "prompt", "fail"},
	reflect.TypeFor[contracts.ErrorType]():        {"transient", "fatal", "tool", "cancelled", "protocol"},
	reflect.TypeFor[contracts.UtilityOperation](): {"command_exec", "file_search", "file_watch", "file_read"},
	reflect.TypeFor[contracts.Stream]():           {"stdout", "stderr"},
	reflect.TypeFor[contracts.ShellMode]():        {"shell", "direct"},
	reflect.TypeFor[contracts.TerminalMode]():     {"pipe", "pty"},
	reflect.TypeFor[contracts.FileChange]():       {"create", "modify", "delete", "rename"},
	reflect.TypeFor[contracts.ExecutorType]():     {"live", "replay"},
	reflect.TypeFor[contracts.ResetReason]():      {"lagged", "replay_gap", "restored_from_snapshot"},
	reflect.TypeFor[contracts.LeaseReason]():      {"granted", "taken_over", "expired", "released", "draining", "denied"},
}
