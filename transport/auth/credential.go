package auth

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// maxCredential is the longest accepted credential, in bytes.
const maxCredential = 8 << 10

// bearerProtocol is the prefix of an offered subprotocol that is a credential.
// Browsers cannot set headers on a WebSocket.
const bearerProtocol = "maestro-headless-bearer."

// The refusals of credentials. A text gives the reason only where the rightful
// holder alone can get it.
var (
	errMissing = unauthenticated("a credential is required")
	errWrong   = unauthenticated("invalid credential")
	errExpired = unauthenticated("the credential has expired")
)

// headerKey returns the key in the request's headers, or "". It refuses headers
// that contradict each other.
func headerKey(h http.Header) (string, error) {
	key, err := bearerKey(h)
	if key != "" || err != nil {
		return key, err
	}
	for _, name := range []string{"X-Maestro-Api-Key", "X-Composer-Api-Key", "X-Evalops-Api-Key"} {
		for _, value := range h.Values(name) {
			if key != "" && value != "" && value != key {
				return "", badRequest("the API key headers contradict each other")
			}
			if value != "" {
				key = value
			}
		}
	}
	return key, nil
}

// bearerKey returns the key of an Authorization header with the scheme Bearer, or
// "". It ignores other schemes, which may be for a proxy.
func bearerKey(h http.Header) (string, error) {
	if len(h.Values("Authorization")) > 1 {
		return "", badRequest("more than one Authorization header")
	}
	scheme, key, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", nil
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", errMissing
	}
	return key, nil
}

// queryTicket returns the ticket in the query of a GET, or "". A ticket does
// not authenticate a POST, so that it cannot be used to get another ticket.
func queryTicket(r *http.Request) (string, error) {
	if r.Method != http.MethodGet {
		return "", nil
	}
	return queryValue(r, "ticket")
}

// queryValue returns a query parameter that may appear once.
func queryValue(r *http.Request, name string) (string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query[name]) > 1 {
		return "", badRequest("malformed query")
	}
	return query.Get(name), nil
}

// protocolKey returns the key among the offered subprotocols, or "".
func protocolKey(h http.Header) (string, error) {
	key := ""
	for _, line := range h.Values("Sec-Websocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(offer), bearerProtocol)
			if !ok {
				continue
			}
			b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
			if err != nil || len(b) == 0 || key != "" {
				return "", badRequest("malformed bearer subprotocol")
			}
			key = string(b)
		}
	}
	return key, nil
}

func badRequest(text string) error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: text}
}

func unauthenticated(text string) error {
	return &contracts.Error{Code: contracts.CodeUnauthenticated, Message: text}
}

func denied(text string) error {
	return &contracts.Error{Code: contracts.CodeAccessDenied, Message: text}
}
