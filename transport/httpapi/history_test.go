package httpapi

import (
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestHistoryIsReadAsAsked(t *testing.T) {
	for _, tt := range []struct {
		path string
		want contracts.HistoryRequest
		bad  string
	}{
		{"history", contracts.HistoryRequest{Kind: contracts.HistoryEntries}, ""},
		{"history?before=17&limit=5&bytes=1000&full=1", contracts.HistoryRequest{Kind: contracts.HistoryEntries, Before: 17, Limit: 5, Bytes: 1000, Full: true}, ""},
		{"history?turns=3&full=0&before=", contracts.HistoryRequest{Kind: contracts.HistoryEntries, Turns: 3}, ""},
		{"turns?limit=50", contracts.HistoryRequest{Kind: contracts.HistoryTurns, Limit: 50}, ""},
		{"search?q=gr%C3%BC%C3%9Fe%20an", contracts.HistoryRequest{Kind: contracts.HistorySearch, Query: "grüße an"}, ""},
		{"history?limit=-1", contracts.HistoryRequest{Kind: contracts.HistoryEntries, Limit: -1}, ""}, // for the session to refuse
		{"history?before=-1", contracts.HistoryRequest{}, "negative"},
		{"history?before=x", contracts.HistoryRequest{}, "integer"},
		{"history?before=1&before=1", contracts.HistoryRequest{}, "more than once"},
		{"history?full=yes", contracts.HistoryRequest{}, "0 or 1"},
		{"history?turns=101", contracts.HistoryRequest{}, "1 to 100"},
		{"search?q=%zz", contracts.HistoryRequest{}, "malformed query"},
	} {
		h := newHouse(t, nil)
		e := h.ask("GET", sessionPath+"/"+tt.path, "")
		if tt.bad != "" {
			has(t, e.refused(contracts.CodeBadRequest), tt.bad)
			h.session.untouched(t)
			continue
		}
		if got := e.ok().Body.String(); got != `{"epoch":"e7f3","before":null}` {
			t.Errorf("%s: got %s", tt.path, got)
		}
		if got := h.session.last(t); got.method != "History" || *got.history != tt.want {
			t.Errorf("%s: got %s with %+v, want %+v", tt.path, got.method, got.history, tt.want)
		}
	}
}
