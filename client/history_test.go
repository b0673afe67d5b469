package client

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestHistoryReturnsThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		type read struct {
			page *contracts.HistoryPage
			err  error
		}
		done := make(chan read, 1)
		ask := func() *contracts.HistoryRequest {
			go func() {
				page, err := c.History(t.Context(), contracts.HistoryRequest{Kind: contracts.HistoryTurns, Before: 9})
				done <- read{page, err}
			}()
			f := expect[*contracts.HistoryRequest](p)
			if f.Kind != contracts.HistoryTurns || f.Before != 9 {
				t.Errorf("got %+v, want the turns before 9", f)
			}
			return f
		}
		p.send(&contracts.HistoryEnvelope{ID: ask().ID, Page: contracts.HistoryPage{Epoch: "e1", Before: new(uint64(4))}})
		if got := <-done; got.err != nil || got.page.Epoch != "e1" || *got.page.Before != 4 {
			t.Errorf("got %+v, %v; want the page before 4", got.page, got.err)
		}
		id := ask().ID
		const code = contracts.CodeBadRequest
		p.send(&contracts.Refusal{ID: &id, Seq: 3, Message: "no", Code: code, ErrorType: code})
		if got := <-done; got.page != nil || !errors.Is(got.err, &contracts.Error{Code: code}) {
			t.Errorf("got %+v, %v; want a refusal", got.page, got.err)
		}
	})
}

func TestHistoryIsAskedForAgainAfterALostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, p := driving(t)
		done := make(chan *contracts.HistoryPage)
		go func() {
			page, err := c.History(t.Context(), contracts.HistoryRequest{Kind: contracts.HistoryTurns})
			if err != nil {
				t.Error(err)
			}
			done <- page
		}()
		first := expect[*contracts.HistoryRequest](p)
		_ = p.conn.CloseNow()
		p = s.next()
		expect[*contracts.Resume](p)
		greetWith(attached("conn_1", "e1", "replay"))(p)
		again := expect[*contracts.HistoryRequest](p)
		if again.ID != first.ID {
			t.Errorf("got id %q, want %q again", again.ID, first.ID)
		}
		p.send(&contracts.HistoryEnvelope{ID: again.ID, Page: contracts.HistoryPage{Epoch: "e1"}})
		if page := <-done; page == nil || page.Epoch != "e1" {
			t.Errorf("got %+v, want the page", page)
		}
	})
}

func TestTurnsStartWithTheirHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		entry := contracts.HistoryEntry{Cursor: 1, Message: json.RawMessage(`{"type":"status","message":"x"}`)}
		page := contracts.HistoryPage{Epoch: "e1", Entries: []contracts.HistoryEntry{entry}}
		c, p := s.connect(greetWith(attached("conn_1", "e1", "snapshot"),
			&contracts.SnapshotEnvelope{Snapshot: snapshot(2)}, &contracts.HistoryEnvelope{Page: page}), WithTurns(3))
		if got := p.query.Get("turns"); got != "3" {
			t.Errorf("query turns: got %q, want 3", got)
		}
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		if u := wantKind(t, c, KindHistory); u.Cursor != 2 || len(u.Page.Entries) != 1 || u.Page.Entries[0].Cursor != 1 {
			t.Errorf("got %+v, want the page, and the cursor of the snapshot", u)
		}
	})
}
