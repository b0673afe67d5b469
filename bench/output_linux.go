package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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
func (b *bench) output(ctx context.Context) error {
	if err := b.build(ctx, "maestro"); err != nil {
		return err
	}
	p := b.plan.output
	var res results[flow]
	f, err := b.flow(ctx, p.bytes, p.rate)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	res.add(nameOutput, f, err)
	if err != nil {
		b.voids = append(b.voids, fmt.Errorf("void: %s: %w", nameOutput, err))
	}
	b.logf("%s: %v, void: %q", nameOutput, f, res.void(nameOutput))
	b.report.targets = append(b.report.targets, target{
		what:  fmt.Sprintf("%d MiB from a command to a client that takes %.0f MB/s, which arrive whole: more memory", p.bytes>>20, float64(p.rate)/1e6),
		limit: 64, unit: "MB", versus: "(abs)", got: res.of(nameOutput, func(f flow) float64 { return f.grown }), void: res.void(nameOutput),
	})
	return nil
}

// flow runs the command and reads at a rate.
func (b *bench) flow(ctx context.Context, size int64, rate int) (f flow, err error) {
	dir, err := os.MkdirTemp(b.bin, "serve-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	s, session, err := serve(ctx, b.built["maestro"], dir, 0)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	fd, rest, err := dial(s.addr, operatorDialect(session))
	if err != nil {
		return f, err
	}
	defer shut(fd)
	before, err := resident(s.pid)
	if err != nil {
		return f, err
	}
	start, err := json.Marshal(map[string]any{
		"type": "utility_command_start", "command_id": "bench",
		"command": fmt.Sprintf("yes '%s' | head -c %d", outputLine, size),
	})
	if err != nil {
		return f, err
	}
	if err := writeAll(fd, appendMasked(nil, opText, start)); err != nil {
		return f, err
	}
	began := time.Now()
	r := frameReader{fd: fd, in: bufio.NewReaderSize(io.MultiReader(strings.NewReader(string(rest)), socketReader(fd)), readSize)}
	got, sum := int64(0), sha256.New()
	for ctx.Err() == nil {
		payload, err := r.next()
		if err != nil {
			return f, fmt.Errorf("after %d bytes: %w", got, err)
		}
		var env struct {
			Type    string
			Message struct {
				Type, Content, Reason string
				Success               bool
			}
		}
		if err := json.Unmarshal(payload, &env); err != nil {
			return f, err
		}
		switch {
		case env.Type == "reset":
			return f, fmt.Errorf("reset after %d bytes", got)
		case env.Message.Type == "utility_command_output":
			_, _ = io.WriteString(sum, env.Message.Content) // a hash takes everything
			got += int64(len(env.Message.Content))
			now, err := resident(s.pid)
			if err != nil {
				return f, err
			}
			f.grown = max(f.grown, float64(now-before)/1e6)
			time.Sleep(time.Duration(got)*time.Second/time.Duration(rate) - time.Since(began))
		case env.Message.Type == "utility_command_exited":
			f.rate = float64(got) / 1e6 / time.Since(began).Seconds()
			if want := outputSum(size); got != size || string(sum.Sum(nil)) != want {
				return f, fmt.Errorf("got %d bytes with the hash %x, want %d with %x", got, sum.Sum(nil), size, want)
			}
			return f, nil
		}
	}
	return f, context.Cause(ctx)
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

// A socketReader reads a socket that blocks.
type socketReader int

func (fd socketReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), p)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// A frameReader reads the data frames of a WebSocket whole, and answers pings.
type frameReader struct {
	fd int
	in *bufio.Reader
}

func (r *frameReader) next() ([]byte, error) {
	for {
		var head []byte
		length, ok := uint64(0), false
		for !ok {
			c, err := r.in.ReadByte()
			if err != nil {
				return nil, err
			}
			head = append(head, c)
			if length, ok, err = parseHeader(head); err != nil {
				return nil, err
			}
		}
		if length > contracts.MaxLineBytes {
			return nil, fmt.Errorf("frame of %d bytes", length)
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(r.in, payload); err != nil {
			return nil, err
		}
		switch head[0] & 15 {
		case opText:
			return payload, nil
		case opPing:
			if err := writeAll(r.fd, appendMasked(nil, opPong, payload)); err != nil {
				return nil, err
			}
		case opClose:
			return nil, fmt.Errorf("server closed the connection: %q", payload)
		}
	}
}

// resident is how many bytes of memory a process has.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, err
	}
	return pages * int64(os.Getpagesize()), nil
}

// shut closes what is only read.
func shut(fd int) { _ = unix.Close(fd) }
