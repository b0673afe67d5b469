package observe_test

import (
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/observe"
)

// What the hub pays under its lock. An event of an answer is published and
// stored; a tool is that of a round trip with its question.
func BenchmarkSession(b *testing.B) {
	for _, traced := range []bool{false, true} {
		name, opts := "tracing=off", observe.Options{}
		if traced {
			name, opts.Exporter = "tracing=on", &recorder{}
		}
		calls := map[string]func(s *observe.Session){
			"chunk":    chunk,
			"appended": func(s *observe.Session) { s.Appended(1, 200, 7*time.Microsecond) },
			"refused":  func(s *observe.Session) { s.Refused(contracts.CodeAccessDenied) },
			"attached": func(s *observe.Session) {
				s.Attached(contracts.RoleViewer, "ws")
				s.Detached(contracts.RoleViewer, "ws")
			},
			"run":  func(s *observe.Session) { start(s, callersParent, began); s.RunEnded(began) },
			"tool": tool,
		}
		for call, f := range calls {
			b.Run(name+"/"+call, func(b *testing.B) {
				o := newObserver(b, opts)
				s := o.Session("sess_1", observe.Identity{})
				b.ReportAllocs()
				for b.Loop() {
					f(s)
				}
			})
		}
	}
}

var (
	aChunk    = &contracts.ResponseChunk{ResponseID: "r", Content: "some words"}
	aCall     = &contracts.ToolCall{CallID: "c", Tool: "bash"}
	aQuestion = ask("r", "c", "bash", contracts.RequestApproval)
	anAnswer  = answer("r", contracts.VerdictApproved)
	aStart    = &contracts.ToolStart{CallID: "c"}
	anEnd     = &contracts.ToolEnd{CallID: "c", Success: true}
)

func chunk(s *observe.Session) {
	s.Published(aChunk, began)
	s.Appended(1, 200, 7*time.Microsecond)
}

func tool(s *observe.Session) {
	for _, ev := range []contracts.Event{aCall, aQuestion, anAnswer, aStart, anEnd} {
		s.Published(ev, began)
	}
}

// The stream of an answer is most of what a server does.
func TestAStreamCostsNoAllocations(t *testing.T) {
	for _, opts := range []observe.Options{{}, {Exporter: &recorder{}}} {
		o := newObserver(t, opts)
		s := o.Session("sess_1", observe.Identity{})
		s.Published(&contracts.ErrorEvent{ErrorType: contracts.ErrorTool}, began)
		if n := testing.AllocsPerRun(100, func() { chunk(s) }); n > 0 {
			t.Errorf("tracing %t: got %v allocations, want none", opts.Exporter != nil, n)
		}
	}
}

func TestToolsCostNoAllocationsUntraced(t *testing.T) {
	o := newObserver(t, observe.Options{})
	s := o.Session("sess_1", observe.Identity{})
	if n := testing.AllocsPerRun(100, func() { tool(s) }); n > 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
