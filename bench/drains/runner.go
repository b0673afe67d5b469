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

// post sends a request and returns the answer's body.
func (r *runner) post(ctx context.Context, path string, header map[string]string, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	return answer(http.DefaultClient.Do(req))
}

func answer(resp *http.Response, err error) (int, []byte, error) {
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or nobody wants the rest
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// must is post for what has to be accepted.
func (r *runner) must(ctx context.Context, path string, header map[string]string, body string, into any) error {
	status, text, err := r.post(ctx, path, header, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("POST %s: %d %s", path, status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}
