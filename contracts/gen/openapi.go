package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

// A route is one method of an HTTP path, for the description of the API.
type route struct {
	method, path string // the path below prefix
	summary      string
	query        string // names of optional parameters
	body, answer string // definitions of the schema; an answer "events X" is server-sent events of X
}

// prefix begins the paths of all routes of the table that do not begin with a slash.
const prefix = "/api/headless/"

// routes are the routes of maestro serve without WebSockets, other protocols and the page.
var routes = []route{
	{"post", "connections", "Creates a connection, or renews the named one", "", "AttachRequest", "ConnectionAnswer"},
	{"post", "sessions", "Creates a session with a connection, or finds the session", "", "AttachRequest", "Snapshot"},
	{"get", "sessions", "Lists the sessions that the caller may reach", "", "", "SessionList"},
	{"get", "overview", "Lists the sessions in pages, those that need somebody first", "status q archived limit after", "", "Overview"},
	{"get", "overview/events", "Streams the list of sessions and its changes", "limit", "", "events OverviewEvent"},
	{"get", "inbox", "Lists the open questions of all sessions", "", "", "Inbox"},
	{"get", "inbox/events", "Streams the list of questions and its changes", "", "", "events InboxEvent"},
	{"get", "inbox/deliveries", "Shows what was sent to the receivers of notifications", "", "", "DeliveryList"},
	{"get", "inbox/push", "Shows the key for Web Push and the registered browsers", "", "", "PushAnswer"},
	{"post", "inbox/push", "Registers a browser for Web Push, or tests the registration", "", "PushRequest", "SuccessAnswer"},
	{"delete", "inbox/push", "Ends the registration of a browser", "", "PushRequest", "SuccessAnswer"},
	{"post", "inbox/{id}/{request}", "Answers a question without a connection", "", "InboxAnswer", "InboxReceipt"},
	{"patch", "sessions/{id}", "Sets the title of a session, or whether it is archived", "", "SessionUpdate", "SessionSummary"},
	{"delete", "sessions/{id}", "Deletes a session", "", "", "SessionSummary"},
	{"post", "sessions/{id}/restore", "Undoes the deletion of a session", "", "", "SessionSummary"},
	{"get", "sessions/{id}", "Returns the state, now or as of a cursor", "at", "", "Snapshot"},
	{"get", "sessions/{id}/state", "Returns the state, now or as of a cursor", "at", "", "Snapshot"},
	{"post", "sessions/{id}/subscribe", "Creates a subscription, and a connection unless one is named", "", "AttachRequest", "SubscriptionAnswer"},
	{"post", "sessions/{id}/unsubscribe", "Ends a subscription; with the last one, the connection", "", "SubscriptionRequest", "SuccessAnswer"},
	{"get", "sessions/{id}/events", "Streams the events of a session", "subscriptionId cursor epoch turns optOutNotifications", "", "events ServerFrame"},
	{"get", "sessions/{id}/history", "Returns a page of the history", "before limit bytes turns full pieces", "", "HistoryPage"},
	{"get", "sessions/{id}/turns", "Returns a page of the turns", "before limit bytes", "", "HistoryPage"},
	{"get", "sessions/{id}/search", "Searches the history", "q before limit bytes", "", "HistoryPage"},
	{"get", "sessions/{id}/connections", "Lists who is connected", "", "", "ConnectionList"},
	{"get", "sessions/{id}/offer", "Returns the commands and the mode of the agent", "", "", "AgentOffer"},
	{"post", "sessions/{id}/messages", "Sends one command", "", "Command", "MessageAnswer"},
	{"post", "sessions/{id}/heartbeat", "Keeps the connection alive", "", "SubscriptionRequest", "HeartbeatAnswer"},
	{"post", "sessions/{id}/disconnect", "Ends the connection", "", "SubscriptionRequest", "DisconnectAnswer"},
	{"get", "whoami", "Says whose credential the request has, and what it allows", "", "", "WhoAmI"},
	{"post", "ws-tickets", "Creates a ticket for one request, or for one login", "", "TicketRequest", "TicketAnswer"},
	{"post", "sessions/{id}/shares", "Creates a link to the session", "", "ShareRequest", "ShareAnswer"},
	{"get", "sessions/{id}/shares", "Lists the links to the session", "", "", "ShareList"},
	{"delete", "sessions/{id}/shares/{share_id}", "Revokes a link", "", "", "SuccessAnswer"},
}

// sockets are the WebSockets, for the description of the messages.
var sockets = []struct{ name, path, summary, send, receive string }{
	{"session", prefix + "ws", "A session: commands in, events out", "ClientFrame", "ServerFrame"},
	{"lists", prefix + "lists/ws", "The list of sessions and the inbox", "ClientFrame", "ServerFrame"},
}

type object map[string]any

// openSchema returns the schema for clients, which tolerates what a newer server adds:
// other properties of every object, and messages of unknown types.
func openSchema(schema *jsonschema.Schema) (object, error) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	open := object{}
	if err := json.Unmarshal(text, &open); err != nil {
		return nil, err
	}
	openUp(map[string]any(open))
	open["description"] = "What a client must tolerate: other properties of every object, and messages of unknown types. Refer to one of the definitions."
	defs := open["$defs"].(map[string]any)
	for _, f := range families {
		if f.name != "Event" && f.name != "ServerFrame" {
			continue
		}
		var known []any
		for _, t := range contracts.Types() {
			if slices.Contains(f.groups, t.Group) {
				known = append(known, t.Wire)
			}
		}
		union := defs[f.name].(map[string]any)
		union["oneOf"] = append(union["oneOf"].([]any), object{
			"type": "object", "required": []string{"type"},
			"properties": object{"type": object{"type": "string", "not": object{"enum": known}}},
		})
	}
	return open, nil
}

// openUp removes additionalProperties: false from a schema and all schemas in it.
func openUp(value any) {
	switch v := value.(type) {
	case map[string]any:
		if v["additionalProperties"] == false {
			delete(v, "additionalProperties")
		}
		for _, inner := range v {
			openUp(inner)
		}
	case []any:
		for _, inner := range v {
			openUp(inner)
		}
	}
}

// components returns the definitions of an open schema with references to
// #/components/schemas.
func components(open object) (object, error) {
	text, err := json.Marshal(open["$defs"])
	if err != nil {
		return nil, err
	}
	defs := object{}
	return defs, json.Unmarshal([]byte(strings.ReplaceAll(string(text), `"#/$defs/`, `"#/components/schemas/`)), &defs)
}

func component(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// operationID returns a name for the operation in generated clients, such as
// getSessionsIdEvents.
func operationID(r route) string {
	id := r.method
	for _, word := range strings.FieldsFunc(r.path, func(c rune) bool { return strings.ContainsRune("/{}-_", c) }) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// openAPI describes the HTTP routes in the form of OpenAPI 3.1.
func openAPI(open object) ([]byte, error) {
	schemas, err := components(open)
	if err != nil {
		return nil, err
	}
	paths := map[string]object{}
	for _, r := range routes {
		path := prefix + r.path
		operation := object{"summary": r.summary, "operationId": operationID(r)}
		var parameters []object
		for _, name := range parameter.FindAllStringSubmatch(path, -1) {
			parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for _, name := range strings.Fields(r.query) {
			parameters = append(parameters, object{"name": name, "in": "query", "schema": object{"type": "string"}})
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if r.body != "" {
			operation["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": component(r.body)}}}
		}
		content, what := object{"application/json": object{"schema": component(r.answer)}}, "Done"
		if event, stream := strings.CutPrefix(r.answer, "events "); stream {
			content, what = object{"text/event-stream": object{"schema": object{"type": "string"}}}, "Server-sent events; the data of each is a "+event
		}
		operation["responses"] = object{
			"200":     object{"description": what, "content": content},
			"default": object{"description": "The request is refused", "content": object{"application/json": object{"schema": component("HTTPRefusal")}}},
		}
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][r.method] = operation
	}
	schemas["HTTPRefusal"] = object{
		"type": "object", "description": "The body of a refusal.", "required": []string{"error", "error_type", "code", "retryable", "details"},
		"properties": object{
			"error": object{"type": "string"}, "error_type": component("Code"), "code": component("Code"), "retryable": object{"type": "boolean"},
			"details": object{"type": "array", "items": component("ErrorDetail")},
		},
	}
	return document(object{
		"openapi":  "3.1.0",
		"info":     object{"title": "Maestro headless protocol over HTTP", "version": contracts.ProtocolVersion, "description": notice},
		"security": []object{{"bearer": []string{}}, {"key": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas": schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer"},
				"key":    object{"type": "apiKey", "in": "header", "name": "X-Maestro-Api-Key"},
			},
		},
	})
}

// asyncAPI describes the WebSockets and streams in the form of AsyncAPI 3.0.
func asyncAPI(open object) ([]byte, error) {
	schemas, err := components(open)
	if err != nil {
		return nil, err
	}
	channels, operations, messages := object{}, object{}, object{}
	add := func(channel, action, family string) {
		messages[family] = object{"name": family, "contentType": "application/json", "payload": component(family)}
		of := channels[channel].(object)["messages"].(object)
		of[family] = object{"$ref": "#/components/messages/" + family}
		operations[action+" "+channel] = object{
			"action": action, "channel": object{"$ref": "#/channels/" + channel},
			"messages": []object{{"$ref": "#/channels/" + channel + "/messages/" + family}},
		}
	}
	for _, s := range sockets {
		channels[s.name] = object{"address": s.path, "description": s.summary, "messages": object{}, "bindings": object{"ws": object{"method": "GET"}}}
		add(s.name, "receive", s.send) // the server receives what the client sends
		add(s.name, "send", s.receive)
	}
	for _, r := range routes {
		event, stream := strings.CutPrefix(r.answer, "events ")
		if !stream {
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(event, "Event")) + "-events"
		channel := object{"address": prefix + r.path, "description": r.summary + ", as server-sent events", "messages": object{}}
		if slices.Contains(parameter.FindStringSubmatch(r.path), "id") {
			channel["parameters"] = object{"id": object{"description": "id of the session"}}
		}
		channels[name] = channel
		add(name, "send", event)
	}
	return document(object{
		"asyncapi":           "3.0.0",
		"info":               object{"title": "Maestro headless protocol " + contracts.ProtocolVersion, "version": contracts.ProtocolVersion, "description": notice},
		"defaultContentType": "application/json",
		"channels":           channels, "operations": operations,
		"components": object{"schemas": schemas, "messages": messages},
	})
}

func document(root object) ([]byte, error) {
	text, err := json.MarshalIndent(root, "", " ")
	return append(text, '\n'), err
}
