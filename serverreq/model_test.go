package serverreq_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/serverreq"
)

// machine drives a table and remembers, per request ever opened, how it ended.
type machine struct {
	table *serverreq.Table
	now   time.Time
	asked []*asked
}

type asked struct {
	row   contracts.KeptRequest
	ended int
}

func (m *machine) pending() []contracts.KeptRequest {
	var rows []contracts.KeptRequest
	for _, a := range m.asked {
		if a.ended == 0 {
			rows = append(rows, a.row)
		}
	}
	return rows
}

// end notes resolutions: each must be of a pending request, legal and complete.
func (m *machine) end(t *rapid.T, all ...serverreq.Resolution) {
	for _, r := range all {
		i := slices.IndexFunc(m.asked, func(a *asked) bool { return a.row.Request == r.Request })
		if i < 0 {
			t.Fatalf("a request that was never asked ended: %+v", r)
		}
		m.asked[i].ended++
		if m.asked[i].ended != 1 {
			t.Fatalf("%s ended %d times", r.Request.RequestID, m.asked[i].ended)
		}
		req, ev := r.Request, r.Event
		if ev.RequestID != req.RequestID || ev.RequestType != req.RequestType || ev.CallID != req.CallID {
			t.Fatalf("resolution %+v is not of request %+v", ev, req) // R52
		}
		if !serverreq.Legal(ev.RequestType, ev.Resolution, ev.ResolvedBy) {
			t.Fatalf("%s ended %s by %s", ev.RequestType, ev.Resolution, ev.ResolvedBy)
		}
		if ev.ResolvedBy != contracts.ResolvedByClient && ev.RequestType != toolRetry && ev.Reason == "" {
			t.Fatalf("%s ended without a reason", ev.RequestType)
		}
	}
}

func (m *machine) open(t *rapid.T) {
	n := rapid.IntRange(0, 8).Draw(t, "id")
	req := &contracts.ServerRequest{
		RequestID:   fmt.Sprint("r", n),
		CallID:      fmt.Sprint(rapid.SampledFrom([]string{"r", "c"}).Draw(t, "call"), rapid.IntRange(0, 8).Draw(t, "call id")),
		RequestType: rapid.SampledFrom(contracts.RequestTypes()).Draw(t, "type"),
	}
	row := contracts.KeptRequest{Request: req, Opened: m.now}
	if rapid.Bool().Draw(t, "expires") {
		row.Deadline = m.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "timeout")) * time.Second)
	}
	if m.table.Open(req, row.Opened, row.Deadline) == nil {
		m.asked = append(m.asked, &asked{row: row})
	}
}

func (m *machine) answer(t *rapid.T) {
	id := fmt.Sprint(rapid.SampledFrom([]string{"r", "c"}).Draw(t, "of"), rapid.IntRange(0, 8).Draw(t, "id"))
	var cmd contracts.Command
	switch rapid.IntRange(0, 2).Draw(t, "form") {
	case 0:
		cmd = &contracts.ToolResponse{CallID: id, Approved: rapid.Bool().Draw(t, "approved")}
	case 1:
		cmd = &contracts.ClientToolResult{CallID: id, IsError: rapid.Bool().Draw(t, "error")}
	default:
		cmd = &contracts.ServerRequestResponse{
			RequestID: id, RequestType: rapid.SampledFrom(contracts.RequestTypes()).Draw(t, "type"),
			DecisionAction: rapid.SampledFrom([]contracts.RetryAction{"", "retry", "skip", "abort"}).Draw(t, "action"),
			IsError:        rapid.Bool().Draw(t, "error"),
		}
	}
	res, err := m.table.Answer(cmd, "conn_1", m.now, rapid.Bool().Draw(t, "bare"))
	if err == nil {
		m.end(t, res)
	}
}

func (m *machine) expire(t *rapid.T) {
	due := 0
	for _, row := range m.pending() {
		if !row.Deadline.IsZero() && !m.now.Before(row.Deadline) {
			due++
		}
	}
	all := m.table.Expire(m.now)
	if len(all) != due {
		t.Fatalf("expired: got %v, want the %d that were due", ids(all), due)
	}
	m.end(t, all...)
}

func (m *machine) withdraw(t *rapid.T) {
	id := fmt.Sprint("r", rapid.IntRange(0, 8).Draw(t, "id"))
	verdict := rapid.SampledFrom([]contracts.Verdict{"approved", "denied", "failed", "cancelled"}).Draw(t, "verdict")
	by := rapid.SampledFrom([]contracts.Resolver{"policy", "runtime", "client"}).Draw(t, "by")
	if res, ok := m.table.Withdraw(id, verdict, "withdrawn", by, m.now); ok {
		m.end(t, res)
	}
}

func (m *machine) restart(t *rapid.T) {
	rows := m.table.Pending()
	m.table = serverreq.New(6)
	if err := m.table.Restore(rows); err != nil {
		t.Fatalf("restore: %v", err)
	}
}

func (m *machine) check(t *rapid.T) {
	want := m.pending()
	got := m.table.Pending()
	if m.table.Len() != len(want) || len(want) > 6 || !slices.EqualFunc(got, want, func(a, b contracts.KeptRequest) bool { return reflect.DeepEqual(a, b) }) {
		t.Fatalf("pending: got %+v, want %+v", got, want)
	}
	var earliest time.Time
	for _, row := range want {
		if !row.Deadline.IsZero() && (earliest.IsZero() || row.Deadline.Before(earliest)) {
			earliest = row.Deadline
		}
	}
	if next, ok := m.table.Next(); ok == earliest.IsZero() || !next.Equal(earliest) {
		t.Fatalf("Next: got %v, %t, want %v", next, ok, earliest)
	}
}

// TestEveryRequestEndsExactlyOnce: in whatever order requests are opened,
// answered, withdrawn, expired, cancelled and carried over a restart, each ends
// once, in a legal way, and what is left is pending.
func TestEveryRequestEndsExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{table: serverreq.New(6), now: start}
		t.Repeat(map[string]func(*rapid.T){
			"open": m.open, "open more": m.open, "answer": m.answer, "answer again": m.answer,
			"expire": m.expire, "withdraw": m.withdraw, "restart": m.restart,
			"mode": func(t *rapid.T) {
				mode := rapid.SampledFrom([]contracts.ApprovalMode{"auto", "prompt", "fail"}).Draw(t, "mode")
				m.end(t, m.table.PolicyAll(mode, m.now)...)
			},
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
			},
			"": m.check,
		})
		m.end(t, m.table.CancelAll("over", m.now)...)
		for _, a := range m.asked {
			if a.ended != 1 {
				t.Fatalf("%s ended %d times, want once", a.row.Request.RequestID, a.ended)
			}
		}
	})
}
