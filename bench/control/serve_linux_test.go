package control

import (
	"encoding/json"
	"io"
	"testing"
)

// room serves a Server that keeps what it publishes.
type room struct {
	enc  *json.Encoder
	dec  *json.Decoder
	sent [][]byte // read only between orders
	end  func() error
}

func newRoom(t *testing.T) *room {
	in, orders := io.Pipe()
	reports, out := io.Pipe()
	r := &room{enc: json.NewEncoder(orders), dec: json.NewDecoder(reports)}
	s := &Server{
		Addr:    "127.0.0.1:1",
		Publish: func(text []byte) error { r.sent = append(r.sent, text); return nil },
		Viewers: func() int { return 3 },
		Dropped: func() int64 { return 2 },
	}
	done := make(chan error, 1) // the one result of Serve
	go func() { done <- s.Serve(in, out) }()
	r.end = func() error {
		if err := orders.Close(); err != nil {
			return err
		}
		return <-done
	}
	var hello Greeting
	if err := r.dec.Decode(&hello); err != nil || hello.Addr != s.Addr {
		t.Fatalf("greeting: got %+v, %v; want address %s", hello, err, s.Addr)
	}
	return r
}

func (r *room) order(t *testing.T, o Order) Report {
	t.Helper()
	if err := r.enc.Encode(o); err != nil {
		t.Fatal(err)
	}
	var rep Report
	if err := r.dec.Decode(&rep); err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestPublishSendsNumberedMessagesAtTheRate(t *testing.T) {
	r := newRoom(t)
	rep := r.order(t, Order{Op: OpPublish, First: 40, Count: 5, Rate: 1000})
	if rep.Error != "" || len(r.sent) != 5 {
		t.Fatalf("publish: got %d messages and error %q, want 5 and none", len(r.sent), rep.Error)
	}
	for i, text := range r.sent {
		if n, _, ok := ParseMark(text); !ok || n != 40+uint64(i) {
			t.Errorf("message %d: got number %d, %v; want %d, true", i, n, ok, 40+i)
		}
	}
	if took := rep.Ended - rep.Began; took < 4e6 {
		t.Errorf("5 messages at 1000/s took %d ns, want at least 4 ms", took)
	}
	if rep.CallP50 <= 0 || rep.CallP99 < rep.CallP50 {
		t.Errorf("call times: got p50 %d and p99 %d, want 0 < p50 <= p99", rep.CallP50, rep.CallP99)
	}
	if err := r.end(); err != nil {
		t.Errorf("Serve after its input ended: got %v, want nil", err)
	}
}

func TestStatusAndSettleReportTheServer(t *testing.T) {
	r := newRoom(t)
	for _, op := range []Op{OpStatus, OpSettle} {
		rep := r.order(t, Order{Op: op})
		if rep.Error != "" || rep.Viewers != 3 || rep.Dropped != 2 || rep.Goroutines < 1 || rep.Mallocs == 0 {
			t.Errorf("%s: got %+v, want 3 viewers, 2 dropped, some goroutines and allocations", op, rep)
		}
		if rep.Resident < 1<<20 {
			t.Errorf("%s: got %d bytes resident, want at least 1 MiB", op, rep.Resident)
		}
	}
	if rep := r.order(t, Order{Op: "dance"}); rep.Error == "" {
		t.Errorf("unknown order: got no error, want one")
	}
	if err := r.end(); err != nil {
		t.Errorf("Serve after its input ended: got %v, want nil", err)
	}
}
