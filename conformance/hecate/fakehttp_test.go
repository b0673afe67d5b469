package hecate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"type":"x","message":"no"}}`) // the client may be gone
}

// find returns the run of a request, or refuses it.
func (f *fake) find(w http.ResponseWriter, q *http.Request) *fakeRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runs[q.PathValue("run")]
	if r == nil && f.fault == "unknown-streams" && q.Header.Get("Accept") == "text/event-stream" {
		return &fakeRun{}
	}
	if r == nil || r.task != q.PathValue("task") && f.fault != "any-task" {
		refuse(w, http.StatusNotFound)
		return nil
	}
	return r
}

func (f *fake) cancel(w http.ResponseWriter, q *http.Request) {
	r := f.find(w, q)
	if r == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.ended {
		refuse(w, http.StatusConflict)
		return
	}
	close(r.cancelled)
	w.WriteHeader(http.StatusOK)
}

func (f *fake) approvals(w http.ResponseWriter, q *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []map[string]any
	if f.fault == "no-approvals" {
		refuse(w, http.StatusNotFound)
		return
	}
	for _, r := range f.runs {
		if r.task == q.PathValue("task") && r.approval != nil {
			status := r.approval.status
			if f.fault == "always-pending" {
				status = "pending"
			}
			all = append(all, map[string]any{"id": r.approval.id, "task_id": r.task, "run_id": r.id, "status": status})
		}
	}
	var body any = map[string]any{"object": "task_approvals", "data": all}
	if q.PathValue("approval") != "" {
		body = map[string]any{"object": "task_approval", "data": all[0]}
	}
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func (f *fake) resolve(w http.ResponseWriter, q *http.Request) {
	var body struct{ Decision string }
	err := json.NewDecoder(q.Body).Decode(&body)
	f.mu.Lock()
	defer f.mu.Unlock()
	var a *fakeApproval
	for _, r := range f.runs {
		if r.task == q.PathValue("task") && r.approval != nil && r.approval.id == q.PathValue("approval") {
			a = r.approval
		}
	}
	status := map[string]string{"approve": "approved", "reject": "rejected"}[body.Decision]
	if f.fault == "any-decision" && err == nil && status == "" {
		status = "approved"
	}
	switch {
	case a == nil && f.fault == "any-approval":
		w.WriteHeader(http.StatusOK)
	case a == nil:
		refuse(w, http.StatusNotFound)
	case err != nil || status == "":
		refuse(w, http.StatusBadRequest)
	case a.status != "pending" && f.fault != "many-decisions":
		refuse(w, http.StatusConflict)
	default:
		if a.status == "pending" {
			a.status = status
			a.decided <- status
		}
		_, _ = fmt.Fprint(w, `{"object":"task_approval","data":{}}`) // the client may be gone
	}
}

// events is the list or the stream of a run.
func (f *fake) events(w http.ResponseWriter, q *http.Request) {
	r := f.find(w, q)
	switch {
	case r == nil:
	case q.URL.Query().Has("limit") || q.Header.Get("Accept") == "application/json":
		f.list(w, q, r)
	default:
		f.stream(w, q, r)
	}
}

// cursor reads after_sequence and Last-Event-ID.
func (f *fake) cursor(q *http.Request) (int64, error) {
	after, err := int64(-1), error(nil)
	if text := q.FormValue("after_sequence"); text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); after < -1 {
			err = strconv.ErrRange
		}
		if f.fault == "lenient" {
			err = nil
		}
	}
	if text := q.Header.Get("Last-Event-Id"); text != "" && f.fault != "no-resume" && (f.fault != "query-wins" || after < 0) {
		last, bad := strconv.ParseInt(text, 10, 64)
		after, err = max(after, last), bad
		if f.fault == "feed-skips" {
			after++
		}
	}
	if f.fault == "inclusive" && after >= 0 {
		after--
	}
	return after, err
}

// after returns what a reader of a run, or of all runs, gets next.
func (f *fake) after(q *http.Request, r *fakeRun, cursor int64) (list []*entry, changed chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.log
	if r != nil {
		all = r.entries
	}
	types := strings.Split(q.FormValue("event_type"), ",")
	for _, e := range all {
		switch {
		case r != nil && e.seq <= cursor, r == nil && int64(e.number) <= cursor:
		case r == nil && f.fault != "no-filter" && q.FormValue("event_type") != "" && !slices.Contains(types, e.kind):
		case r == nil && f.fault != "no-task-filter" && q.FormValue("task_id") != "" && e.run.task != q.FormValue("task_id"):
		default:
			list = append(list, e)
		}
	}
	return list, f.changed
}

func (f *fake) list(w http.ResponseWriter, q *http.Request, r *fakeRun) {
	cursor, err := f.cursor(q)
	limit, bad := 500, error(nil)
	if text := q.FormValue("limit"); text != "" {
		if limit, bad = strconv.Atoi(text); limit < 1 {
			bad = strconv.ErrRange
		}
	}
	if f.fault == "lenient" && bad != nil {
		limit, bad = 500, nil
	}
	if err != nil || bad != nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	entries, _ := f.after(q, r, cursor)
	if f.fault == "pruned-cursor" && r != nil && cursor >= 0 && len(r.entries) > 0 && cursor < r.entries[0].seq {
		entries = nil
	}
	if f.fault == "no-cap" {
		entries = entries[:min(limit, len(entries))]
	} else if f.fault != "no-limit" {
		entries = entries[:min(limit, len(entries), 500)]
	}
	body := map[string]any{"object": "list"}
	if f.fault == "no-object" {
		delete(body, "object")
	}
	data := make([]json.RawMessage, len(entries))
	f.mu.Lock()
	f.fetches++
	for i, e := range entries {
		data[i] = e.raw
		body["next_after_sequence"] = e.seq
		if r == nil {
			body["next_after_sequence"] = e.number
		}
		if f.fault == "unstable" {
			data[i] = []byte(strings.Replace(string(e.raw), "000000001Z", fmt.Sprintf("%09dZ", f.fetches%1000), 1))
		}
	}
	f.mu.Unlock()
	body["data"] = data
	if f.fault == otherWays {
		delete(body, "next_after_sequence")
		body["object"] = "task_run_events"
	}
	if len(data) == 0 && f.fault == "null-list" {
		body["data"] = nil
	}
	text, _ := marshal(body)
	_, _ = w.Write(text) // the client may be gone
}

// marshal encodes without escaping, so that the bytes of envelopes stay as they are.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return []byte(b.String()), err
}

func (f *fake) stream(w http.ResponseWriter, q *http.Request, r *fakeRun) {
	cursor, err := f.cursor(q)
	if err != nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	if f.fault == "late" {
		time.Sleep(2 * time.Second) // the fault is to be slow
	} else {
		_, _ = fmt.Fprint(w, ": hello\n\n")
		_ = out.Flush() // the client may be gone
	}
	if f.slow && r == nil {
		select {
		case <-time.After(700 * time.Millisecond):
		case <-q.Context().Done():
		}
	}
	for first := true; ; first = false {
		entries, changed := f.after(q, r, cursor)
		for i, e := range entries {
			id := e.seq
			if cursor = e.seq; r == nil {
				cursor = int64(e.number)
				if f.fault != "run-ids" {
					id = cursor
				}
			}
			text := string(e.raw)
			switch {
			case f.fault == "restyled":
				text = strings.ReplaceAll(text, `":`, `": `)
			case f.fault == "seam" && r != nil && !first && i == 0 && e.kind == "assistant.text_delta", f.fault == "drops" && len(entries) > 20 && i == 10,
				f.fault == "feed-drops" && r == nil && e.kind == "assistant.text_delta":
				continue
			}
			if f.fault == otherWays && r == nil {
				_, _ = fmt.Fprintf(w, "id: %d\nevent: event\ndata: {\"object\":\"event\",\"data\":%s}\n\n", id, text)
				continue
			}
			if f.fault == "named-events" {
				_, _ = fmt.Fprint(w, "event: event\n")
			}
			_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", id, text)
		}
		_ = out.Flush()
		f.mu.Lock()
		over := r != nil && r.ended && r.entries[len(r.entries)-1].seq == cursor
		f.mu.Unlock()
		if over {
			return
		}
		beat := time.After(fakeHeartbeat)
		if f.fault == "silent" {
			beat = nil
		}
		select {
		case <-changed:
		case <-beat:
			if f.fault == "beats-with-id" {
				_, _ = fmt.Fprint(w, "id: 7\n")
			}
			_, _ = fmt.Fprint(w, ": beat\n\n")
			_ = out.Flush()
		case <-q.Context().Done():
			return
		case <-f.closed:
			return
		}
	}
}
