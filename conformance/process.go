package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// maxDiagnostics bounds what is kept of a server's standard error: its end.
const maxDiagnostics = 8 << 10

// process is a link to a server that speaks on its standard streams.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *bufio.Reader
	pipe   *io.PipeReader // what out reads
	stderr *tail

	exited chan struct{} // closed once status and waitErr are set
	status int
	err    error
}

// startProcess runs a command line, split as words and not by a shell, with
// variables beside our own.
func startProcess(line string, environ []string) (Link, error) {
	words, err := splitWords(line)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("stdio target names no command")
	}
	return runCommand(words, append(os.Environ(), environ...))
}

// runCommand starts a command with an environment.
func runCommand(words, environ []string) (*process, error) {
	pr, pw := io.Pipe() // Wait would close a StdoutPipe under a reader
	p := &process{cmd: exec.Command(words[0], words[1:]...), out: bufio.NewReaderSize(pr, maxReadyLine), pipe: pr, stderr: &tail{}, exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environ, pw, p.stderr
	p.cmd.WaitDelay = time.Second // pipes that a grandchild holds open
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", words[0], err)
	}
	go p.wait(pw) // ends when the process does; Close kills it and waits
	return p, nil
}

func (p *process) wait(out *io.PipeWriter) {
	err := p.cmd.Wait()
	p.status = p.cmd.ProcessState.ExitCode()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		p.err = err
	}
	_ = out.Close() // always nil
	close(p.exited)
}

func (p *process) Send(_ context.Context, text []byte) error {
	_, err := p.stdin.Write(append(bytes.Clone(text), '\n'))
	return err
}

func (p *process) SendRaw(_ context.Context, data []byte) error {
	_, err := p.stdin.Write(data)
	return err
}

// Recv does not look at ctx: Close ends the process and thereby the wait.
func (p *process) Recv(context.Context) ([]byte, error) {
	var line []byte
	for {
		part, err := p.out.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case len(line) > contracts.MaxLineBytes+1:
			return nil, fmt.Errorf("a line longer than %d bytes", contracts.MaxLineBytes)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, fmt.Errorf("output ends without a line feed: %q", abridge(line, 80))
		default:
			return nil, err
		}
	}
}

func (p *process) CloseInput() error { return p.stdin.Close() }

func (p *process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.exited:
		return p.status, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (p *process) Diagnostics() string { return p.stderr.String() }

// Close hangs up at both ends, which a server takes for the end of its session
// and its children's, and kills it if it does not.
func (p *process) Close() error {
	_ = p.stdin.Close() // it may be closed, or the process gone
	_ = p.pipe.Close()
	select {
	case <-p.exited:
		return nil
	case <-time.After(graceTime):
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	return err
}

// graceTime is how long a process may take to end when a scenario is over.
const graceTime = 2 * time.Second

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - maxDiagnostics; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// splitWords splits a command line at blanks. Single quotes are literal;
// elsewhere a backslash makes the next character literal.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	open, quote, escaped := false, rune(0), false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			open, escaped = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			open, quote = true, c
		case c == ' ' || c == '\t' || c == '\n':
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		default:
			open = true
			word.WriteRune(c)
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("unfinished quote in command %q", line)
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}
