package ws

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// protocolFamily is the prefix of the subprotocols of all versions of this
// protocol.
const protocolFamily = "maestro-headless."

// checkUpgrade refuses a request that is not a WebSocket handshake for this
// protocol. It sets the answer's headers that say what is required.
func checkUpgrade(answer http.Header, r *http.Request) *contracts.Error {
	if r.Method != http.MethodGet {
		answer.Set("Allow", http.MethodGet)
		return &contracts.Error{Code: contracts.CodeMethodNotAllowed, Message: "method not allowed"}
	}
	if !r.ProtoAtLeast(1, 1) || !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket") {
		answer.Set("Connection", "Upgrade")
		answer.Set("Upgrade", "websocket")
		return &contracts.Error{Code: contracts.CodeUpgradeRequired, Message: "a WebSocket upgrade is required"}
	}
	if r.Header.Get("Sec-WebSocket-Version") != "13" {
		answer.Set("Sec-WebSocket-Version", "13")
		return &contracts.Error{Code: contracts.CodeUpgradeRequired, Message: "WebSocket version 13 is required"}
	}
	keys := r.Header.Values("Sec-WebSocket-Key")
	if len(keys) != 1 || !validKey(keys[0]) {
		return badRequest("malformed Sec-WebSocket-Key")
	}
	return checkProtocol(answer, r.Header)
}

func validKey(key string) bool {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
	return err == nil && len(b) == 16
}

// checkProtocol requires our subprotocol among those offered. If another
// version of it is offered, the refusal names ours.
func checkProtocol(answer, h http.Header) *contracts.Error {
	otherVersion := false
	for offer := range tokens(h, "Sec-WebSocket-Protocol") {
		if offer == contracts.Subprotocol {
			return nil
		}
		otherVersion = otherVersion || strings.HasPrefix(offer, protocolFamily)
	}
	if otherVersion {
		answer.Set("Sec-WebSocket-Protocol", contracts.Subprotocol)
		return &contracts.Error{Code: contracts.CodeUpgradeRequired, Message: "protocol version not supported; use " + contracts.Subprotocol}
	}
	return badRequest("the WebSocket subprotocol " + contracts.Subprotocol + " must be offered")
}

// hasToken reports whether a header lists token, which is lower case.
func hasToken(h http.Header, name, token string) bool {
	for t := range tokens(h, name) {
		if strings.EqualFold(t, token) {
			return true
		}
	}
	return false
}

// tokens yields the members of a comma-separated header.
func tokens(h http.Header, name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, line := range h.Values(name) {
			for t := range strings.SplitSeq(line, ",") {
				if t = strings.Trim(t, " \t"); t != "" && !yield(t) {
					return
				}
			}
		}
	}
}

// parseAttach reads the attachment from the session id in the path, empty if
// the route has none, and the raw query. Unknown parameters are ignored (D13);
// known ones may appear once. The caller fills in the principal.
func parseAttach(pathID, rawQuery string) (contracts.Attach, *contracts.Error) {
	var att contracts.Attach
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return att, badRequest("malformed query")
	}
	q := query{values: values}
	att.SessionID = q.id("sessionId")
	att.ConnectionID = q.id("connectionId")
	att.Epoch = q.id("epoch")
	att.Role = contracts.Role(q.oneOf("role", "", string(contracts.RoleViewer), string(contracts.RoleController)))
	att.Takeover = contracts.Takeover(q.oneOf("takeControl", "0", string(contracts.TakeoverForce), string(contracts.TakeoverLater)))
	att.Create = q.oneOf("create", "0", "1") == "1"
	att.Cursor = q.number("cursor")
	q.get("ticket") // Authorize reads it; here it only must not appear twice
	if pathID != "" {
		if !contracts.ValidID(pathID) || att.SessionID != "" && att.SessionID != pathID {
			q.bad("session id")
		}
		att.SessionID = strings.Clone(pathID) // as in get
	}
	if q.err != nil {
		return contracts.Attach{}, q.err
	}
	return att, nil
}

// A query reads parameters and keeps the error of the first malformed one.
type query struct {
	values url.Values
	err    *contracts.Error
}

func (q *query) bad(name string) {
	if q.err == nil {
		q.err = badRequest("malformed " + name) // without the value, which may be a secret
	}
}

func (q *query) get(name string) (value string, ok bool) {
	all := q.values[name]
	if len(all) > 1 {
		q.bad(name)
	}
	if len(all) == 0 {
		return "", false
	}
	return strings.Clone(all[0]), true // a copy, so that the request can be freed
}

func (q *query) id(name string) string {
	value, ok := q.get(name)
	if ok && !contracts.ValidID(value) {
		q.bad(name)
	}
	return value
}

// oneOf returns a parameter that must be one of legal. A missing parameter, or
// the value absent, returns "".
func (q *query) oneOf(name, absent string, legal ...string) string {
	value, ok := q.get(name)
	if !ok || absent != "" && value == absent {
		return ""
	}
	for _, l := range legal {
		if value == l {
			return value
		}
	}
	q.bad(name)
	return ""
}

func (q *query) number(name string) *int64 {
	value, ok := q.get(name)
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		q.bad(name)
		return nil
	}
	return &n
}

func badRequest(text string) *contracts.Error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: text}
}
