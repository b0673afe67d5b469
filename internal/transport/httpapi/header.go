package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// headerPrefixes are the prefixes of header names, by precedence. They have the
// same meaning.
var headerPrefixes = []string{"X-Maestro-", "X-Composer-", "X-Evalops-"}

const headerEpoch = "X-Maestro-Headless-Epoch"

// caller reads the caller from the headers of a request.
func caller(h http.Header) (by contracts.Caller, err error) {
	pick := func(names ...string) string {
		value, bad := headerOf(h, names)
		if bad != nil && err == nil {
			err = bad
		}
		return value
	}
	switch role := contracts.Role(pick("Headless-Role")); role {
	case "", contracts.RoleViewer, contracts.RoleApprover:
		by.Role = role
	default:
		by.Role = contracts.RoleController
	}
	by.ConnectionID = pick("Headless-Connection-Id")
	by.SubscriptionID = pick("Headless-Subscriber-Id", "Headless-Subscription-Id")
	by.Token = h.Get(contracts.HeaderConnectionToken)
	by.Trace = h.Get("Traceparent")
	if err == nil && (tooLong(by.ConnectionID) || tooLong(by.SubscriptionID) || tooLong(by.Token) || tooLong(by.Trace)) {
		err = badRequest("a header is too long")
	}
	return by, err
}

func tooLong(value string) bool { return len(value) > contracts.MaxIDBytes }

// headerOf returns the value of a header that has several names. If several are
// present, their values must be equal.
func headerOf(h http.Header, names []string) (value string, err error) {
	for _, family := range headerPrefixes {
		for _, name := range names {
			for _, v := range h.Values(family + name) {
				v = strings.TrimSpace(v)
				switch {
				case v == "":
				case value == "":
					value = v
				case v != value:
					return "", badRequest("the spellings of the header " + strings.ToLower(name) + " contradict each other")
				}
			}
		}
	}
	return value, nil
}

// approvalMode returns the approval mode that the headers request for a new
// runtime.
func approvalMode(h http.Header) (contracts.ApprovalMode, error) {
	text, err := headerOf(h, []string{"Approval-Mode"})
	mode := contracts.ApprovalMode(text)
	if err == nil && mode != "" && !slices.Contains([]contracts.ApprovalMode{contracts.ApprovalAuto, contracts.ApprovalPrompt, contracts.ApprovalFail}, mode) {
		err = badRequest("the approval mode must be auto, prompt or fail")
	}
	return mode, err
}

// idempotencyKey returns the idempotency key of a request, or "".
func idempotencyKey(h http.Header) (string, error) {
	keys := h.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[0]
	printable := !strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r > 0x7e })
	if len(keys) > 1 || key == "" || len(key) > contracts.MaxIDBytes || !printable {
		return "", badRequest("Idempotency-Key must be 1 to 128 printable characters")
	}
	return key, nil
}

func badRequest(text string) *contracts.Error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Type: contracts.ErrorProtocol, Message: text}
}
