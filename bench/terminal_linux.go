package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/contracts"
)

// Programs that run a command on a terminal.
const (
	nameRaw  = "a read loop"
	nameTmux = "tmux, nobody attached"
)

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
func (b *bench) terminals(ctx context.Context) error {
	runs := []contender{{name: nameRaw}}
	for _, n := range b.plan.terminal.clients {
		runs = append(runs, contender{name: clientsOf(n), program: "maestro"})
	}
	runs = append(runs, contender{name: nameTmux})
	if err := b.build(ctx, "maestro"); err != nil {
		return err
	}
	lines := b.plan.terminal.lines
	size := 0
	for width, from := 1, 1; from <= lines; width, from = width+1, from*10 {
		size += (min(lines+1, from*10) - from) * (width + 1)
	}
	line := "exec seq 1 " + strconv.Itoa(lines)
	var res results[throughput]
	for rep := range b.plan.reps {
		for i, c := range runs {
			if res.void(c.name) != "" {
				continue
			}
			var took time.Duration
			var err error
			switch c.name {
			case nameRaw:
				took, err = rawTerminal(line)
			case nameTmux:
				took, err = tmuxTerminal(ctx, b.bin, line)
			default:
				took, err = b.followed(ctx, line, b.plan.terminal.clients[i-1])
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			t := throughput{float64(size) / 1e6 / took.Seconds(), took}
			res.add(c.name, t, err)
			if err != nil {
				b.logf("repetition %d, %s: void: %v", rep+1, c.name, err)
				if !errors.Is(err, exec.ErrNotFound) {
					b.voids = append(b.voids, fmt.Errorf("void: %s: %w", c.name, err))
				}
			} else {
				b.logf("repetition %d, %s: %v", rep+1, c.name, t)
			}
		}
	}
	b.reportTerminals(&res, size)
	return nil
}

func (b *bench) reportTerminals(res *results[throughput], size int) {
	t := table{
		title: "Terminals",
		notes: []string{fmt.Sprintf("A program writes %.1f MB of short lines to a terminal, as fast as it is read. Followers are WebSocket clients "+
			"that read everything and look at nothing. The read loop does nothing with what it reads; tmux keeps a screen and shows it to nobody.", float64(size)/1e6)},
		head: []string{"program", "MB/s", "x a read loop"},
	}
	for _, name := range res.names {
		if why := res.void(name); why != "" {
			t.add(name, "void: "+why)
			continue
		}
		t.add(name, spread(res.of(name, throughputRate)), spread(res.of(name, throughputRate).over(res.of(nameRaw, throughputRate))))
	}
	b.report.tables = append(b.report.tables, t)
	for i, n := range b.plan.terminal.clients {
		limits := []float64{1 / 0.9, 1 / 0.75}
		b.report.targets = append(b.report.targets, target{
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
	defer shut(master)
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

// tmuxTerminal runs a line in a session that nobody is attached to.
func tmuxTerminal(ctx context.Context, dir, line string) (took time.Duration, err error) {
	path, err := exec.LookPath("tmux")
	if err != nil {
		return 0, err
	}
	tmux := func(args ...string) error {
		cmd := exec.CommandContext(ctx, path, append([]string{"-f", os.DevNull, "-S", filepath.Join(dir, "tmux")}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("tmux %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	defer func() { err = errors.Join(err, tmux("kill-server")) }()
	began := time.Now()
	// Its last word has been read when what comes after it is run by tmux.
	if err := tmux("new-session", "-d", "-x", "80", "-y", "24", "/bin/sh", "-c", "("+line+"); "+path+" wait-for -S over; exec sleep 1000"); err != nil {
		return 0, err
	}
	if err := tmux("wait-for", "over"); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// followed runs a line on a terminal of maestro that clients follow, the one that
// started it among them.
func (b *bench) followed(ctx context.Context, line string, clients int) (took time.Duration, err error) {
	dir, err := os.MkdirTemp(b.bin, "serve-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s, session, err := serve(ctx, b.built["maestro"], dir, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	ends := make(chan error, clients)
	var owner int
	for i := range clients {
		d := operatorDialect(session)
		if i > 0 {
			d = attachDialect(session, contracts.RoleViewer)
		}
		fd, rest, err := dial(s.addr, d)
		if err != nil {
			return 0, err
		}
		defer shut(fd)
		if i == 0 {
			owner = fd
		}
		go func() { ends <- drain(fd, rest) }() // ends with the command, or when the socket is closed
	}
	start := fmt.Sprintf(`{"type":"utility_command_start","command_id":"bench","command":%q,"terminal_mode":"pty"}`, line)
	began := time.Now()
	if err := writeAll(owner, appendMasked(nil, opText, []byte(start))); err != nil {
		return 0, err
	}
	for range clients {
		select {
		case err := <-ends:
			if err != nil {
				return 0, err
			}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(time.Minute):
			return 0, errors.New("the command has not ended after a minute")
		}
	}
	return time.Since(began), nil
}

// drain reads until the command has exited.
func drain(fd int, rest []byte) error {
	const mark = `"utility_command_exited"`
	buf := make([]byte, readSize)
	kept := append([]byte(nil), rest...) // the end of what was read before
	for !bytes.Contains(kept, []byte(mark)) {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.New("server closed the connection")
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
	d.opening = `{"type":"hello","role":"controller","capabilities":{"utility_operations":["command_exec","file_search","file_watch"]}}`
	return d
}
