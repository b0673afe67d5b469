package acp

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/command"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

const (
	// maxTerminals bounds the terminals of a run that the program has not
	// released.
	maxTerminals = 32

	// Bounds of a terminal's stored output, in bytes from its end.
	defaultOutput = 1 << 20
	maxOutput     = 4 << 20
)

// A terminal is a command that the program runs in the workspace. It belongs to
// a run: interrupting the run ends it, and it is released with the run at the
// latest. The protocol does not say how long a terminal lives, but after a run
// nobody would see it or could stop it.
type terminal struct {
	id    string
	line  string // the command line
	run   *run
	stop  context.CancelFunc // kills it
	done  chan struct{}      // closed when the command has ended
	limit int

	// Guarded by peer.mu.
	output []byte                  // at most twice the limit; see terminal.text
	cut    bool                    // output was lost
	exit   *acp.TerminalExitStatus // nil before the command has ended; not changed afterwards
	shown  *call                   // the call that shows the output; nil before one refers to it
}

// createTerminal serves terminal/create. r does not end before it returns.
func (p *peer) createTerminal(_ context.Context, r *run, params acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	if params.Command == "" {
		return acp.CreateTerminalResponse{}, acp.NewInvalidParams(map[string]any{"details": "command is required"})
	}
	dir, err := p.directory(params.Cwd)
	if err != nil {
		return acp.CreateTerminalResponse{}, err
	}
	env := proc.Environ(os.Environ(), p.a.opts.Hosted, p.a.opts.EnvPass)
	for _, v := range params.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	t, ctx, err := p.addTerminal(r, commandLine(params.Command, params.Args), params.OutputByteLimit)
	if err != nil {
		return acp.CreateTerminalResponse{}, err
	}
	c := command.Command{Shell: p.a.opts.Shell, Line: t.line, Dir: dir, Env: env}
	r.work.Add(1)
	p.serving.Go(func() { // ends with the command, which ends with the run
		defer r.work.Done()
		exit, err := c.Run(ctx, func(text string) error { p.emit(t, text); return nil })
		t.stop()
		p.ended(t, exit, err)
	})
	return acp.CreateTerminalResponse{TerminalId: t.id}, nil
}

// directory returns the working directory of a command: cwd, or the root.
func (p *peer) directory(cwd *string) (string, error) {
	if cwd == nil || *cwd == "" {
		return p.a.files.Root(), nil
	}
	rel, err := p.inside(*cwd)
	if err != nil {
		return "", err
	}
	rel, err = p.a.files.Real(rel)
	return p.a.files.At(rel), fileRefusal(*cwd, err)
}

// addTerminal registers a terminal whose command is about to start.
func (p *peer) addTerminal(r *run, line string, limit *int) (*terminal, context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.over || r.stopping {
		return nil, nil, acp.NewInvalidRequest(map[string]any{"details": "the run has ended"})
	}
	if len(r.terminals) == maxTerminals {
		return nil, nil, acp.NewInvalidRequest(map[string]any{
			"details": fmt.Sprintf("%d terminals are open: release one first", maxTerminals),
		})
	}
	p.counted++
	t := &terminal{id: "term_" + strconv.Itoa(p.counted), line: line, run: r, limit: defaultOutput, done: make(chan struct{})}
	if limit != nil {
		t.limit = min(max(*limit, 0), maxOutput)
	}
	ctx, stop := context.WithCancel(p.proc.Life())
	t.stop = stop
	r.terminals[t.id] = t
	return t, ctx, nil
}

// commandLine returns the line that runs a program with args. Without args the
// program may be a whole line, as some agents send.
func commandLine(program string, args []string) string {
	if len(args) == 0 {
		return program
	}
	words := []string{quote(program)}
	for _, arg := range args {
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}

// quote quotes a word for the shell.
func quote(word string) string {
	if runtime.GOOS == "windows" {
		return `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// emit stores output of a terminal's command, and publishes it if a call shows
// it. While that blocks, the command blocks.
func (p *peer) emit(t *terminal, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.output = append(t.output, text...)
	if len(t.output) > 2*t.limit {
		t.output = append(t.output[:0], t.text()...)
		t.cut = true
	}
	if t.shown != nil && t.shown.stage == started {
		p.output(t.shown, text)
	}
}

// text returns the end of the output, beginning with a whole character.
func (t *terminal) text() string { return contracts.TailText(string(t.output), t.limit) }

// ended records how a terminal's command ended. If it could not be started, the
// output says why, as in a shell.
func (p *peer) ended(t *terminal, exit command.Exit, err error) {
	if err != nil && exit == (command.Exit{}) {
		p.emit(t, "cannot run the command: "+err.Error()+"\n")
		exit.Code = 127
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.exit = &acp.TerminalExitStatus{ExitCode: &exit.Code}
	if exit.Signal != "" {
		t.exit = &acp.TerminalExitStatus{Signal: &exit.Signal}
	}
	close(t.done)
}

// follow makes a call show the output of a terminal, including the stored
// output. Only one call shows a terminal. The caller holds p.mu.
func (p *peer) follow(r *run, c *call, id string) {
	t := r.terminals[id]
	if t == nil || t.shown == c {
		return
	}
	t.shown = c
	p.output(c, t.text())
}

// onTerminal returns a handler of a request about one of the program's terminals.
func (p *peer) onTerminal(m rpc.Message, f func(context.Context, *terminal) (any, error)) handler {
	return with(m.Params, func(ctx context.Context, _ *run, params acp.TerminalOutputRequest) (any, error) { // all have the same params
		p.mu.Lock()
		var t *terminal
		if p.run != nil {
			t = p.run.terminals[params.TerminalId]
		}
		p.mu.Unlock()
		if t == nil {
			data := map[string]any{"terminalId": params.TerminalId}
			return nil, &acp.RequestError{Code: errNotFound, Message: "Resource not found", Data: data}
		}
		return f(ctx, t)
	})
}

// terminalOutput serves terminal/output.
func (p *peer) terminalOutput(_ context.Context, t *terminal) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := t.text()
	return acp.TerminalOutputResponse{Output: text, Truncated: t.cut || len(text) < len(t.output), ExitStatus: t.exit}, nil
}

// awaitTerminal serves terminal/wait_for_exit.
func (p *peer) awaitTerminal(ctx context.Context, t *terminal) (any, error) {
	select {
	case <-t.done:
		return acp.WaitForTerminalExitResponse{ExitCode: t.exit.ExitCode, Signal: t.exit.Signal}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// releaseTerminal serves terminal/release: the command ends, and the terminal
// is removed.
func (p *peer) releaseTerminal(ctx context.Context, t *terminal) (any, error) {
	t.stop()
	if _, err := p.awaitTerminal(ctx, t); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(t.run.terminals, t.id)
	return acp.ReleaseTerminalResponse{}, nil
}

// endTerminals ends the terminals of a run that is ending, and reports the
// commands that were still running. The caller holds p.mu.
func (p *peer) endTerminals(r *run) {
	var left []string
	for _, t := range r.terminals {
		if t.exit != nil {
			continue
		}
		t.stop()
		line, _, _ := strings.Cut(mask.Command(t.line), "\n")
		left = append(left, abridge.Bytes(line, maxLabel))
	}
	if len(left) == 0 || r.stopping || p.proc.Life().Err() != nil { // the reason for their end is clear
		return
	}
	slices.Sort(left)
	p.status("Ended with the run, because the agent left them running: " + strings.Join(left, "; "))
}
