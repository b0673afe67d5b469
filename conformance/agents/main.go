package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/conformance/judge"
)

func main() { program.Main() }

var program = judge.Program{
	Name: "agents", Chooses: "judge only the agents whose names match this expression",
	Timeout: 5 * time.Minute, Bounds: "how long everything may take",
	Operands: "BINARY", Most: 1,
	Judge: func(ctx context.Context, o judge.Order) bool {
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		err := judgeAll(ctx, o)
		if err != nil {
			judge.Say(o.Errs, "%v\n", err)
		}
		return err == nil
	},
}

// judgeAll judges a binary with all agents, some side by side.
func judgeAll(ctx context.Context, o judge.Order) error {
	dir, err := os.MkdirTemp("", "maestro-agents-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the system's scratch space
	binary, err := filepath.Abs(o.Operands[0])
	if err != nil {
		return err
	}
	b := &bench{binary: binary, dir: dir, out: o.Out}
	defer b.close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	chosen := b.candidates(o.Filter)
	if len(chosen) == 0 {
		return errors.New("no agent is called like " + o.Filter.String())
	}
	slots, failures := make(chan struct{}, sideBySide), make(chan error, len(chosen))
	var wg sync.WaitGroup
	for _, c := range chosen {
		slots <- struct{}{}
		wg.Go(func() { // ends with its runs, or with ctx
			failures <- b.judge(ctx, c)
			<-slots
		})
	}
	wg.Wait()
	close(failures)
	for failed := range failures {
		err = errors.Join(err, failed)
	}
	return err
}

// sideBySide is how many agents are judged at once: most of the time is spent
// waiting for them.
const sideBySide = 2
