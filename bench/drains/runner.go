package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A runner is one process of the program.
type runner struct {
	cmd   *exec.Cmd
	stdin io.Closer
	errs  bytes.Buffer // what it said on standard error
	base  string
}

// start starts a runner and waits until it listens.
func start(binary, workspace, name, manifest string, more ...string) (*runner, error) {
	args := append([]string{
		"hosted-runner", "--agent", "conformance", "--auth", "off", "--ready-stdout", "--exit-on-stdin-eof",
		"--listen", "127.0.0.1:0", "--runner-session-id", name, "--workspace-root", workspace,
	}, more...)
	if manifest != "" {
		args = append(args, "--restore-manifest", manifest)
	} else {
		args = append(args, "--maestro-session-id", session)
	}
	r := &runner{cmd: exec.Command(binary, args...)}
	r.cmd.Stderr = &r.errs
	r.cmd.Env = append(os.Environ(), "SHELL=/bin/sh")
	r.cmd.WaitDelay = time.Second
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.stdin = stdin
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var ready struct {
		BaseURL string `json:"baseUrl"`
	}
	if err = errors.Join(err, json.Unmarshal(line, &ready)); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w\n%s", name, err, r.errs.String()), r.cmd.Process.Kill(), r.cmd.Wait())
	}
	r.base = ready.BaseURL
	return r, nil
}

// end closes the runner's input and waits until it has ended. Only a runner that
// ends by itself, and well, has ended rightly.
func (r *runner) end() error {
	if r == nil {
		return nil
	}
	late := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() }) // Wait says so
	defer late.Stop()
	err := errors.Join(r.stdin.Close(), r.cmd.Wait())
	if err != nil {
		err = fmt.Errorf("end the runner: %w\n%s", err, r.errs.String())
	}
	return err
}

// drain asks the runner to drain, and returns its answer.
func (r *runner) drain(ctx context.Context) (text []byte, err error) {
	const body = `{"reason":"moving","requested_by":"drains","export_paths":["notes.md"]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/.well-known/evalops/remote-runner/drain", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("drain: %s %s", resp.Status, text)
	}
	return text, err
}
