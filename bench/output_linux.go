package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
)

// outputLine is what the command of [bench.output] writes, again and again.
const outputLine = "0123456789 abcdefghijklmnopqrstuvwxyz \"quoted\" and\tsome more of it"

const nameOutput = "maestro serve, a command"

// A flow is how a long output came to a slow client.
type flow struct {
	grown float64 // MB that the server grew meanwhile, at the most
	rate  float64 // MB/s
}

func (f flow) String() string { return fmt.Sprintf("%.1f MB/s, grown by %.1f MB", f.rate, f.grown) }

// output has a command write much more than is kept to a client that reads
// slowly, and compares what arrives.
func (t *trial) output() {
	p := t.plan.output
	c := contender{name: nameOutput, program: "maestro"}
	t.build(c.program)
	var res results[flow]
	round(t, &res, 0, c, func(t *trial, _ contender) flow { return t.flow(p.bytes, p.rate) })
	t.report.judge(target{
		what:  fmt.Sprintf("%d MiB from a command to a client that takes %.0f MB/s, which arrive whole: more memory", p.bytes>>20, float64(p.rate)/1e6),
		limit: 64, unit: "MB", versus: "(abs)", got: res.of(c.name, func(f flow) float64 { return f.grown }), void: res.void(c.name),
	})
}

// flow runs the command and reads at a rate.
func (t *trial) flow(size int64, rate int) (f flow) {
	s, d := t.serveDriven(t.tempDir(t.bin), "conformance")
	before := must(control.Resident(s.pid))
	check(d.command(&contracts.UtilityCommandStart{CommandID: "bench", Command: fmt.Sprintf("yes '%s' | head -c %d", outputLine, size)}))
	began := time.Now()
	for got, sum := int64(0), sha256.New(); ; check(context.Cause(t.ctx)) {
		payload, err := d.next()
		if err != nil {
			check(fmt.Errorf("after %d bytes: %w", got, err))
		}
		var env struct {
			Type    string
			Message struct{ Type, Content string }
		}
		check(json.Unmarshal(payload, &env))
		switch {
		case env.Type == "reset":
			check(fmt.Errorf("reset after %d bytes", got))
		case env.Message.Type == "utility_command_output":
			_, _ = io.WriteString(sum, env.Message.Content) // a hash takes everything
			got += int64(len(env.Message.Content))
			f.grown = max(f.grown, megabytes(must(control.Resident(s.pid))-before))
			time.Sleep(time.Duration(got)*time.Second/time.Duration(rate) - time.Since(began))
		case env.Message.Type == "utility_command_exited":
			f.rate = megabytes(got) / time.Since(began).Seconds()
			if want := outputSum(size); got != size || string(sum.Sum(nil)) != want {
				check(fmt.Errorf("got %d bytes with the hash %x, want %d with %x", got, sum.Sum(nil), size, want))
			}
			return f
		}
	}
}

// outputSum is the hash of what the command writes.
func outputSum(size int64) string {
	block := []byte(strings.Repeat(outputLine+"\n", 1000))
	sum := sha256.New()
	for left := size; left > 0; {
		part := block[:min(int64(len(block)), left)]
		sum.Write(part)
		left -= int64(len(part))
	}
	return string(sum.Sum(nil))
}
