package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestLastTurnsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{}, true, connectedAs("conn_me", ""))
		tm.driver.history = contracts.HistoryPage{Cut: true, Entries: []contracts.HistoryEntry{
			{Cursor: 3, Message: raw(`{"type":"tool_output","call_id":"c","content":"begin\n"}`), Omitted: 70},
			{Cursor: 4, Message: raw(`{"type":"of_the_future"}`)},
			{Cursor: 5, Omitted: 600_000},
			{Cursor: 6, Message: raw(`{"type":"status","message":"done"}`)},
		}}
		tm.typeLine("/history 2")
		tm.wantShown("-- the last turns: 2\n" +
			"-- what is before is left out: /history without a number shows all\n  | begin\n" +
			"-- 70 more bytes of this output are not shown\n-- done\n-- now\n")
		if got := tm.driver.called(); got != `history  turns=2 query=""` {
			t.Errorf("got %s", got)
		}
		for _, line := range []string{"/history x", "/history 0", "/history 101"} {
			tm.typeLine(line)
			tm.wantShown("! /history takes a number of turns from 1 to 100, or nothing\n")
		}
		tm.driver.refuse = &contracts.Error{Code: contracts.CodeOverloaded, Message: "too much"}
		tm.typeLine("/history 2")
		tm.wantShown("-- the last turns: 2\n! history: too much\n-- now\n")
	})
}

func TestIndexIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := open(t, attachFlags{view: true}, true, connectedAs("conn_me", ""))
		at := "2026-05-03T10:59:00.000Z"
		tm.driver.history = contracts.HistoryPage{Before: new(uint64(7)), Turns: []contracts.HistoryTurn{
			{Cursor: 7, At: at, Author: &contracts.Author{Name: "ada\x1b[31m"}, Line: "count",
				Outcome: contracts.TurnCompleted, DurationMS: new(int64(8250))},
			{Cursor: 9, At: "soon", Line: "and\x07 fix", Outcome: contracts.TurnRunning},
		}}
		tm.typeLine("/turns")
		tm.wantShown("-- there may be earlier ones\n" +
			"  " + clock(at) + " ada: count (completed, 8.2 s)\n  ? and fix (running)\n")
		hit := contracts.HistoryHit{Cursor: 8, At: at, Of: "response_chunk", Excerpt: "There are 212."}
		tm.driver.history = contracts.HistoryPage{Hits: []contracts.HistoryHit{hit}}
		tm.typeLine("/find 212")
		tm.wantShown("  " + clock(at) + " response chunk: There are 212.\n")
		tm.driver.history = contracts.HistoryPage{}
		tm.typeLine("/find 213")
		tm.wantShown("-- nothing found\n")
		want := `history turns turns=0 query=""` + "\n" + `history search turns=0 query="212"` + "\n" +
			`history search turns=0 query="213"`
		if got := tm.driver.called(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestHeadlessBeginsWithTheLastTurns(t *testing.T) {
	t.Parallel()
	state, dir := t.TempDir(), t.TempDir()
	run := func(input string, flags ...string) []string {
		args := []string{"headless", "--agent", "conformance", "--state-dir", state, "--workspace", dir}
		cmd := program(t, append(args, flags...)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Split(string(out), "\n")
	}
	run(`{"type":"prompt","content":"one"}` + "\n")
	run(`{"type":"prompt","content":"two"}` + "\n")
	lines := run(`{"type":"ws.history","id":"h","kind":"turns"}`+"\n", "--turns", "1")
	if !strings.HasPrefix(lines[2], `{"type":"history","page":`) || !strings.Contains(lines[2], `"content":"two"`) ||
		strings.Contains(lines[2], `"content":"one"`) {
		t.Errorf("third line: got %s, want the last turn", lines[2])
	}
	if !strings.HasPrefix(lines[3], `{"type":"history","id":"h",`) || !strings.Contains(lines[3], `"line":"one"`) {
		t.Errorf("fourth line: got %s, want the index", lines[3])
	}
}
