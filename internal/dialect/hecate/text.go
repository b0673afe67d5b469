package hecate

import (
	"math"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	maxBlock  = 16 << 10 // bytes of a text block; a longer text continues in the next block
	maxAnswer = 2 << 10  // bytes of the summary of the final answer, and of a message that the state keeps
)

// A turn is one round of the model: a response of the native session.
type turn struct {
	Response string    `json:"response"`
	Began    time.Time `json:"began"`
	Blocks   int64     `json:"blocks,omitempty"` // that ended
	Block    *block    `json:"block,omitempty"`  // the open one
	Calls    int64     `json:"calls,omitempty"`  // tool calls announced in it
}

// A block is a text without an interruption.
type block struct {
	Thinking bool  `json:"thinking,omitempty"`
	Rest     bool  `json:"rest,omitempty"` // the text began in the block before
	Flow     flow  `json:"flow,omitzero"`
	Shown    clean `json:"shown,omitzero"`
}

// index returns the data that begins with the open run's round, if it has one.
func (r *run) index(more ...member) object {
	if r.Rounds == 0 {
		return more
	}
	return append(object{{"turn_index", r.Rounds}}, more...)
}

func (s *Session) responseStart(id string) {
	s.work()
	if s.Run.Turn != nil {
		s.turnFailed(plain("the next response began"))
	}
	s.Run.Rounds++
	s.Run.Turn = &turn{Response: id, Began: s.At}
	s.draft("turn.started", s.Run.index(member{"model", s.model()}, member{"provider", s.provider()}))
}

func (s *Session) responseChunk(e *contracts.ResponseChunk) {
	s.work()
	if s.Run.Turn == nil {
		s.responseStart(e.ResponseID)
	}
	t := s.Run.Turn
	if t.Block != nil && t.Block.Thinking != e.IsThinking {
		s.endBlock()
	}
	if e.IsThinking && !s.Options.Thinking || e.Content == "" {
		return
	}
	if t.Block == nil {
		t.Block = &block{Thinking: e.IsThinking}
	}
	b := t.Block
	b.Flow.Held = append(b.Flow.Held, e.Content...)
	s.showText(b.Flow.words(maxWord))
	if len(b.Shown.Text) >= maxBlock {
		s.completeBlock()
		t.Block = &block{Thinking: b.Thinking, Rest: true, Flow: b.Flow}
	}
}

// showText shows the first n held bytes of the open block.
func (s *Session) showText(n int) {
	b := s.Run.Turn.Block
	if n == 0 {
		return
	}
	shown := b.Flow.take(n, s.Options.Redact)
	name := "assistant.text_delta"
	if b.Thinking {
		name = "assistant.thinking_delta"
	}
	s.draft(name, s.Run.index(member{"block_index", s.Run.Turn.Blocks}, member{"delta", shown}))
	b.Shown.Text += shown.Text
	b.Shown.Hidden = b.Shown.Hidden || shown.Hidden
}

// endBlock ends the open block, if there is one.
func (s *Session) endBlock() {
	if s.Run == nil || s.Run.Turn == nil || s.Run.Turn.Block == nil {
		return
	}
	s.showText(len(s.Run.Turn.Block.Flow.Held))
	if s.Run.Turn.Block.Shown.Text != "" {
		s.completeBlock()
	}
	s.Run.Turn.Block = nil
}

// completeBlock shows the whole text of the open block.
func (s *Session) completeBlock() {
	t := s.Run.Turn
	b := t.Block
	if !b.Thinking {
		s.draft("assistant.text_complete", s.Run.index(member{"block_index", t.Blocks}, member{"text", b.Shown}))
		if !b.Rest {
			s.Run.Answer = b.Shown.cut(maxAnswer)
		}
	}
	t.Blocks++
}

func (s *Session) responseEnd(e *contracts.ResponseEnd) {
	r := s.Run
	if r == nil || r.Turn == nil {
		return // it was closed when the continuity was lost
	}
	known := e.Usage.TotalTokens > 0 || e.Usage.TotalCostUSD > 0
	if r.Failure != nil && !known {
		s.turnFailed(r.Failure.Message)
		return
	}
	s.endBlock()
	r.Failure = nil
	cost := int64(math.Round(e.Usage.TotalCostUSD * 1e6))
	data := r.index()
	if known {
		r.Usage.Known = true
		r.Usage.Input += e.Usage.InputTokens
		r.Usage.Output += e.Usage.OutputTokens
		r.Usage.Cost += cost
		s.Cost += cost
		data = append(data, member{"input_tokens", e.Usage.InputTokens}, member{"output_tokens", e.Usage.OutputTokens},
			member{"cached_input_tokens", e.Usage.CacheReadTokens}, member{"cost_micros_usd", cost})
	}
	s.turnCompleted(data, e.DurationMS)
}

// turnCompleted ends the open round. data has what it has cost.
func (s *Session) turnCompleted(data object, durationMS int64) {
	r := s.Run
	if s.Vocabulary == VocabularyModelCall {
		data = data.add("step_id", r.Turn.Response)
		if r.Usage.Known {
			data = append(data, member{"run_cumulative_cost_micros_usd", r.Usage.Cost}, member{"task_cumulative_cost_micros_usd", s.Cost})
		}
	}
	data = append(data, member{"duration_ms", durationMS})
	if r.Turn.Calls > 0 { // calls may also be announced after the end of their response
		data = append(data, member{"tool_calls", r.Turn.Calls})
	}
	s.draft("turn.completed", data)
	r.Turn = nil
	if r.Usage.Known {
		s.draft("cost.tick", object{
			{"cumulative_input_tokens", r.Usage.Input}, {"cumulative_output_tokens", r.Usage.Output},
			{"cumulative_cost_micros_usd", r.Usage.Cost},
		})
	}
}

// turnFailed ends the open round without its result.
func (s *Session) turnFailed(why clean) {
	s.endBlock()
	code := "incomplete"
	if f := s.Run.Failure; f != nil {
		code = string(f.Type)
	}
	s.draft("turn.failed", s.Run.index(member{"code", code}, member{"message", why.or(plain(code))}, member{"will_retry", false}))
	s.Run.Turn = nil
}
