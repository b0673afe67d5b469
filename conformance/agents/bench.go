package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/conformance/judge"
)

// A candidate is one agent to be judged.
type candidate struct {
	name    string
	agent   string   // of --agent
	serving []string // further flags of the server
	prompts []string // flags that say what to prompt; none for the default
	run     string   // scenarios, if not all
}

// A bench is where candidates are judged.
type bench struct {
	binary string // of maestro
	dir    string // scratch
	model  string // URL of the local model
	acp    string // binary of the example agent

	stop func()   // ends the local model
	said *os.File // what it prints; held open for as long as it lives

	mu  sync.Mutex // guards out
	out io.Writer
}

// Where what is judged comes from.
const (
	modelPackage = "github.com/seed-028515a8/maestro/internal/testkit/localmodel/serve"
	acpPackage   = "github.com/coder/acp-go-sdk/example/agent"
)

// prepare builds what is needed beside maestro, and starts the model.
func (b *bench) prepare(ctx context.Context) error {
	model := filepath.Join(b.dir, "model")
	b.acp = filepath.Join(b.dir, "acp-agent")
	for path, pkg := range map[string]string{model: modelPackage, b.acp: acpPackage} {
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	output, input, err := os.Pipe()
	if err != nil {
		return err
	}
	b.said = output
	b.stop, err = start(ctx, input, model, "--listen", "127.0.0.1:0")
	_ = input.Close() // the model has its own
	if err != nil {
		return err
	}
	b.model, err = firstURL(output)
	return err
}

// close ends what prepare started.
func (b *bench) close() {
	if b.stop != nil {
		b.stop()
	}
	if b.said != nil {
		_ = b.said.Close() // it was read as far as it is of use
	}
}

// firstURL returns the URL that a program prints first of all.
func firstURL(from *os.File) (string, error) {
	if err := from.SetReadDeadline(time.Now().Add(readyPatience)); err != nil {
		return "", err
	}
	text := make([]byte, 0, 4096)
	for len(text) < cap(text) {
		n, err := from.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if m := regexp.MustCompile(`http://[0-9.]+:[0-9]+\b`).Find(text); m != nil && bytes.Contains(text, []byte("\n")) {
			return string(m), nil
		}
		if err != nil {
			return "", fmt.Errorf("the local model said %q and then: %w", text, err)
		}
	}
	return "", fmt.Errorf("the local model said no URL but %q", text)
}

// candidates returns the agents whose names match.
func (b *bench) candidates(only *regexp.Regexp) []candidate {
	const aboutAgents = "^agent/"
	same := func(text string) []string { return []string{"--say", text, "--long", text, "--ask", text} }
	all := []candidate{
		{"acp", "acp:" + b.acp, nil, same("hello"), aboutAgents}, // whatever is said, it does the same
		{"llm:anthropic", "llm:anthropic/local", []string{"--model-url", b.model}, nil, ""},
		{"llm:openai", "llm:openai/local", []string{"--model-url", b.model + "/v1"}, nil, aboutAgents},
		{"llm:openai-chat", "llm:openai-chat/local", []string{"--model-url", b.model + "/v1"}, nil, aboutAgents},
		{"shell", "shell", nil, []string{"--say", "echo hello", "--long", "sleep 4", "--ask", "echo asked"}, aboutAgents},
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return !only.MatchString(c.name) })
}

// judge judges one agent on every transport.
func (b *bench) judge(ctx context.Context, c candidate) error {
	dir, err := os.MkdirTemp(b.dir, "server-")
	if err != nil {
		return err
	}
	workspace := filepath.Join(dir, "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		return err
	}
	flags := append([]string{"--agent", c.agent, "--workspace", workspace}, c.serving...)
	server, ready, err := judge.Start(ctx, slices.Concat([]string{b.binary, "serve", "--listen", "127.0.0.1:0", "--auth", "off", "--request-rate", "-1",
		"--heartbeat-interval", "3s", "--lease-ttl", "10s", "--subscription-ttl", "5s", "--state-dir", filepath.Join(dir, "state"),
		"--ready-stdout", "--exit-on-stdin-eof"}, flags), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	failed := ""
	for _, target := range []string{"stdio:" + quoted(append([]string{b.binary, "headless"}, flags...)), strings.Replace(ready.BaseURL, "http", "ws", 1), ready.BaseURL} {
		transport, _, _ := strings.Cut(target, ":")
		if !b.conforms(ctx, c, transport, target) {
			failed += " " + transport
		}
	}
	err = server.Stop(leavePatience)
	if failed != "" {
		err = errors.Join(fmt.Errorf("%s does not conform over%s; the server's log:\n%s", c.name, failed, server.Diagnostics()), err)
	}
	return err
}

// conforms judges one target, and prints the report unless it passed.
func (b *bench) conforms(ctx context.Context, c candidate, transport, target string) bool {
	args := append([]string{"conformance", "--runtime", "any", "--target", target, "--run", c.run}, c.prompts...)
	cmd := exec.CommandContext(ctx, b.binary, args...)
	report, err := cmd.CombinedOutput()
	lines := bytes.Split(bytes.TrimSpace(report), []byte("\n"))
	_, sum, _ := bytes.Cut(lines[len(lines)-1], []byte(": "))
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		judge.Say(b.out, "FAIL  %-16s %-6s %v\n%s\n", c.name, transport, err, report)
		return false
	}
	judge.Say(b.out, "ok    %-16s %-6s %s\n", c.name, transport, sum)
	return true
}

// readyPatience bounds the start of the model.
const readyPatience = 30 * time.Second

// leavePatience is how long a program may take to end before it is killed.
const leavePatience = 10 * time.Second

// start starts a program that runs until stop, which waits for its end, or until
// ctx ends.
func start(ctx context.Context, out *os.File, name string, args ...string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout = out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = leavePatience
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", filepath.Base(name), err)
	}
	return func() {
		cancel()
		_ = cmd.Wait() // it was told to end
	}, nil
}

// quoted writes words as a command line.
func quoted(words []string) string {
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}
