package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Script is an agent that plays a written scenario: the same prompts and
// answers always lead to the same messages, except for ids and times. Clients
// mark it, because it announces itself as [contracts.ExecutorReplay] (D9). It
// owns no goroutine; playing ends with the run's context.
type Script struct {
	unconfigured // a scenario does not depend on the configuration

	scenario *scenario
	log      *slog.Logger

	host contracts.Host // set by Start
}

// newScript loads the scenario in the file at path. The error of a scenario
// that breaks a rule has the JSON path.
func newScript(path string, o Options) (contracts.Agent, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load script: %w", err)
	}
	defer f.Close()
	var sc *scenario
	data, err := io.ReadAll(io.LimitReader(f, maxScriptBytes+1))
	if err == nil {
		sc, err = parseScript(data)
	}
	if err != nil {
		return nil, fmt.Errorf("load script: %s: %w", path, err)
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
		Forgets:  !s.scenario.keeps,
	}, nil
}

// Run plays the steps of the scenario for the prompt. When ctx ends, it returns
// ctx's error at once.
func (s *Script) Run(ctx context.Context, work contracts.Work) error {
	steps, ok := s.scenario.stepsFor(work.Content)
	if !ok {
		steps = []step{speech("The script has nothing for this prompt.", 0, 0, false)}
	}
	s.log.Debug("play script", "steps", len(steps), "found", ok)
	return newPlayer(s).play(ctx, steps)
}

// A scenario is a loaded script. It is immutable.
type scenario struct {
	model    string
	provider string
	keeps    bool // questions stay open after a restart
	prompts  []cue
}

// A cue has the steps for prompts that contain match. An empty match is in
// every prompt; the default is a last cue with it.
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
	return nil, false
}

// A step is one action of the script.
type step struct {
	// size is the number of steps with every repeat written out and every branch
	// counted.
	size int64

	play func(ctx context.Context, p *player) error // its error ends the run
}

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

// sizeOf adds up the sizes of steps. No sum overflows: a script has at most
// maxScriptBytes steps, of which a repeat counts as at most tooMany.
func sizeOf(steps []step) (total int64) {
	for _, s := range steps {
		total += s.size
	}
	return total
}

// tooMany stands for every size of a repeat above the bound.
const tooMany = maxScriptSteps + 1
