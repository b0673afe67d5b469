package ws

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// protocolFamily is the prefix of the subprotocols of all versions of this
// protocol.
const protocolFamily = "maestro-headless."

// checkUpgrade refuses a request that is not a WebSocket handshake for this
// protocol and version, or if foreign is set for any protocol. It sets the answer's
// headers that say what is required.
func checkUpgrade(answer http.Header, r *http.Request, foreign bool) *contracts.Error {
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
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	if len(r.Header.Values("Sec-WebSocket-Key")) != 1 || err != nil || len(key) != 16 {
		return badRequest("malformed Sec-WebSocket-Key")
	}
	offers := tokens(r.Header, "Sec-WebSocket-Protocol")
	otherVersion := func(offer string) bool { return strings.HasPrefix(offer, protocolFamily) }
	switch {
	case foreign, slices.Contains(offers, contracts.Subprotocol):
		return nil
	case slices.ContainsFunc(offers, otherVersion):
		answer.Set("Sec-WebSocket-Protocol", contracts.Subprotocol)
		return &contracts.Error{Code: contracts.CodeUpgradeRequired, Message: "protocol version not supported; use " + contracts.Subprotocol}
	}
	return badRequest("the WebSocket subprotocol " + contracts.Subprotocol + " must be offered")
}

// hasToken reports whether a header lists token, in any case.
func hasToken(h http.Header, name, token string) bool {
	return slices.ContainsFunc(tokens(h, name), func(t string) bool { return strings.EqualFold(t, token) })
}

// tokens returns the members of a comma-separated header.
func tokens(h http.Header, name string) []string {
	list := strings.Split(strings.Join(h.Values(name), ","), ",")
	for i := range list {
		list[i] = strings.Trim(list[i], " \t")
	}
	return list
}

// parseAttach reads the attachment from the session id in the path, empty if
// the route has none, and the raw query. Unknown parameters are ignored (D13);
// known ones may appear once. The caller fills in the principal.
func parseAttach(pathID, rawQuery string) (att contracts.Attach, refusal *contracts.Error) {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return att, badRequest("malformed query")
	}
	bad := func(name string) {
		if refusal == nil {
			refusal = badRequest("malformed " + name) // without the value, which may be a secret
		}
	}
	get := func(name string, legal func(string) bool) string {
		all := values[name]
		if len(all) > 1 || len(all) == 1 && !legal(all[0]) {
			bad(name)
		}
		return strings.Clone(values.Get(name)) // a copy, so that the request can be freed
	}
	oneOf := func(name string, legal ...string) string {
		return get(name, func(value string) bool { return slices.Contains(legal, value) })
	}
	att.SessionID = get("sessionId", contracts.ValidID)
	att.ConnectionID = get("connectionId", contracts.ValidID)
	att.Epoch = get("epoch", contracts.ValidID)
	att.Role = contracts.Role(oneOf("role", string(contracts.RoleViewer), string(contracts.RoleApprover), string(contracts.RoleController)))
	if take := oneOf("takeControl", "0", string(contracts.TakeoverForce), string(contracts.TakeoverLater)); take != "0" {
		att.Takeover = contracts.Takeover(take)
	}
	att.Create = oneOf("create", "0", "1") == "1"
	get("cursor", func(value string) bool {
		n, err := strconv.ParseInt(value, 10, 64)
		att.Cursor = &n
		return err == nil
	})
	get("turns", func(value string) bool {
		n, err := strconv.Atoi(value)
		att.Turns = n
		return err == nil && n >= 1 && n <= contracts.MaxHistoryTurns
	})
	get("ticket", func(string) bool { return true }) // Authorize reads it; here it only must not appear twice
	if pathID != "" {
		if !contracts.ValidID(pathID) || att.SessionID != "" && att.SessionID != pathID {
			bad("session id")
		}
		att.SessionID = strings.Clone(pathID) // as in get
	}
	if refusal != nil {
		return contracts.Attach{}, refusal
	}
	return att, nil
}

func badRequest(text string) *contracts.Error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: text}
}
