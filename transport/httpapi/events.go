package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/sse"
)

// events answers with the event stream.
func (h *Handler) events(w http.ResponseWriter, r *http.Request, c *call) error {
	if r.Method == http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		return &contracts.Error{Code: contracts.CodeMethodNotAllowed, Message: "method not allowed"}
	}
	if h.opts.Fence != nil {
		if err := h.opts.Fence.CheckOwner(r.Header.Get(headerOwner)); err != nil {
			return err
		}
	}
	req, err := streamRequest(r, c)
	if err != nil {
		return err
	}
	s, err := h.find(r, c)
	if err != nil {
		return err
	}
	return h.opts.Streams.Serve(w, r, s, req, c.by)
}

// streamRequest reads where a stream begins. A browser that reconnects repeats
// its first query, so Last-Event-ID overrides the cursor in the query (A59).
func streamRequest(r *http.Request, c *call) (req contracts.StreamRequest, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return req, badRequest("malformed query")
	}
	sub, _, err := singleParam(q, "subscriptionId")
	if err != nil {
		return req, err
	}
	if req.SubscriptionID = strings.Clone(sub); sub == "" {
		req.SubscriptionID = c.by.SubscriptionID
	}
	if req.Cursor, req.Epoch, err = position(q); err != nil {
		return req, err
	}
	if epoch, cursor, ok := sse.ParseID(r.Header.Get("Last-Event-ID")); ok {
		req.Cursor, req.Epoch = &cursor, strings.Clone(epoch)
	}
	if req.SubscriptionID == "" {
		req.OptOuts, err = optOuts(q)
	}
	return req, err
}

func position(q url.Values) (cursor *int64, epoch string, err error) {
	text, present, err := singleParam(q, "cursor")
	if err != nil {
		return nil, "", err
	}
	if present && text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, "", badRequest("the cursor must be an integer")
		}
		cursor = &n
	}
	epoch, _, err = singleParam(q, "epoch")
	if err == nil && len(epoch) > contracts.MaxIDBytes {
		err = badRequest("malformed epoch")
	}
	return cursor, strings.Clone(epoch), err
}

// optOuts reads the notifications that a stream leaves out.
func optOuts(q url.Values) (list []contracts.Notification, err error) {
	text, _, err := singleParam(q, "optOutNotifications")
	if err != nil || text == "" {
		return nil, err
	}
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
