package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxAnswer bounds a response.
const maxAnswer = 16 << 20

// An object is a JSON object with numbers as json.Number.
type object map[string]any

// at returns a value by its path of keys, or nil.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// str returns a string by its path, or "".
func (o object) str(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// number returns an integer by its path, or -1.
func (o object) number(path ...string) int64 {
	n, ok := o.at(path...).(json.Number)
	i, err := n.Int64()
	if !ok || err != nil {
		return -1
	}
	return i
}

// items returns the objects of an array by its path.
func (o object) items(path ...string) []object {
	list, _ := o.at(path...).([]any)
	var items []object
	for _, v := range list {
		m, _ := v.(map[string]any)
		items = append(items, m)
	}
	return items
}

// parse reads one JSON object.
func parse(text []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF || o == nil {
		return nil, fmt.Errorf("want one JSON object and nothing else")
	}
	return o, nil
}

// An answer is a whole response.
type answer struct {
	what   string // the request, for failures
	status int
	body   object
}

// reason is the text that a refusal is known by.
func (a *answer) reason() string {
	if text := a.body.str("error"); text != "" {
		return text
	}
	return a.body.str("message")
}

// A pair is a request header.
type pair struct{ name, value string }

// call makes a request. Whatever the status, the response must be JSON.
func (s *stage) call(method, path string, body any, headers ...pair) *answer {
	what := method + " " + path
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			s.fail("%s: %w", what, err)
		}
	}
	req, err := http.NewRequestWithContext(s.ctx, method, s.base+path, bytes.NewReader(text))
	if err != nil {
		s.fail("%s: %w", what, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		req.Header.Set(h.name, h.value)
	}
	s.trace.add("> %s %s", what, text)
	resp, err := s.client.Do(req)
	if err != nil {
		s.fail("%s: %w", what, err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	s.trace.add("< %d %s", resp.StatusCode, got)
	if err != nil {
		s.fail("%s: read the response: %w", what, err)
	}
	o, err := parse(got)
	if err != nil {
		s.fail("%s: %d with a body that is no JSON object: %w", what, resp.StatusCode, err)
	}
	return &answer{what: what, status: resp.StatusCode, body: o}
}

// ok fails unless the answer is a success.
func (s *stage) ok(a *answer) *answer {
	s.want(a.status == http.StatusOK, "%s: got status %d (%s), want 200", a.what, a.status, a.reason())
	return a
}

// refused fails unless the answer is a refusal for the reason given: a status,
// and words of the text.
func (s *stage) refused(a *answer, status int, words string) {
	s.want(a.status == status && strings.Contains(strings.ToLower(a.reason()), strings.ToLower(words)),
		"%s: got status %d (%q), want it refused with %d and %q", a.what, a.status, a.reason(), status, words)
}

// valid fails unless a value is of a schema.
func (s *stage) valid(what string, check schema, o object) {
	if problems := check(map[string]any(o), ""); problems != nil {
		s.fail("%s departs from its schema: %s", what, strings.Join(problems, "; "))
	}
}

// route is a path of the session.
func route(name string) string { return "/api/headless/sessions/" + sessionID + "/" + name }

// state fetches the runtime's snapshot.
func (s *stage) state() object {
	a := s.ok(s.call(http.MethodGet, route("state"), nil))
	s.valid("the state", snapshot, a.body)
	return a.body
}

// A member is a subscription and its connection.
type member struct{ connection, subscription string }

// trySubscribe asks for a subscription, with a connection of its own.
func (s *stage) trySubscribe(role string, takeControl bool) *answer {
	return s.call(http.MethodPost, route("subscribe"), object{
		"protocolVersion": protocolVersion,
		"clientInfo":      object{"name": "maestro-rust-conformance", "version": "0.1.0"},
		"capabilities": object{
			"serverRequests":    []string{"approval", "client_tool", "tool_retry"},
			"utilityOperations": []string{"command_exec", "file_search", "file_watch", "file_read"},
			"rawAgentEvents":    true,
		},
		"role": role, "takeControl": takeControl,
	})
}

// subscribe expects to get a subscription, and returns what was said of it.
func (s *stage) subscribe(role string, takeControl bool) (member, object) {
	a := s.ok(s.trySubscribe(role, takeControl))
	s.valid("the subscription", subscription, a.body)
	m := member{a.body.str("connection_id"), a.body.str("subscription_id")}
	granted := role == "controller"
	s.want(a.body.str("role") == role && a.body.at("controller_lease_granted") == granted,
		"got role %q with lease %v, want %s with %v", a.body.str("role"), a.body.at("controller_lease_granted"), role, granted)
	if granted {
		s.want(a.body.str("controller_connection_id") == m.connection && a.body.str("controller_subscription_id") == m.subscription,
			"got controller %q, %q, want the new one: %v", a.body.str("controller_connection_id"), a.body.str("controller_subscription_id"), m)
	}
	return m, a.body
}

// try sends a message.
func (s *stage) try(m member, message object) *answer {
	return s.call(http.MethodPost, route("messages"), message,
		pair{"x-maestro-headless-connection-id", m.connection}, pair{"x-maestro-headless-subscriber-id", m.subscription})
}

// send expects a message to be accepted, and returns the snapshot in the answer.
func (s *stage) send(m member, message object) object {
	a := s.ok(s.try(m, message))
	shown, _ := a.body.at("snapshot").(map[string]any)
	s.want(shown != nil, "%s: got no snapshot in the answer", a.what)
	s.valid("the snapshot in the answer", snapshot, shown)
	return shown
}

func prompt(content string) object { return object{"type": "prompt", "content": content} }

// beat sends a heartbeat.
func (s *stage) beat(m member) object {
	a := s.ok(s.call(http.MethodPost, route("heartbeat"), object{"connectionId": m.connection, "subscriptionId": m.subscription}))
	s.valid("the heartbeat", heartbeat, a.body)
	s.want(a.body.str("connection_id") == m.connection, "got the heartbeat of %q, want that of %q", a.body.str("connection_id"), m.connection)
	return a.body
}
