package chaos

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ListenVariable names the address that a hosted runner listens on.
const ListenVariable = "MAESTRO_HOSTED_RUNNER_LISTEN"

// Stdio runs a server that speaks on its standard streams, passes lines between it and
// ours, and returns the exit status for this process.
func Stdio(command []string, faults []Fault) int {
	c, err := begin(command, faults)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := make(chan struct{})
	go func() { // ends with the command's output
		defer close(out)
		c.lines(c.stdout, os.Stdout, Server)
		_ = os.Stdout.Close() // a client that hung up closed it
	}()
	go c.input(func() { c.lines(os.Stdin, c.stdin, Client) })
	return c.end(out)
}

// Runner runs a hosted runner behind a [Proxy], and returns the exit status for this
// process. The proxy listens where the environment says that the runner should; the
// runner gets another port and its ready line is rewritten.
func Runner(command []string, faults []Fault) int {
	behind, err := freePort()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	address := os.Getenv(ListenVariable)
	_, port, err := net.SplitHostPort(address)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 {
		behind = address // the runner is to refuse it
	}
	c, err := begin(command, append([]Fault{{Point: Process, Action: "env", Arg: ListenVariable + "=" + behind}}, faults...))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := make(chan struct{})
	var server http.Server
	go func() { // ends with the command's output
		defer close(out)
		lines := bufio.NewReader(c.stdout)
		line, err := lines.ReadString('\n')
		if err != nil {
			_, _ = io.WriteString(os.Stdout, line)
			return
		}
		proxy, listener, err := before(line, address, faults)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			_ = c.cmd.Process.Kill() // it may have ended
			return
		}
		server.Handler = proxy
		go func() { _ = server.Serve(listener) }() // until Close below
		line = strings.Replace(line, behind, listener.Addr().String(), 1)
		c.each("ready", func(arg string) { line = string(substitute(arg, []byte(line))) })
		_, _ = io.WriteString(os.Stdout, line)
		_, _ = io.Copy(os.Stdout, lines)
	}()
	go c.input(func() { _, _ = io.Copy(c.stdin, os.Stdin) })
	status := c.end(out)
	_ = server.Close()
	return status
}

// before listens before a runner that said in its ready line where it is.
func before(line, address string, faults []Fault) (*Proxy, net.Listener, error) {
	base, _ := parseText([]byte(line)).at("baseUrl")
	proxy, err := NewProxy(shown(base), faults)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", cmp.Or(address, "127.0.0.1:0"))
	return proxy, listener, err
}

// freePort returns a loopback address whose port is free.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// A wrapped is the process of a command, between our standard streams and its own.
type wrapped struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	faults []Fault
	ended  sync.WaitGroup // what passes standard error on
}

// each calls do with the argument of each fault of the process with an action.
func (c *wrapped) each(action string, do func(arg string)) {
	for _, f := range choose(c.faults, Process) {
		if f.Action == action {
			do(f.Arg)
		}
	}
}

// has reports whether a fault of the process has an action.
func (c *wrapped) has(action string) bool {
	found := false
	c.each(action, func(string) { found = true })
	return found
}

// begin starts the command.
func begin(command []string, faults []Fault) (*wrapped, error) {
	if len(command) == 0 {
		return nil, errors.New("no command")
	}
	c := &wrapped{faults: faults}
	c.each("flag", func(arg string) { command = append(command, arg) })
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Env = os.Environ()
	c.each("env", func(arg string) {
		if name, value, _ := strings.Cut(arg, "="); value == "" {
			c.cmd.Env = append(c.cmd.Env, name+"=") // which the programs take for absent
		} else {
			c.cmd.Env = append(c.cmd.Env, arg)
		}
	})
	c.each("start", func(arg string) { _ = wait(context.Background(), arg) })
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.stdout, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	signals := make(chan os.Signal, 8) // never closed: the process ends with the command
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		for sig := range signals {
			if !c.has("deaf") {
				_ = c.cmd.Process.Signal(sig) // it may have ended
			}
		}
	}()
	c.ended.Go(func() { // ends with the command's output
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadBytes('\n')
			c.each("stderr", func(arg string) { line = substitute(arg, line) })
			_, _ = os.Stderr.Write(line)
			if err != nil {
				return
			}
		}
	})
	return c, nil
}

// lines passes lines on with the faults of a point.
func (c *wrapped) lines(from io.Reader, to io.Writer, at Point) {
	l := link{faults: choose(c.faults, at), parse: parseText}
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			text, end := cutLine(line)
			sent, cut := l.pass(context.Background(), text)
			for _, text := range sent {
				if _, err := to.Write(append(text, end...)); err != nil {
					return
				}
			}
			if cut != nil {
				return
			}
		}
		if err != nil {
			if held := l.rest(); held != nil {
				_, _ = to.Write(append(held, '\n')) // the end may have gone
			}
			return
		}
	}
}

// input passes our input on, and then its end.
func (c *wrapped) input(pass func()) {
	pass()
	if c.has("kill") {
		_ = c.cmd.Process.Kill() // it may have ended
	}
	if !c.has("eof") {
		_ = c.stdin.Close() // the command may have closed it
	}
}

// end waits for the command and what passes its output on, and returns the exit status.
func (c *wrapped) end(out <-chan struct{}) int {
	<-out
	c.ended.Wait()
	_ = c.cmd.Wait() // the status says it all
	status := c.cmd.ProcessState.ExitCode()
	if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		status = 128 + int(s.Signal())
	}
	c.each("linger", func(arg string) {
		d, _ := time.ParseDuration(arg) // Parse has checked it
		time.Sleep(d)
	})
	c.each("exit", func(arg string) { status, _ = strconv.Atoi(arg) })
	return status
}
