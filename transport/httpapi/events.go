package httpapi

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/sse"
)

// events answers with the event stream.
func (h *Handler) events(w http.ResponseWriter, r *http.Request, c *call) (any, error) {
	if r.Method == http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		return nil, &contracts.Error{Code: contracts.CodeMethodNotAllowed, Message: "method not allowed"}
	}
	if h.opts.Fence != nil {
		if err := h.opts.Fence.CheckOwner(r.Header.Get(headerOwner)); err != nil {
			return nil, err
		}
	}
	req, err := streamRequest(r, c)
	if err != nil {
		return nil, err
	}
	s, err := h.find(r, c)
	if err != nil {
		return nil, err
	}
	return nil, h.opts.Streams.Serve(w, r, s, req, c.by)
}

// streamRequest reads where a stream begins. A browser that reconnects repeats
// its first query, so Last-Event-ID overrides the cursor in the query (A59).
func streamRequest(r *http.Request, c *call) (req contracts.StreamRequest, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return req, badRequest("malformed query")
	}
	param := func(name string) string {
		if len(q[name]) > 1 && err == nil {
			err = badRequest("the parameter " + name + " is there more than once")
		}
		return strings.Clone(q.Get(name)) // a copy, so that the request can be freed
	}
	req.SubscriptionID = cmp.Or(param("subscriptionId"), c.by.SubscriptionID)
	if text := param("cursor"); text != "" {
		n, bad := strconv.ParseInt(text, 10, 64)
		if bad != nil && err == nil {
			err = badRequest("the cursor must be an integer")
		}
		req.Cursor = &n
	}
	if req.Epoch = param("epoch"); len(req.Epoch) > contracts.MaxIDBytes && err == nil {
		err = badRequest("malformed epoch")
	}
	if epoch, cursor, ok := sse.ParseID(r.Header.Get("Last-Event-ID")); ok {
		req.Cursor, req.Epoch = &cursor, strings.Clone(epoch)
	}
	if req.SubscriptionID != "" {
		return req, err
	}
	if text := param("optOutNotifications"); text != "" && err == nil {
		req.OptOuts, err = optOuts(text)
	}
	return req, err
}

// optOuts reads the notifications that a stream leaves out.
func optOuts(text string) (list []contracts.Notification, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n := contracts.Notification(strings.TrimSpace(word))
		switch n {
		case contracts.NotifyStatus, contracts.NotifyHeartbeat, contracts.NotifyConnectionInfo, contracts.NotifyCompaction:
		default:
			return nil, badRequest("optOutNotifications: unknown notification")
		}
		if slices.Contains(list, n) {
			return nil, badRequest("optOutNotifications: a notification is there more than once")
		}
		list = append(list, n)
	}
	return list, nil
}
