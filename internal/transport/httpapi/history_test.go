package httpapi

import (
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestHistoryIsReadAsAsked(t *testing.T) {
	type request = contracts.HistoryRequest
	const entries = contracts.HistoryEntries
	for _, tt := range []struct {
		path string
		want request
		bad  string
	}{
		{"history", request{Kind: entries}, ""},
		{"history?before=17&limit=5&bytes=1000&full=1",
			request{Kind: entries, Before: 17, Limit: 5, Bytes: 1000, Full: true}, ""},
		{"history?pieces=1", request{Kind: entries, Pieces: true}, ""},
		{"history?turns=3&full=0&before=", request{Kind: entries, Turns: 3}, ""},
		{"turns?limit=50", request{Kind: contracts.HistoryTurns, Limit: 50}, ""},
		{"search?q=gr%C3%BC%C3%9Fe%20an", request{Kind: contracts.HistorySearch, Query: "grüße an"}, ""},
		{"history?limit=-1", request{Kind: entries, Limit: -1}, ""}, // for the session to refuse
		{"history?before=-1", request{}, "negative"},
		{"history?before=x", request{}, "integer"},
		{"history?before=1&before=1", request{}, "more than once"},
		{"history?full=yes", request{}, "0 or 1"},
		{"history?turns=101", request{}, "1 to 100"},
		{"search?q=%zz", request{}, "malformed query"},
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

func TestStateOfThePastIsReadAsAsked(t *testing.T) {
	h := newHouse(t, nil)
	if got := h.ask("GET", sessionPath+"/state?at=17", "").ok().Body.String(); got != snapshot {
		t.Errorf("got %s, want the state", got)
	}
	if got := h.session.last(t); got.method != "StateAt" || got.cursor != 17 {
		t.Errorf("got %s at %d, want StateAt at 17", got.method, got.cursor)
	}
	for _, query := range []string{"at=-1", "at=0", "at=x", "at=1&at=1"} {
		h.ask("GET", sessionPath+"/state?"+query, "").refused(contracts.CodeBadRequest)
		h.session.untouched(t)
	}
}
