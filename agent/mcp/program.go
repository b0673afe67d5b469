package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
	"github.com/seed-028515a8/maestro/internal/proc"
)

const (
	maxBadLines = 16          // lines in a row that are no messages; one more ends the program
	exitGrace   = time.Second // time from the end of the program's input to the signal to end
)

// command returns the command of a server's program in the workspace dir.
func command(s *Server, dir string, env []string) (*exec.Cmd, error) {
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		dir = filepath.Join(dir, s.Dir)
	} else if s.Dir != "" {
		dir = s.Dir
	}
	if at, err := os.Stat(dir); err != nil { // otherwise the program would be reported as missing
		return nil, &fault{"the directory in which it is to start (cwd) does not exist", err}
	} else if !at.IsDir() {
		return nil, &fault{words: "where it is to start (cwd) is no directory"}
	}
	path, err := proc.FindProgram(s.Command, dir, env)
	if err != nil {
		return nil, startError(err)
	}
	cmd := exec.Command(path, s.Args...)
	cmd.Args[0] = s.Command
	cmd.Dir, cmd.Env = dir, env
	return cmd, nil
}

// startError returns the error of a program that could not be started.
func startError(err error) error {
	return &fault{"its program does not start: " + cmp.Or(systemWords(err), "see the server's log"), err}
}

// listen receives the program's output, line by line. It logs lines that are no
// messages, because many programs print greetings or warnings there.
func (p *pipe) listen(stdout io.Reader) {
	lines := line.NewReader(stdout, contracts.MaxLineBytes)
	bad := 0
	for {
		text, err := lines.Next()
		if errors.Is(err, line.ErrLong) {
			p.Kill(fmt.Errorf("wrote a line longer than %d bytes", contracts.MaxLineBytes))
			return
		}
		if err != nil {
			return
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		messages, err := decode(text)
		if err != nil {
			p.log.Debug("MCP server wrote a line that is not a message", "line", label(string(text[:min(len(text), maxLabel)])))
			if bad++; bad > maxBadLines {
				p.Kill(fmt.Errorf("wrote %d lines in a row that are no messages", bad))
				return
			}
			continue
		}
		bad = 0
		for _, m := range messages {
			if !p.receive(m) {
				return
			}
		}
	}
}

// failure returns why the program ended, with the last line of its standard
// error as the detail. Call it after the end.
func (p *pipe) failure() error {
	cause := p.Failure()
	if cause == nil {
		return nil
	}
	f := &fault{words: cause.Error()}
	if words := p.LastWords(); words != "" {
		f.words += "; what it said is in the server's log"
		f.detail = errors.New(words)
	}
	return f
}
