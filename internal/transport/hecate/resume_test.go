package hecate_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
)

func TestAnswerAfterARestartBeginsANewRun(t *testing.T) { // E37
	w := newWorld(t, nil)
	w.prompt("a", "gated")
	path, approval, _ := w.pending("a", 1)
	_, old := w.run("a", 1, "")
	w.restart()
	w.open("", "a")
	w.until(path, "run.cancelled")
	before := w.get(path+"/events?limit=500", nil)
	a := w.request("POST", approval+"/resolve", `{"decision":"approve"}`)
	if a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"approved"`)) {
		t.Errorf("got %d %s, want 200", a.status, a.body)
	}
	next, info := w.run("a", 2, "")
	if info.ID == old.ID {
		t.Fatal("got the old run, want a new one")
	}
	all := w.until(next, "approval.resolved")
	var data struct {
		From string `json:"from_run_id"`
		Seq  uint64 `json:"from_sequence"`
	}
	if err := json.Unmarshal(all[0].Data, &data); err != nil || all[0].Type != "run.resumed_from_event" || data.From != old.ID {
		t.Errorf("got %s %s first, want run.resumed_from_event of %s", all[0].Type, all[0].Data, old.ID)
	}
	if after := w.get(path+"/events?limit=500", nil); !bytes.Equal(before, after) {
		t.Errorf("the old log has changed:\n%s\n%s", before, after)
	}
	w.refuses("POST", approval+"/resolve", `{"decision":"approve"}`, http.StatusConflict, "conflict")
}
