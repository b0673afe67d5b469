package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/contracts"
)

const nameRaw = "a read loop"

// clientsOf names maestro with so many clients that follow.
func clientsOf(n int) string { return fmt.Sprintf("maestro serve: %d followed", n) }

// A throughput is how fast a program on a terminal could write.
type throughput struct {
	rate float64 // MB/s, as the program wrote
	took time.Duration
}

func (t throughput) String() string {
	return fmt.Sprintf("%.1f MB/s in %v", t.rate, t.took.Round(time.Millisecond))
}

func throughputRate(t throughput) float64 { return t.rate }

// terminals measures how fast a program on a terminal can write when everybody
// who follows gets everything.
func (t *trial) terminals() {
	runs := []contender{{name: nameRaw}}
	for _, n := range t.plan.terminal.clients {
		runs = append(runs, contender{name: clientsOf(n), program: "maestro", viewers: n})
	}
	lines := t.plan.terminal.lines
	size := 0
	for width, from := 1, 1; from <= lines; width, from = width+1, from*10 {
		size += (min(lines+1, from*10) - from) * (width + 1)
	}
	line := "exec seq 1 " + strconv.Itoa(lines)
	t.reportTerminals(rounds(t, runs, func(t *trial, c contender) throughput {
		var took time.Duration
		if c.name == nameRaw {
			took = must(rawTerminal(line))
		} else {
			took = t.followed(line, c.viewers)
		}
		return throughput{float64(size) / 1e6 / took.Seconds(), took}
	}), size)
}

func (t *trial) reportTerminals(res *results[throughput], size int) {
	t.report.show(res.table("Terminals",
		fmt.Sprintf("A program writes %.1f MB of short lines to a terminal, as fast as it is read. Followers are WebSocket clients "+
			"that read everything and look at nothing. The read loop does nothing with what it reads.", float64(size)/1e6),
		"program", res.each("MB/s", spread, throughputRate), res.over("x a read loop", spread, throughputRate, nameRaw)))
	for i, n := range t.plan.terminal.clients {
		limits := []float64{1 / 0.9, 1 / 0.75}
		t.report.judge(target{
			what:  fmt.Sprintf("time a program on a terminal takes with %d followers", n),
			limit: limits[min(i, len(limits)-1)], unit: "x", versus: nameRaw,
			got:  res.of(nameRaw, throughputRate).over(res.of(clientsOf(n), throughputRate)),
			void: cmp.Or(res.void(clientsOf(n)), res.void(nameRaw)),
		})
	}
}

// rawTerminal runs a line on a terminal and reads what it writes.
func rawTerminal(line string) (time.Duration, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(master) }() // it is only read
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return 0, err
	}
	theirs, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	began := time.Now()
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return 0, err
	}
	buf := make([]byte, 64<<10)
	for {
		if _, err := unix.Read(master, buf); err == unix.EIO {
			break
		} else if err != nil && err != unix.EINTR {
			return 0, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	took := time.Since(began)
	return took, cmd.Wait()
}

// followed runs a line on a terminal of maestro that clients follow, the one that
// started it among them.
func (t *trial) followed(line string, clients int) time.Duration {
	s, owner := t.serveDriven(t.tempDir(t.bin), "conformance")
	ends := make(chan error, clients)
	follow := func(w *wire) { ends <- drain(w) } // ends with the command, or when the socket is closed
	for range clients - 1 {
		w := must(dialWire(s.addr, s.dialect))
		t.atEnd(w.close)
		go follow(w)
	}
	go follow(owner.wire)
	began := time.Now()
	check(owner.command(&contracts.UtilityCommandStart{CommandID: "bench", Command: line, TerminalMode: contracts.TerminalPTY}))
	for range clients {
		select {
		case err := <-ends:
			check(err)
		case <-t.ctx.Done():
			check(context.Cause(t.ctx))
		case <-time.After(time.Minute):
			check(errors.New("the command has not ended after a minute"))
		}
	}
	return time.Since(began)
}

// drain reads until the command has exited.
func drain(w *wire) error {
	const mark = `"utility_command_exited"`
	buf := make([]byte, readSize)
	var kept []byte // the end of what was read before
	for !bytes.Contains(kept, []byte(mark)) {
		n, err := w.in.Read(buf)
		if err != nil {
			return err
		}
		tail := buf[max(0, n-4096):n] // the event of the end is short, and nothing comes after it
		kept = append(kept[max(0, len(kept)-len(mark)):], tail...)
	}
	return nil
}

// operatorDialect is how a controller attaches that uses utilities. It creates the
// session if there is none.
func operatorDialect(session string) dialect {
	d := attachDialect(session, contracts.RoleController)
	d.path += "&create=1"
	d.opening = `{"type":"hello","role":"controller","capabilities":{"raw_agent_events":true,"utility_operations":["command_exec","file_search","file_watch"]}}`
	return d
}
