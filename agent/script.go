package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Script is an agent that plays a written scenario: the same prompts and
// answers always lead to the same messages, except for ids and times. Clients
// mark it, because it announces itself as [contracts.ExecutorReplay] (D9). It
// owns no goroutine; playing ends with the run's context.
//
// Its methods are called as [Agent] states.
type Script struct {
	scenario *scenario
	log      *slog.Logger

	host contracts.Host // set by Start
}

// newScript loads the scenario in the file at path. The error of a scenario
// that breaks a rule has the JSON path.
func newScript(path string, o Options) (Agent, error) {
	sc, err := loadScript(path)
	if err != nil {
		return nil, fmt.Errorf("load script: %w", err)
	}
	return &Script{scenario: sc, log: o.Log}, nil
}

// Start keeps host for later runs.
func (s *Script) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	s.host = host
	return contracts.AgentInfo{
		Model:    s.scenario.model,
		Provider: s.scenario.provider,
		Executor: contracts.ExecutorReplay,
		Requests: contracts.RequestTypes(),
	}, nil
}

// Configure does nothing: a scenario does not depend on the configuration.
func (s *Script) Configure(*contracts.Init) {}

// Run plays the steps of the scenario for the prompt. When ctx ends, it returns
// ctx's error at once.
func (s *Script) Run(ctx context.Context, work contracts.Work) error {
	steps, ok := s.scenario.stepsFor(work.Content)
	if !ok {
		steps = []step{speech{text: "The script has nothing for this prompt."}}
	}
	s.log.Debug("play script", "steps", len(steps), "found", ok)
	return newPlayer(s).play(ctx, steps)
}

// Close does nothing: no goroutine or process outlives a run.
func (s *Script) Close(context.Context) error { return nil }

// A scenario is a loaded script. It is immutable.
type scenario struct {
	model    string
	provider string
	prompts  []cue
	fallback []step // for prompts without a cue
	complete bool   // there is a fallback, even an empty one
}

// A cue has the steps for prompts that contain match. An empty match is in
// every prompt.
type cue struct {
	match string
	steps []step
}

// stepsFor returns the steps of the first cue that matches.
func (sc *scenario) stepsFor(prompt string) ([]step, bool) {
	for _, c := range sc.prompts {
		if strings.Contains(prompt, c.match) {
			return c.steps, true
		}
	}
	return sc.fallback, sc.complete
}

// A step is one action of the script. The types below are the only ones.
type step interface {
	// play executes the step. An error ends the run.
	play(ctx context.Context, p *player) error
}

type (
	// speech is a say or a think: one chunk, or several with a delay before
	// each.
	speech struct {
		text     text
		chunk    int64 // bytes; zero means all at once
		delay    time.Duration
		thinking bool
	}

	// toolUse is a tool call, with or without an approval request before it.
	toolUse struct {
		name, label string
		args        text // JSON
		output      text
		success     bool
		gated       bool
	}

	// inquiry is a server request, with steps for each verdict.
	inquiry struct {
		kind    contracts.RequestType
		tool    string
		args    text // JSON
		reason  text
		timeout time.Duration // as in contracts.AskOptions
		on      map[contracts.Verdict][]step
	}

	// pause waits.
	pause time.Duration

	// failure is an error message; end also ends the run.
	failure struct {
		message text
		kind    contracts.ErrorType
		end     bool
	}

	// cost adds to the usage that the end of the response reports.
	cost contracts.Usage

	// remark is a status message.
	remark text

	// summary is a compaction message, whose Summary is a text.
	summary struct {
		message contracts.Compaction
		text    text
	}

	// rawEvent is a raw agent event.
	rawEvent struct {
		kind  string
		event text // JSON
	}

	// repeat plays steps several times, at an even rate if it has a period.
	repeat struct {
		times  int64
		steps  []step
		period time.Duration // from start to start; zero means as fast as possible
		count  int64         // of steps, with the repeat written out; see sizeOf
	}

	// finish ends the open response, if there is one.
	finish struct{}
)

// iteration is the placeholder for the number of the iteration.
const iteration = "{{n}}"

// A text may contain the iteration placeholder.
type text string

// at returns the text in iteration n. Outside a repeat n is zero and the
// placeholders stay.
func (t text) at(n int) string {
	if n == 0 {
		return string(t)
	}
	return strings.ReplaceAll(string(t), iteration, strconv.Itoa(n))
}

// sizeOf returns the number of steps with every repeat written out and every
// branch counted.
func sizeOf(steps []step) (total int64) {
	for _, s := range steps {
		size := int64(1)
		switch s := s.(type) {
		case speech:
			if s.chunk > 0 {
				size = (int64(len(s.text)) + s.chunk - 1) / s.chunk
			}
		case inquiry:
			for _, branch := range s.on {
				size = add(size, sizeOf(branch))
			}
		case repeat:
			size = s.count
		}
		total = add(total, size)
	}
	return total
}

// tooMany stands for every size above the bound, so that sums do not overflow.
const tooMany = maxScriptSteps + 1

func add(a, b int64) int64 { return min(a+b, tooMany) }
