package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A side is a connection with notes of all that it took in and sent.
type side struct {
	*Conn
	sent  []string
	taken []string // methods, and texts of bad lines
	bad   []*BadLine
}

func newSide(o Options) *side {
	s := &side{}
	o.Send = func(line []byte) error { s.sent = append(s.sent, strings.TrimSpace(string(line))); return nil }
	if o.Serve == nil {
		o.Serve = func(m Message) { s.taken = append(s.taken, m.Method+string(m.ID)) }
	}
	o.Bad = func(b *BadLine) error { s.bad = append(s.bad, b); s.taken = append(s.taken, "bad"); return nil }
	s.Conn = New(o)
	return s
}

func TestEverythingIsTakenInInOrder(t *testing.T) {
	s := newSide(Options{})
	note := func(what string) func() { return func() { s.taken = append(s.taken, what) } }
	var calls []*Call
	for _, name := range []string{"first", "second", "third"} {
		call, err := s.Ask(name, nil, note(name))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	calls[2].Forget()
	err := s.Read(strings.NewReader(`{"method":"a"}
{"id":"2","result":[1]}
junk
{"id":7,"method":"b"}
{"id":1,"error":{"code":5,"message":"no","data":{"details":"never"}}}
{"id":1,"result":"again"}
{"id":3,"result":"given up"}` + "\n\ufeff" + `{"id":"x","method":"c"}`)) // without an end
	if want := []string{"a", "second", "bad", "b7", "first", `c"x"`}; err != nil || !slices.Equal(s.taken, want) {
		t.Errorf("took in %q, %v; want %q", s.taken, err, want)
	}
	if r := <-calls[1].Reply; string(r.Result) != "[1]" || r.Err != nil {
		t.Errorf("got %+v, want the result", r)
	}
	if r := <-calls[0].Reply; r.Err == nil || r.Err.Error() != "no: never" {
		t.Errorf("got %+v, want the error with its details", r)
	}
	if want := []string{`{"jsonrpc":"2.0","id":1,"method":"first"}`, `{"jsonrpc":"2.0","id":2,"method":"second"}`, `{"jsonrpc":"2.0","id":3,"method":"third"}`}; !slices.Equal(s.sent, want) {
		t.Errorf("sent %q, want %q", s.sent, want)
	}
}

func TestBadLinesAreTold(t *testing.T) {
	for _, tt := range []struct {
		line string
		want BadLine // but its text
	}{
		{"junk", BadLine{Code: CodeParse}},
		{`{"id":1,`, BadLine{Code: CodeParse}},
		{`[{"method":"x"}]`, BadLine{Code: CodeInvalid}},
		{`{"id":{},"method":"x"}`, BadLine{Code: CodeInvalid}},
		{`{"id":5}`, BadLine{Code: CodeInvalid, ID: json.RawMessage("5")}},
		{`{"id":5,"method":5}`, BadLine{Code: CodeInvalid}},
		{`{"id":null,"error":{"code":1,"message":"what?"}}`, BadLine{}},
		{`{"error":7}`, BadLine{}},
		{`{"id":5,"method":"x","params":"` + strings.Repeat("x", headBytes) + `"}`, BadLine{Code: CodeInvalid, ID: json.RawMessage("5")}},
		{`{"method":"x","params":"` + strings.Repeat("x", headBytes) + `"}`, BadLine{Code: CodeInvalid}},
		{`{"id":5,"result":"` + strings.Repeat("x", headBytes) + `"}`, BadLine{}},
		{`{"result":"` + strings.Repeat("x", headBytes) + `","id":5}`, BadLine{Code: CodeInvalid, Lost: true}},
		{strings.Repeat("x", headBytes+1), BadLine{Code: CodeInvalid, Lost: true}},
	} {
		s := newSide(Options{MaxLine: headBytes})
		if err := s.Read(strings.NewReader(tt.line + "\n" + `{"method":"next"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		if want := []string{"bad", "next"}; !slices.Equal(s.taken, want) {
			t.Fatalf("%.60s: took in %q, want %q", tt.line, s.taken, want)
		}
		if got := s.bad[0]; got.Code != tt.want.Code || string(got.ID) != string(tt.want.ID) || got.Lost != tt.want.Lost || got.Text == "" {
			t.Errorf("%.60s: got %+v, want %+v", tt.line, got, tt.want)
		}
	}
}

func TestNobodyWaitsForAnAnswerThatWasTooLong(t *testing.T) {
	s := newSide(Options{MaxLine: 100})
	call, err := s.Ask("x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Read(strings.NewReader(`{"id":1,"result":"` + strings.Repeat("x", 200))); err != nil {
		t.Fatal(err)
	}
	r := <-call.Reply
	if _, ok := errors.AsType[*BadLine](r.Err); !ok || !strings.Contains(r.Err.Error(), "too long") {
		t.Errorf("got %+v, want that it was too long", r)
	}
}

// TestAnswerWithoutAResultIsOneIfItIsWaitedFor passes over that some leave out a
// result of null.
func TestAnswerWithoutAResultIsOneIfItIsWaitedFor(t *testing.T) {
	s := newSide(Options{})
	call, err := s.Ask("x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Read(strings.NewReader(`{"id":1}` + "\n" + `{"id":1}`)); err != nil {
		t.Fatal(err)
	}
	if r := <-call.Reply; r.Err != nil || len(s.bad) != 1 {
		t.Errorf("got %+v and %d bad lines, want an answer, and nobody for the second", r, len(s.bad))
	}
}

func TestTooManyBadLinesEndTheReading(t *testing.T) {
	s := newSide(Options{MaxBad: 3})
	err := s.Read(strings.NewReader("x\nx\nx\n" + `{"method":"good"}` + "\nx\nx\nx\nx\n" + `{"method":"unread"}`))
	if err == nil || !slices.Equal(s.taken, []string{"bad", "bad", "bad", "good", "bad", "bad", "bad"}) {
		t.Errorf("took in %q, %v; want an error at the fourth in a row", s.taken, err)
	}
}

func TestCallsEndWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide(Options{})
		in, out := io.Pipe()
		read := make(chan error, 1)
		go func() { read <- s.Read(in) }() // ends with the connection
		result := make(chan error, 1)
		go func() { // likewise
			_, err := s.Call(t.Context(), "x", nil)
			result <- err
		}()
		synctest.Wait()
		why := errors.New("enough")
		s.Close(why)
		if err := <-result; !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
		if _, err := io.WriteString(out, `{"method":"late"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil || len(s.taken) > 0 {
			t.Errorf("got %v and %q, want nothing taken in any more", err, s.taken)
		}
		if _, err := s.Call(t.Context(), "x", nil); !errors.Is(err, why) {
			t.Errorf("afterwards: got %v, want %v", err, why)
		}
	})
	s := newSide(Options{})
	broken := errors.New("broken")
	in, out := io.Pipe()
	_ = out.CloseWithError(broken)
	if err := s.Read(in); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, err := s.Ask("x", nil, nil); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v, want %v", err, ErrEnded)
	}
}

func TestCallThatIsGivenUpIsWithdrawn(t *testing.T) {
	for _, method := range []string{"", "$/cancel"} {
		s := newSide(Options{Withdraw: method})
		why := errors.New("no time")
		ctx, stop := context.WithCancelCause(t.Context())
		stop(why)
		_, err := s.Call(ctx, "x", map[string]int{"a": 1})
		want := []string{`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1}}`}
		if method != "" {
			want = append(want, `{"jsonrpc":"2.0","method":"$/cancel","params":{"requestId":1}}`)
		}
		if !errors.Is(err, why) || !slices.Equal(s.sent, want) {
			t.Errorf("got %v and sent %q, want %v and %q", err, s.sent, why, want)
		}
		if len(s.waiting) > 0 {
			t.Errorf("got %d calls that wait, want none", len(s.waiting))
		}
	}
}

func TestAnswersAndRefusals(t *testing.T) {
	s := newSide(Options{})
	for _, err := range []error{
		s.Answer(json.RawMessage(`"a"`), struct{}{}), s.Answer(json.RawMessage(`2`), nil), s.Notify("n", nil),
		s.Refuse(nil, &Error{Code: CodeParse, Message: "what?"}), s.Refuse(json.RawMessage(`3`), &Error{Code: 1, Data: "d"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`{"jsonrpc":"2.0","id":"a","result":{}}`, `{"jsonrpc":"2.0","id":2,"result":null}`, `{"jsonrpc":"2.0","method":"n"}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`, `{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"","data":"d"}}`,
	}
	if !slices.Equal(s.sent, want) {
		t.Errorf("sent %q\nwant %q", s.sent, want)
	}
	if err := s.Answer(json.RawMessage(`4`), func() {}); err == nil || len(s.sent) != len(want) {
		t.Errorf("got %v, want an error and nothing sent", err)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	for raw, want := range map[string]string{
		`{"code":3}`:                              "error 3",
		`{"code":"x","message":"no"}`:             "no",
		`{"message":"no","data":"no"}`:            "no",
		`{"message":"no","data":{"error":"why"}}`: "no: why",
		`7`: "an error that cannot be read",
		`{"message":"` + strings.Repeat("é", maxError) + `"}`: strings.Repeat("é", maxError/2) + "…",
	} {
		if got := problem(json.RawMessage(raw)).Error(); got != want {
			t.Errorf("%.60s: got %q, want %q", raw, got, want)
		}
	}
	if err := problem(json.RawMessage("null")); err != nil {
		t.Errorf("got %v, want none", err)
	}
}

// FuzzRead has two connections speak: whatever one is told, it ends with its
// input, answers each call once at most, and never sends what is no message.
func FuzzRead(f *testing.F) {
	f.Add(`{"id":1,"result":{}}` + "\n" + `{"id":null,"error":{"code":"x"}}` + "\n" + `{"error":7}` + "\nnull\n7\n{")
	f.Add(`{"id":[],"method":"x"}` + "\n" + `{"id":"1","error":{}}` + "\r\n\n\x00")
	f.Fuzz(func(t *testing.T, lines string) {
		var s *side
		s = newSide(Options{MaxLine: 200, Serve: func(m Message) {
			if m.ID != nil {
				if err := s.Answer(m.ID, nil); err != nil {
					t.Errorf("answer %s: %v", m.ID, err)
				}
			}
		}})
		call, err := s.Ask("x", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Read(strings.NewReader(lines)); err != nil {
			t.Fatal(err)
		}
		<-call.Reply
		if len(call.Reply) > 0 || len(s.waiting) > 0 {
			t.Error("got a second reply, or a call that still waits")
		}
		other := newSide(Options{Serve: func(Message) {}})
		if err := other.Read(strings.NewReader(strings.Join(s.sent, "\n"))); err != nil || len(other.bad) > 0 {
			t.Error(fmt.Errorf("sent %q, of which %d are no messages: %w", s.sent, len(other.bad), err))
		}
	})
}

func TestBadLineIsToldByItsBeginning(t *testing.T) {
	s := newSide(Options{MaxLine: 200})
	long := strings.Repeat("x", 79) + "ü"
	if err := s.Read(strings.NewReader("  hello\t\n{\n" + long + "\n" + strings.Repeat(long, 3) + "\n")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range s.bad {
		got = append(got, b.Head)
	}
	if want := []string{"hello", "{", long[:79], long[:79]}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
