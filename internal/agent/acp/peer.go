package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// maxServed bounds the requests of a program that are served at once. Further
// ones are refused.
const maxServed = 64

// maxGarbage bounds the lines in a row that are no messages. Programs print
// notices to standard output; one that prints nothing else is ended.
const maxGarbage = 1000

// A peer is one process of the program with its session.
type peer struct {
	a    *Agent
	proc *proc.Process
	conn *rpc.Conn
	log  *slog.Logger
	over chan struct{} // closed when the process and its requests have ended

	life context.Context // bounds publishing and asking; ends soon after the process

	// Set by handshake, before the first run.
	name    string // the program's name; set with mu held, because the reader may read it before
	can     acp.AgentCapabilities
	auth    []named
	session string // set with mu held, because the reader may read it before
	resumed bool   // the session is an earlier one

	level contracts.ThinkingLevel // as last set; owned by Agent.Run

	serving  sync.WaitGroup // goroutines that serve the program, except its reader
	reading  sync.Mutex     // held while a file is read and sent: dozens at once would take gigabytes
	reqMu    sync.Mutex     // guards requests only
	requests map[string]context.CancelFunc

	// mu is held while an event of a run is published, so that the run does not
	// end meanwhile.
	mu         sync.Mutex
	run        *run   // nil between runs
	introduced bool   // initialize was answered
	greeted    bool   // the handshake is done
	garbage    string // the beginning of the first line that was no message, which was reported; "" without one
	used       settings
	modes      []named
	models     string          // the current model of agents without options
	spent      float64         // the cost of the session as last reported
	costKnown  bool            // spent is the base for the next cost
	counted    int             // terminals so far
	strayed    map[string]bool // operations refused since the last run; the keys are ours
}

// newPeer returns a peer whose program has not been started.
func newPeer(a *Agent) *peer {
	cmd := exec.Command(a.argv[0], a.argv[1:]...)
	cmd.Dir, cmd.Env = a.opts.Dir, proc.Environ(os.Environ(), a.opts.Hosted, a.opts.EnvPass)
	p := &peer{
		a: a, log: a.opts.Log, over: make(chan struct{}), name: filepath.Base(a.argv[0]),
		requests: map[string]context.CancelFunc{}, strayed: map[string]bool{},
	}
	p.proc = proc.NewProcess(cmd, proc.ProcessOptions{Name: "agent process", Log: mask.Log(a.opts.Log, mask.Text)})
	p.conn = rpc.New(rpc.Options{Send: p.proc.Send, Serve: p.serve, Bad: p.bad, MaxBad: maxGarbage})
	p.life = context.WithoutCancel(a.life)
	return p
}

func (p *peer) start() error {
	life, stop := context.WithCancel(p.life)
	p.life = life
	if err := p.proc.Start(p.listen); err != nil {
		stop()
		return err
	}
	go func() { // ends with the process
		<-p.proc.Life().Done()
		late := time.AfterFunc(proc.DrainTime, stop) // bounds publishing the process's last events
		<-p.proc.Done()
		late.Stop()
		stop()
		p.serving.Wait()
		p.reportExit()
		close(p.over)
	}()
	return nil
}

// reportExit logs and publishes the exit of the process, unless its run reports
// it.
func (p *peer) reportExit() {
	cause := p.proc.Failure()
	if words := p.proc.LastWords(); words != "" { // for operators only
		cause = fmt.Errorf("%w: %s", cause, mask.Text(words))
	}
	p.mu.Lock()
	greeted, broken := p.greeted, p.run != nil
	p.mu.Unlock()
	if p.a.life.Err() != nil {
		p.log.Debug("agent process ended", "error", cause)
		return // it was closed
	}
	p.log.Warn("agent process ended", "error", cause)
	if greeted && !broken { // otherwise launch or the run returns the error
		p.a.publish(&contracts.ErrorEvent{
			Message: p.proc.Account().Error() + ": it is started again with the next prompt", ErrorType: contracts.ErrorTransient,
		})
	}
}

// listen reads the program's output to its end. If reading fails, it kills the
// program.
func (p *peer) listen(r io.Reader) {
	if err := p.conn.Read(r); err != nil {
		p.proc.Kill(fmt.Errorf("agent process killed: %w", err))
	}
}

// bad reports a line that is no message, once, because a program that prints
// notices prints many. Between runs the report waits for the next run, because
// the hub may not be ready. If the line may have been an answer that a call
// waits for, the program is ended.
func (p *peer) bad(line *rpc.BadLine) error {
	err := fmt.Errorf("agent process wrote what is no message: %w", line)
	p.log.Debug("agent process wrote an unreadable line", "error", err)
	if line.ID != nil {
		p.refuse(line.ID, acp.NewInvalidRequest(line.Text))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.garbage != "":
	case p.active() == nil:
		p.status(err.Error())
	default:
		p.publish(&contracts.ErrorEvent{Message: err.Error(), ErrorType: contracts.ErrorProtocol})
	}
	p.garbage = cmp.Or(p.garbage, line.Head, "?")
	if line.Lost {
		return err
	}
	return nil
}

// publish publishes events. The caller holds p.mu if they belong to a run.
func (p *peer) publish(events ...contracts.Event) { p.logPublish(p.a.host.Publish(p.life, events...)) }

// status publishes a text now or in the next run. The caller holds p.mu.
func (p *peer) status(text string) {
	if p.run == nil || p.run.over {
		p.a.notes.AddOnce(text)
		return
	}
	p.publish(&contracts.Status{Message: visible(text)})
}

// serve handles a message of the program. Only its reader calls it.
func (p *peer) serve(m rpc.Message) {
	switch method := m.Method; {
	case method == acp.ClientMethodSessionUpdate:
		p.update(m.Params)
	case method == methodCancelRequest:
		p.cancelRequest(m.Params)
	case m.ID == nil:
		p.log.Debug("agent process sent an unknown notification", "method", method)
	case method == acp.ClientMethodSessionRequestPermission:
		p.permission(m)
	case method == acp.ClientMethodElicitationCreate:
		p.elicitation(m)
	case method == acp.ClientMethodFsReadTextFile:
		p.handle(m, with(m.Params, p.readFile))
	case method == acp.ClientMethodFsWriteTextFile:
		p.perform(m, "write a file", with(m.Params, p.writeFile))
	case method == acp.ClientMethodTerminalCreate:
		p.perform(m, "run a command", with(m.Params, p.createTerminal))
	case method == acp.ClientMethodTerminalOutput:
		p.handle(m, p.onTerminal(m, p.terminalOutput))
	case method == acp.ClientMethodTerminalWaitForExit:
		p.handle(m, p.onTerminal(m, p.awaitTerminal))
	case method == acp.ClientMethodTerminalKill:
		p.handle(m, p.onTerminal(m, func(_ context.Context, t *terminal) (any, error) {
			t.stop() // the terminal remains
			return acp.KillTerminalResponse{}, nil
		}))
	case method == acp.ClientMethodTerminalRelease:
		p.handle(m, p.onTerminal(m, p.releaseTerminal))
	default:
		p.refuse(m.ID, acp.NewMethodNotFound(method))
	}
}

// methodCancelRequest withdraws a request.
const methodCancelRequest = "$/cancel_request"

// A handler serves a request: its result or its error is the answer. r is the
// run that the request is a part of, nil without one.
type handler func(ctx context.Context, r *run) (any, error)

// with returns a handler that decodes params for f.
func with[P, R any](params json.RawMessage, f func(context.Context, *run, P) (R, error)) handler {
	return func(ctx context.Context, r *run) (any, error) {
		var p P
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, acp.NewInvalidParams("the params cannot be read")
		}
		return f(ctx, r, p)
	}
}

// handle serves a request in a goroutine, which ends with the request, its
// cancellation or the process.
func (p *peer) handle(m rpc.Message, f handler) {
	p.prepare(m, func() (*run, handler) { return nil, f })
}

// perform serves a request that changes something, as a part of a run. Outside a
// run nobody would see the change and nobody could stop it.
func (p *peer) perform(m rpc.Message, what string, f handler) {
	p.prepare(m, func() (*run, handler) {
		p.mu.Lock()
		defer p.mu.Unlock()
		r, why := p.active(), ": the run was interrupted"
		switch {
		case r == nil:
			p.reportStray(what)
			why = " outside of a run"
		case !r.stopping:
			r.work.Add(1)
			return r, f
		}
		err := acp.NewInvalidRequest(map[string]any{"details": "it was refused to " + what + why})
		return nil, func(context.Context, *run) (any, error) { return nil, err }
	})
}

// prepare is handle for a request that is prepared by the reader. If there are
// too many requests, it refuses this one. A request that counts in the work of a
// run ends with the run.
func (p *peer) prepare(m rpc.Message, prepared func() (*run, handler)) {
	id, key := m.ID, string(m.ID) // so that the rest of the message, which may be long, can be freed
	ctx, cancel := context.WithCancel(p.life)
	p.reqMu.Lock()
	_, taken := p.requests[key]
	room := !taken && len(p.requests) < maxServed && len(key) <= maxKey
	if room {
		p.requests[key] = cancel
	}
	p.reqMu.Unlock()
	if !room {
		cancel()
		p.refuse(id, acp.NewInvalidRequest("too many requests at once, or an id that is taken or too long"))
		return
	}
	r, f := prepared()
	p.serving.Go(func() {
		if r != nil {
			defer r.work.Done()
			defer context.AfterFunc(r.ctx, cancel)()
		}
		defer func() {
			p.reqMu.Lock()
			delete(p.requests, key)
			p.reqMu.Unlock()
			cancel()
		}()
		result, err := f(ctx, r)
		if err != nil {
			p.refuse(id, refusal(err))
			return
		}
		if err := p.conn.Answer(id, result); err != nil { // the process is ending
			p.log.Debug("cannot answer the agent process", "error", err)
		}
	})
}

// cancelRequest cancels a request that the program has withdrawn.
func (p *peer) cancelRequest(raw json.RawMessage) {
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	decode(raw, &params)
	p.reqMu.Lock()
	defer p.reqMu.Unlock()
	if cancel := p.requests[string(params.RequestID)]; cancel != nil {
		cancel()
	}
}

// call makes a call, waits for its result and decodes it leniently.
func (p *peer) call(ctx context.Context, method string, params, result any) error {
	raw, err := p.conn.Call(ctx, method, params)
	if err == nil {
		decode(raw, result)
	}
	return err
}

// decode decodes a part of a message of the program into v. It ignores values of
// a wrong type, so that agents that differ from the schema are still understood.
func decode(raw json.RawMessage, v any) { _ = json.Unmarshal(raw, v) }

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func (p *peer) refuse(id json.RawMessage, e *acp.RequestError) {
	if err := p.conn.Refuse(id, (*rpc.Error)(e)); err != nil {
		p.log.Debug("cannot refuse a request of the agent process", "error", err)
	}
}

// refusal returns an error in the form for the program.
func refusal(err error) *acp.RequestError {
	if e, ok := errors.AsType[*acp.RequestError](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return acp.NewRequestCancelled(nil)
	}
	return acp.NewInternalError(map[string]any{"details": err.Error()})
}

// shown returns the beginning of a text for people, made visible.
func shown(text string, limit int) string { return visible(abridge.Bytes(text, limit)) }

// visible replaces control characters, and those that change the direction of
// text, with U+FFFD. Line ends and tabs stay.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
