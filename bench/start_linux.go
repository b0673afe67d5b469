package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// startUp measures how long the built program takes from exec until it says
// ready on stdio. The page cache is warm: the first start is not counted.
func (b *bench) startUp(ctx context.Context) error {
	const program = "maestro"
	if err := b.build(ctx, program); err != nil {
		return err
	}
	var took series
	void := ""
	for i := range b.plan.start.runs + 1 {
		ms, err := b.runStart(ctx, program)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			void = err.Error()
			b.voids = append(b.voids, fmt.Errorf("void: start: %w", err))
			break
		}
		if i > 0 {
			took = append(took, ms)
		}
	}
	b.logf("start: %s ms, void: %q", spread(took), void)
	b.report.targets = append(b.report.targets, target{
		what:  fmt.Sprintf("start to ready on stdio, median of %d", b.plan.start.runs),
		limit: 30, unit: "ms", versus: "(abs) from exec, warm cache", got: took, void: void,
	})
	return nil
}

// runStart starts the program once and returns the milliseconds that it took.
func (b *bench) runStart(ctx context.Context, program string) (took float64, err error) {
	workspace, err := os.MkdirTemp(b.bin, "workspace-")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	s, err := launch(ctx, b.built[program], "headless", "--agent", "shell", "--workspace", workspace)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	hung := time.AfterFunc(greetTimeout, s.kill)
	defer hung.Stop()
	for {
		var message struct {
			Type string `json:"type"`
		}
		if err := s.reports.Decode(&message); err != nil {
			return 0, fmt.Errorf("wait for ready: %w: %s", err, s.stderr)
		}
		if message.Type == "ready" {
			return time.Since(began).Seconds() * 1000, nil
		}
	}
}
