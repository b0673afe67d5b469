package chaos

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ListenVariable names the address that a hosted runner listens on.
const ListenVariable = "MAESTRO_HOSTED_RUNNER_LISTEN"

// Stdio runs a server that speaks on its standard streams, passes lines between it and
// ours, and returns the exit status for this process.
func Stdio(command []string, faults []Fault) int {
	c := &wrapped{faults: faults}
	return c.run(command, func() {
		c.lines(c.stdout, os.Stdout, Server)
		_ = os.Stdout.Close() // a client that hung up closed it
	}, func() { c.lines(os.Stdin, c.stdin, Client) })
}

// Runner runs a hosted runner behind a [Proxy], and returns the exit status for this
// process. The proxy listens where the environment says that the runner should; the
// runner gets another port and its ready line is rewritten.
func Runner(command []string, faults []Fault) int {
	address := os.Getenv(ListenVariable)
	behind := address // the runner is to refuse an address that is none
	_, port, err := net.SplitHostPort(address)
	if n, wrong := strconv.ParseUint(port, 10, 16); err == nil && wrong == nil && n > 0 {
		if behind, err = freePort(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	c := &wrapped{faults: faults, environ: []string{ListenVariable + "=" + behind}}
	var server http.Server
	status := c.run(command, func() {
		lines := bufio.NewReader(c.stdout)
		line, err := lines.ReadString('\n')
		if err == nil { // else the runner says on standard error why it ended
			if line, err = c.before(&server, line, address, behind); err != nil {
				fmt.Fprintln(os.Stderr, err)
				_ = c.cmd.Process.Kill() // it may have ended
			}
		}
		_, _ = io.WriteString(os.Stdout, line) // a client that has gone needs nothing
		_, _ = io.Copy(os.Stdout, lines)
	}, func() { _, _ = io.Copy(c.stdin, os.Stdin) })
	_ = server.Close()
	return status
}

// before listens before a runner that said in its ready line where it is, and returns
// the line for our client.
func (c *wrapped) before(server *http.Server, line, address, behind string) (string, error) {
	base, _ := parseText([]byte(line)).at("baseUrl")
	proxy, err := NewProxy(shown(base), c.faults)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", cmp.Or(address, "127.0.0.1:0"))
	if err != nil {
		return "", err
	}
	server.Handler = proxy
	go func() { _ = server.Serve(listener) }() // until Runner closes the server
	line = strings.Replace(line, behind, listener.Addr().String(), 1)
	for arg := range c.each("ready") {
		line = string(substitute(arg, []byte(line)))
	}
	return line, nil
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
	faults  []Fault
	environ []string // variables for the command, beside our own

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
}

// each returns the arguments of the faults of the process with an action.
func (c *wrapped) each(action string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, f := range c.faults {
			if f.Point == Process && f.Action == action && !yield(f.Arg) {
				return
			}
		}
	}
}

// has reports whether a fault of the process has an action.
func (c *wrapped) has(action string) bool {
	for range c.each(action) {
		return true
	}
	return false
}

// run runs the command to its end and returns the exit status. output passes its output
// on, and input our input.
func (c *wrapped) run(command []string, output, input func()) int {
	var ended sync.WaitGroup
	if err := c.start(command, &ended); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { // ends with our input, or with the process
		input()
		if c.has("kill") {
			_ = c.cmd.Process.Kill() // it may have ended
		}
		if !c.has("eof") {
			_ = c.stdin.Close() // the command may have closed it
		}
	}()
	output()
	ended.Wait()
	_ = c.cmd.Wait() // the status says it all
	status := c.cmd.ProcessState.ExitCode()
	if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		status = 128 + int(s.Signal())
	}
	for arg := range c.each("linger") {
		_ = wait(context.Background(), arg)
	}
	for arg := range c.each("exit") {
		status, _ = strconv.Atoi(arg) // Parse has checked it
	}
	return status
}

// start starts the command, and in ended what passes its standard error on.
func (c *wrapped) start(command []string, ended *sync.WaitGroup) error {
	if len(command) == 0 {
		return errors.New("no command")
	}
	c.cmd = exec.Command(command[0], slices.AppendSeq(slices.Clone(command[1:]), c.each("flag"))...)
	c.cmd.Env = slices.AppendSeq(slices.Concat(os.Environ(), c.environ), c.each("env")) // an empty variable counts as absent
	for arg := range c.each("start") {
		_ = wait(context.Background(), arg)
	}
	stdin, inErr := c.cmd.StdinPipe()
	stdout, outErr := c.cmd.StdoutPipe()
	stderr, err := c.cmd.StderrPipe()
	if err := cmp.Or(inErr, outErr, err); err != nil {
		return err
	}
	c.stdin, c.stdout = stdin, stdout
	signals := make(chan os.Signal, 8) // never closed: the process ends with the command
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the process
		for sig := range signals {
			if !c.has("deaf") {
				_ = c.cmd.Process.Signal(sig) // it may have ended
			}
		}
	}()
	ended.Go(func() { // ends with the command's standard error
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadBytes('\n')
			for arg := range c.each("stderr") {
				line = substitute(arg, line)
			}
			_, _ = os.Stderr.Write(line)
			if err != nil {
				return
			}
		}
	})
	return nil
}

// lines passes lines on with the faults of a point.
func (c *wrapped) lines(from io.Reader, to io.Writer, at Point) {
	l := link{faults: choose(c.faults, at)}
	in := bufio.NewReader(from)
	var end []byte // of the line: its line feed, which the last one may lack
	_ = l.pump(context.Background(), func() ([]byte, error) {
		line, err := in.ReadBytes('\n')
		text := bytes.TrimSuffix(line, []byte("\n"))
		if len(line) > 0 {
			end = line[len(text):]
		}
		return text, err
	}, func(text []byte) error {
		_, err := to.Write(append(text, end...))
		return err
	})
}
