package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-028515a8/maestro/bench/control"
)

// mailboxWhenIdle is the buffer of the one peer that has one to set: here it
// costs memory instead of preventing drops.
const mailboxWhenIdle = 64

// A weight is what one idle viewer keeps busy in a server.
type weight struct {
	kilobytes  float64
	goroutines float64
}

// String is the line for the log.
func (w weight) String() string {
	return fmt.Sprintf("%.1f KB and %.2f goroutines per viewer", w.kilobytes, w.goroutines)
}

// memory measures the resident memory of idle viewers.
func (b *bench) memory(ctx context.Context) error {
	viewers := b.plan.memory.viewers
	if err := needFiles(viewers); err != nil {
		return err
	}
	var res results[weight]
	err := rounds(ctx, b, &res, b.contenders(mailboxWhenIdle), func(c contender) (weight, error) {
		return b.runMemory(ctx, c, viewers)
	})
	if err != nil {
		return err
	}
	t := table{
		title: fmt.Sprintf("Memory: %d idle viewers", viewers),
		notes: []string{"Resident set after garbage collection and return of free pages, less the same before the viewers came, per " +
			"viewer. Buffers of the kernel are not in it."},
		head: []string{"server", "KB", "goroutines"},
	}
	kilobytes := func(w weight) float64 { return w.kilobytes }
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		t.add(name, spread(res.of(name, kilobytes)), middle(res.of(name, func(w weight) float64 { return w.goroutines })))
	}
	b.report.tables = append(b.report.tables, t)
	b.report.targets = append(b.report.targets, target{
		what:  "resident memory per idle WebSocket viewer",
		limit: 14, unit: "KB", versus: fmt.Sprintf("(abs) %d viewers", viewers),
		got: res.of(nameHub, kilobytes), void: res.void(nameHub),
	})
	return nil
}

func (b *bench) runMemory(ctx context.Context, c contender, viewers int) (w weight, err error) {
	s, err := b.start(ctx, c)
	if err != nil {
		return w, err
	}
	crowd, err := newCrowd()
	if err != nil {
		return w, errors.Join(err, s.stop())
	}
	st := stage{s, crowd}
	defer func() { err = errors.Join(err, st.tearDown()) }()
	empty, err := st.ask(control.OpSettle)
	if err != nil {
		return w, err
	}
	if err := st.attach(ctx, st.addr, st.dialect, viewers); err != nil {
		return w, err
	}
	if err := st.registered(ctx, viewers); err != nil {
		return w, err
	}
	if err := st.idle(ctx, settle); err != nil {
		return w, err
	}
	full, err := st.ask(control.OpSettle)
	return weight{
		kilobytes:  float64(full.Resident-empty.Resident) / 1024 / float64(viewers),
		goroutines: float64(full.Goroutines-empty.Goroutines) / float64(viewers),
	}, err
}
