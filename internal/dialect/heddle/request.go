package heddle

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"unicode/utf8"
)

// A refusal is an error in the words of the protocol.
type refusal string

func (r refusal) Error() string { return string(r) }

// An object is a JSON object. Its keys are compared exactly, which decoding into a
// struct would not do.
type object map[string]json.RawMessage

// member reads a member into a pointer. It leaves what the pointer points to as it is
// if the member is absent or null.
func (o object) member(path, name string, into any) error {
	if text, ok := o[name]; ok && json.Unmarshal(text, into) != nil {
		return refusal("Invalid '" + path + name + "' field")
	}
	return nil
}

func missing(field string) error { return refusal("Missing '" + field + "' field") }

// decode reads a request. The request has the id of the line, or [UnknownID], also if
// there is an error.
func decode(text []byte) (*Request, error) {
	req := &Request{ID: UnknownID}
	if !utf8.Valid(text) || !json.Valid(text) {
		return req, refusal("Invalid JSON")
	}
	var o object
	if json.Unmarshal(text, &o) != nil || o == nil {
		return req, refusal("Expected JSON object")
	}
	var id string
	if o.member("", "id", &id) == nil && id != "" {
		req.ID = id
	}
	switch {
	case o.member("", "type", &req.Type) != nil || req.Type == "":
		return req, missing("type")
	case req.ID != id:
		return req, missing("id")
	}
	switch req.Type {
	case TypeInit:
		return req, o.decodeInit(req)
	case TypeSend:
		return req, o.required("message", &req.Message)
	case TypeCancel:
		return req, o.required("target_id", &req.TargetID)
	case TypeStatus, TypeShutdown:
		return req, nil
	}
	return req, refusal("Unknown request type '" + req.Type + "'")
}

func (o object) required(name string, into **string) error {
	if err := o.member("", name, into); err != nil {
		return err
	}
	if *into == nil {
		return missing(name)
	}
	return nil
}

func (o object) decodeInit(req *Request) error {
	var config object
	if err := cmp.Or(o.member("", "protocol_version", &req.ProtocolVersion), o.member("", "config", &config)); err != nil {
		return err
	}
	if config == nil {
		return missing("config")
	}
	c := &Config{}
	req.Config = c
	for _, m := range []struct {
		name string
		into any
	}{
		{"model", &c.Model}, {"system_prompt", &c.SystemPrompt}, {"tools", &c.Tools}, {"max_iterations", &c.MaxIterations},
		{"task_id", &c.TaskID}, {"worker_id", &c.WorkerID}, {"runtime", &c.Runtime}, {"routing", &c.Routing}, {"extensions", &c.Extensions},
	} {
		if err := config.member("config.", m.name, m.into); err != nil {
			return err
		}
	}
	switch {
	case c.Model == nil || *c.Model == "":
		return missing("config.model")
	case c.SystemPrompt == nil:
		return missing("config.system_prompt")
	case c.Tools == nil:
		return missing("config.tools")
	case c.MaxIterations != nil && *c.MaxIterations < 1:
		return refusal("'config.max_iterations' must be at least 1")
	}
	return c.Runtime.check()
}

// check returns an error for a runtime that no server can provide.
func (r *Runtime) check() error {
	switch {
	case r == nil:
		return nil
	case r.Mode != "" && r.Mode != ModeDefault && r.Mode != ModeIsolated:
		return refusal("'config.runtime.mode' must be default or isolated")
	case r.Mode == ModeIsolated && r.StateRoot == "":
		return missing("config.runtime.state_root")
	case r.StateRoot != "" && !filepath.IsAbs(r.StateRoot):
		return refusal("'config.runtime.state_root' must be an absolute path")
	case r.TranscriptPath != "" && !filepath.IsAbs(r.TranscriptPath):
		return refusal("'config.runtime.transcript_path' must be an absolute path")
	}
	return nil
}
