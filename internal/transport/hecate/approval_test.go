package hecate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-028515a8/maestro/hub"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
)

type approvalInfo struct {
	ID, Status string
	Run        string   `json:"run_id"`
	By         string   `json:"resolved_by"`
	Note       string   `json:"resolution_note"`
	Summary    []string `json:"action_summary"`
}

// pending waits for the approval of a run.
func (w *world) pending(session string, n int) (path, approval string, a approvalInfo) {
	w.t.Helper()
	path, _ = w.run(session, n, "")
	w.until(path, "approval.requested")
	task := "/tasks/" + w.task(session)
	var list struct {
		Object string
		Data   []approvalInfo
	}
	w.get(task+"/approvals", &list)
	a = list.Data[len(list.Data)-1]
	if list.Object != "task_approvals" || a.Status != "pending" || len(a.Summary) == 0 {
		w.t.Errorf("got %+v, want a pending approval with a summary", list)
	}
	return path, task + "/approvals/" + a.ID, a
}

func at(all []wire.Event, kind, part string) int {
	return slices.IndexFunc(all, func(ev wire.Event) bool { return ev.Type == kind && strings.Contains(string(ev.Data), part) })
}

func TestApprove(t *testing.T) { // E29
	w := newWorld(t, nil)
	w.prompt("a", "gated")
	path, approval, _ := w.pending("a", 1)
	a := w.request("POST", approval+"/resolve", `{"decision":"APPROVE","note":"fine"}`)
	var got struct {
		Object string
		Data   approvalInfo
	}
	if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK || got.Object != "task_approval" || got.Data.Status != "approved" || got.Data.Note != "fine" || got.Data.By != "operator" {
		t.Errorf("got %d %s, want 200 with the approved approval", a.status, a.body)
	}
	all := w.until(path, "run.finished")
	asked, decided, began := at(all, "approval.requested", ""), at(all, "approval.resolved", `"approved"`), at(all, "tool.invoked", "")
	if asked < 0 || decided < asked || began < decided {
		t.Errorf("got %v, want requested, approved, invoked", kinds(all))
	}
	w.get(approval, &got)
	if got.Data.Status != "approved" {
		t.Errorf("got %+v, want it approved", got.Data)
	}
	w.refuses("POST", approval+"/resolve", `{"decision":"reject"}`, http.StatusConflict, "conflict") // E31
}

func TestReject(t *testing.T) { // E30
	w := newWorld(t, nil)
	w.prompt("a", "gated")
	path, approval, _ := w.pending("a", 1)
	if a := w.request("POST", approval+"/resolve", `{"decision":"denied"}`); a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"rejected"`)) {
		t.Errorf("got %d %s, want 200 with the rejected approval", a.status, a.body)
	}
	all := w.until(path, "run.finished")
	if at(all, "approval.resolved", `"rejected"`) < 0 || at(all, "tool.invoked", "") >= 0 {
		t.Errorf("got %v, want rejected and never invoked", kinds(all))
	}
}

func TestApprovalStaysPendingUntilItHasItsVotes(t *testing.T) {
	w := newWorld(t, nil)
	w.votes = []hub.VoteRule{{Votes: 2}}
	w.prompt("a", "gated")
	path, approval, _ := w.pending("a", 1)
	as := func(id string) []string { return []string{"X-Principal", `{"ID":"` + id + `","Role":"approver"}`} }
	if a := w.request("POST", approval+"/resolve", `{"decision":"approve"}`, as("rhea")...); a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"pending"`)) {
		t.Errorf("got %d %s for the first vote, want the pending approval", a.status, a.body)
	}
	w.refuses("POST", approval+"/resolve", `{"decision":"approve"}`, http.StatusConflict, "conflict", as("rhea")...)
	w.refuses("POST", approval+"/resolve", `{"decision":"approve","digest":"sha256:0"}`, http.StatusConflict, "conflict", as("otto")...)
	if a := w.request("POST", approval+"/resolve", `{"decision":"approve"}`, as("otto")...); a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"approved"`)) {
		t.Errorf("got %d %s for the second vote, want the approved approval", a.status, a.body)
	}
	if all := w.until(path, "run.finished"); at(all, "tool.invoked", "") < 0 {
		t.Errorf("got %v, want the tool invoked", kinds(all))
	}
}

func TestTwoDecisionsAtOnce(t *testing.T) { // E31
	w := newWorld(t, nil)
	for i := range 5 {
		w.prompt("a", "gated")
		path, approval, _ := w.pending("a", i+1)
		statuses := make([]int, 4)
		var wg sync.WaitGroup
		for i := range statuses {
			wg.Go(func() {
				decision := fmt.Sprintf(`{"decision":%q}`, []string{"approve", "reject"}[i%2])
				statuses[i] = w.request("POST", approval+"/resolve", decision).status
			})
		}
		wg.Wait()
		slices.Sort(statuses)
		if !slices.Equal(statuses, []int{200, 409, 409, 409}) {
			t.Errorf("got %v, want one 200 and otherwise 409", statuses)
		}
		n := 0
		for _, ev := range w.until(path, "run.finished") {
			if ev.Type == "approval.resolved" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("got %d approval.resolved, want 1", n)
		}
	}
}

func TestBadDecisions(t *testing.T) { // E32
	w := newWorld(t, nil)
	w.prompt("a", "gated")
	w.prompt("b", "hello")
	path, approval, a := w.pending("a", 1)
	before := w.get(path+"/events?limit=500", nil)
	for _, body := range []string{`{"decision":"maybe"}`, `{}`, `{`, ``, `[]`, `{"decision":"approve"}{}`, `{"decision":7}`} {
		w.refuses("POST", approval+"/resolve", body, http.StatusBadRequest, "invalid_request")
	}
	w.refuses("POST", approval+"x/resolve", `{"decision":"approve"}`, http.StatusNotFound, "not_found")
	w.refuses("GET", approval+"x", "", http.StatusNotFound, "not_found")
	w.refuses("POST", "/tasks/"+w.task("b")+"/approvals/"+a.ID+"/resolve", `{"decision":"approve"}`, http.StatusNotFound, "not_found")
	w.refuses("POST", approval+"/resolve", `{"decision":"approve"}`, http.StatusForbidden, "forbidden", "X-Principal", `{"ID":"v","Role":"viewer"}`)
	w.refuses("POST", path+"/cancel", "", http.StatusForbidden, "forbidden", "X-Principal", `{"ID":"v","Role":"viewer"}`)
	w.refuses("POST", path+"/cancel", "", http.StatusForbidden, "forbidden", "X-Principal", `{"ID":"a","Role":"approver"}`)
	if after := w.get(path+"/events?limit=500", nil); !bytes.Equal(before, after) {
		t.Errorf("got other events after refusals:\n%s\n%s", before, after)
	}
}

func TestCancelWhileAnApprovalIsPending(t *testing.T) { // E33
	w := newWorld(t, nil)
	w.prompt("a", "gated")
	path, approval, _ := w.pending("a", 1)
	if a := w.request("POST", path+"/cancel", ""); a.status != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.status, a.body)
	}
	all := w.until(path, "run.cancelled")
	if at(all, "approval.resolved", `"cancelled"`) < 0 {
		t.Errorf("got %v, want the approval cancelled", kinds(all))
	}
	w.refuses("POST", approval+"/resolve", `{"decision":"approve"}`, http.StatusConflict, "conflict")
	w.refuses("POST", path+"/cancel", "", http.StatusConflict, "conflict")
}

func TestApprovalThatTimesOut(t *testing.T) { // E34
	w := newWorld(t, nil)
	w.prompt("a", "asks")
	path, _ := w.run("a", 1, "completed")
	all := w.until(path, "approval.timed_out")
	var data struct {
		ID string `json:"approval_id"`
	}
	if err := json.Unmarshal(all[at(all, "approval.timed_out", "")].Data, &data); err != nil {
		t.Fatal(err)
	}
	w.refuses("POST", "/tasks/"+w.task("a")+"/approvals/"+data.ID+"/resolve", `{"decision":"approve"}`, http.StatusConflict, "conflict")
}

func TestSecretIsNowhere(t *testing.T) { // E28
	const secret = "hunter2-hunter2"
	w := newWorld(t, func(o *hecate.Options) {
		o.Translate.Redact = func(text string) (string, bool) {
			clean := strings.ReplaceAll(text, secret, "***")
			return clean, clean != text
		}
	})
	w.prompt("a", "secret")
	path, approval, _ := w.pending("a", 1)
	resource := w.get(approval, nil)
	answer := w.request("POST", approval+"/resolve", `{"decision":"approve","note":"use `+secret+`"}`)
	w.until(path, "run.finished")
	list := w.get(path+"/events?limit=500", nil)
	s := w.stream(path + "/events")
	streamed := ""
	for b, ok := s.next(); ok; b, ok = s.next() {
		streamed += b.data
	}
	for what, text := range map[string]string{"approval": string(resource), "answer": string(answer.body), "list": string(list), "stream": streamed} {
		if strings.Contains(text, secret) {
			t.Errorf("the %s has the secret: %s", what, text)
		}
	}
	if !bytes.Contains(list, []byte("redacted_paths")) {
		t.Errorf("got %s, want redacted_paths", list)
	}
	w.stop()
	err := filepath.WalkDir(filepath.Join(w.dir, "hecate"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	w.start()
}
